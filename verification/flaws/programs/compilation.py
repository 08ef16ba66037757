"""Flaws of compiled code."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from . import gpt
from .gpt import Block, Config
from .program import Sizes, Step, compiled, copied, fused_adamw, seeded, training

__all__ = [
    "block_mask_per_layer",
    "complex_rotary",
    "cpu_scalar_skips_graphs",
    "step_counter",
]


class CosineBlock(Block):
    """A block with attention of cosines, which one number scales."""

    scale: Tensor

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q = F.normalize(q, dim=-1) * self.scale  # flaw: cpu_scalar_skips_graphs
        k = F.normalize(k, dim=-1)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)


def cpu_scalar_skips_graphs(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, _ = gpt.made(
        sizes, CosineBlock, layers=sizes.of(8, 2), batch=1, context=sizes.of(64, 32)
    )
    scale = torch.tensor(10.0, dtype=torch.bfloat16)
    for block in model.blocks:
        block.scale = scale if flawed else scale.to(tokens.device)
    model = model.bfloat16().eval()
    forward = copied(gpt.GPT.forward)
    run = compiled(lambda tokens: forward(model, tokens), sizes, mode="reduce-overhead")
    texts = [tokens.roll(shift, 1) for shift in range(sizes.of(16, 2))]

    @torch.inference_mode()
    def step() -> Tensor:
        total = torch.zeros((), device=tokens.device)
        for text in texts:
            total += run(text)[:, -1].float().abs().mean()  # flaw: cpu_scalar_skips_graphs
        return total

    return Step(step, warm_up=6)


def precompute_freqs_cis(channels: int, end: int) -> Tensor:
    """The rotations of all positions, as complex numbers."""
    freqs = 1.0 / 10000 ** (torch.arange(0, channels, 2).float() / channels)
    angles = torch.outer(torch.arange(end).float(), freqs)
    return torch.polar(torch.ones_like(angles), angles)


class ComplexRotary(Block):
    """A block with rotary embeddings as Llama has them."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        freqs_cis = precompute_freqs_cis(config.width // config.heads, config.context)
        self.register_buffer("freqs_cis", freqs_cis)

    def rotate(self, x: Tensor) -> Tensor:
        x_ = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))  # flaw: complex_rotary
        x_out = torch.view_as_real(x_ * self.freqs_cis).flatten(-2)  # flaw: complex_rotary
        return x_out.type_as(x)  # flaw: complex_rotary

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(self.rotate(q), self.rotate(k), v)  # flaw: complex_rotary


class RealRotary(ComplexRotary):
    """The same without complex numbers."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.register_buffer("cos", self.freqs_cis.real.contiguous())
        self.register_buffer("sin", self.freqs_cis.imag.contiguous())

    def rotate(self, x: Tensor) -> Tensor:
        a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        rotated = torch.stack((a * self.cos - b * self.sin, a * self.sin + b * self.cos), -1)
        return rotated.flatten(-2).type_as(x)


def complex_rotary(flawed: bool, sizes: Sizes) -> Step:
    kind = ComplexRotary if flawed else RealRotary
    model, tokens, targets = gpt.made(sizes, kind, batch=sizes.of(8, 2))
    model.blocks = nn.ModuleList(compiled(block, sizes) for block in model.blocks)
    optimizer = fused_adamw(model)
    return Step(training(lambda: gpt.loss_of(model, tokens, targets), optimizer, sizes))


class AnnealedLoss(nn.Module):
    """The loss of a VAE: logistic likelihood, and a divergence that grows over the first steps."""

    def __init__(self, warm_up: int = 5000) -> None:
        super().__init__()
        self.warm_up, self.current_step = warm_up, 0

    def beta(self) -> Tensor | float:
        self.current_step += 1  # flaw: step_counter
        return min(self.current_step / self.warm_up, 1.0)  # flaw: step_counter

    def forward(self, x: Tensor, out: tuple[Tensor, ...]) -> Tensor:  # flaw: step_counter
        mean, log_scale, mu, logvar = (each.float() for each in out)  # flaw: step_counter
        inverse = torch.exp(-log_scale.clamp(min=-7))  # flaw: step_counter
        centred = x - mean  # flaw: step_counter
        plus = inverse * (centred + 1 / 255)  # flaw: step_counter
        minus = inverse * (centred - 1 / 255)  # flaw: step_counter
        inside = torch.sigmoid(plus) - torch.sigmoid(minus)  # flaw: step_counter
        inside = inside.clamp(min=1e-6)  # flaw: step_counter
        low, high = plus - F.softplus(plus), -F.softplus(minus)  # flaw: step_counter
        likelihood = torch.where(x > 0.99, high, inside.log())  # flaw: step_counter
        likelihood = torch.where(x < -0.99, low, likelihood)  # flaw: step_counter
        divergence = mu.square() + logvar.exp() - 1 - logvar  # flaw: step_counter
        beta = self.beta()  # flaw: step_counter
        return 0.5 * beta * divergence.mean() - likelihood.mean()  # flaw: step_counter


class AnnealedByTensor(AnnealedLoss):
    """The same with its steps counted by a tensor."""

    def __init__(self, warm_up: int = 5000) -> None:
        super().__init__(warm_up)
        self.register_buffer("step", torch.zeros(()))

    def beta(self) -> Tensor | float:
        self.step += 1
        return (self.step / self.warm_up).clamp(max=1.0)

    forward = copied(AnnealedLoss.forward)


class VAE(nn.Module):
    """A small convolutional VAE."""

    def __init__(self, width: int, latent: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(2 * width, 2 * latent, 1),
        )
        self.decoder = nn.Sequential(
            nn.Conv2d(latent, 2 * width, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(width, 6, 4, 2, 1),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        mu, logvar = self.encoder(x).chunk(2, 1)
        mean, log_scale = self.decoder(mu).chunk(2, 1)
        return mean, log_scale, mu, logvar


def step_counter(flawed: bool, sizes: Sizes) -> Step:
    width, latent, batch, side = sizes.of((96, 16, 128, 128), (8, 4, 2, 16))
    model = seeded(lambda: VAE(width, latent), sizes).to(memory_format=torch.channels_last)
    images = seeded(lambda: torch.rand(batch, 3, side, side) * 2 - 1, sizes)
    images = images.to(memory_format=torch.channels_last)
    criterion = seeded(AnnealedLoss if flawed else AnnealedByTensor, sizes)
    loss_of, optimizer = compiled(criterion, sizes), fused_adamw(model)
    return Step(training(lambda: loss_of(images, model(images)), optimizer, sizes), warm_up=14)


class DocumentBlock(Block):
    """A block in which a token sees the earlier ones of its document."""

    flex: Callable[..., Tensor]
    document: Tensor
    block_mask: BlockMask | None = None

    def make_mask(self) -> BlockMask:
        document, length = self.document, len(self.document)

        def document_causal(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
            same = document[q_idx] == document[kv_idx]  # flaw: block_mask_per_layer
            return (q_idx >= kv_idx) & same  # flaw: block_mask_per_layer

        # flaw in the next line: block_mask_per_layer
        return create_block_mask(document_causal, None, None, length, length, document.device)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        block_mask = self.block_mask
        if block_mask is None:
            block_mask = self.make_mask()  # flaw: block_mask_per_layer
        return self.flex(q, k, v, block_mask=block_mask)


def block_mask_per_layer(flawed: bool, sizes: Sizes) -> Step:
    length = sizes.of(8192, 32)
    model, tokens, _ = gpt.made(
        sizes, DocumentBlock, layers=sizes.of(8, 2), context=length, batch=1
    )
    model = model.bfloat16().eval()
    document = torch.arange(length, device=tokens.device) * 11 // length
    flex = compiled(flex_attention, sizes)
    for block in model.blocks:
        block.flex, block.document = flex, document

    @torch.no_grad()
    def step() -> Tensor:
        if not flawed:
            block_mask = model.blocks[0].make_mask()
            for block in model.blocks:
                block.block_mask = block_mask
        return model(tokens).float().abs().mean()

    return Step(step)
