"""Language models and diffusion transformers, as public threads describe them."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .program import Sizes, Step, autocast, fused_adamw, seeded, training

__all__ = [
    "cpm_generates_without_cache",
    "ernie_trigonometry_twice",
    "minimax_old_flash_kernel",
    "onetrainer_latent_statistics_on_host",
    "phi_tuning_empties_cache",
    "slapo_gpt_neo_mask_on_host",
]


def split(x: Tensor, heads: int) -> Tensor:
    """From (batch, tokens, width) to (batch, heads, tokens, width of a head)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    """And back."""
    return x.transpose(1, 2).flatten(2)


class ErnieBlock(nn.Module):
    """A block of a diffusion transformer whose queries and keys are rotated."""

    def __init__(self, width: int, heads: int, is_flawed: bool) -> None:
        super().__init__()
        self.heads, self.is_flawed = heads, is_flawed
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm_q, self.norm_k = nn.RMSNorm(width // heads), nn.RMSNorm(width // heads)
        self.norm_1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm_2 = nn.LayerNorm(width, elementwise_affine=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, angles: Tensor, modulation: Tensor) -> Tensor:
        shift, scale, gate, shift_2, scale_2, gate_2 = modulation.chunk(6, -1)
        qkv = self.qkv(self.norm_1(x) * (1 + scale) + shift)
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in qkv.chunk(3, -1))
        q, k = self.norm_q(q), self.norm_k(k)
        if self.is_flawed:
            q = self.rotated(q, angles.cos(), angles.sin())  # flaw: ernie_trigonometry_twice
            k = self.rotated(k, angles.cos(), angles.sin())  # flaw: ernie_trigonometry_twice
        else:
            cosine, sine = angles.cos(), angles.sin()
            q, k = self.rotated(q, cosine, sine), self.rotated(k, cosine, sine)
        parts = (part.transpose(1, 2) for part in (q, k, v))
        x = x + gate * self.out(joined(F.scaled_dot_product_attention(*parts)))
        hidden = F.gelu(self.up(self.norm_2(x) * (1 + scale_2) + shift_2))
        return x + gate_2 * self.down(hidden)

    def rotated(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        cosine, sine = cosine.to(x.dtype), sine.to(x.dtype)
        a, b = x.chunk(2, -1)
        return x * cosine + torch.cat([-b, a], -1) * sine


class Ernie(nn.Module):
    """A diffusion transformer of one stream of latent and text tokens."""

    def __init__(self, width: int, heads: int, layers: int, is_flawed: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, width), nn.Linear(width, 64)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 6 * width))
        self.blocks = nn.ModuleList(ErnieBlock(width, heads, is_flawed) for _ in range(layers))

    def forward(self, latents: Tensor, text: Tensor, angles: Tensor, time: Tensor) -> Tensor:
        x = torch.cat([text, self.first(latents)], 1)
        modulation = self.time(time.expand(1, 1, x.shape[-1]))
        for block in self.blocks:
            x = block(x, angles, modulation)
        return self.last(x[:, text.shape[1] :])


def ernie_trigonometry_twice(flawed: bool, sizes: Sizes) -> Step:
    width, heads, tokens, said = sizes.of((1536, 12, 1024, 64), (32, 2, 16, 4))
    model = seeded(lambda: Ernie(width, heads, sizes.of(24, 2), flawed), sizes)
    model = model.to(torch.bfloat16).eval()
    noise = seeded(lambda: torch.randn(1, tokens, 64), sizes).bfloat16()
    text = seeded(lambda: torch.randn(1, said, width), sizes).bfloat16()
    places = torch.arange(tokens + said, device=sizes.device).view(1, -1, 1, 1)
    half = torch.arange(width // heads // 2, device=sizes.device)
    angles = places * 256.0 ** (-half / half.numel())
    angles = torch.cat([angles, angles], -1)
    times = torch.linspace(1, 0, 3, device=sizes.device).bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        latents = noise
        for time, after in pairwise(times.unbind()):
            latents = latents + (after - time) * model(latents, text, angles, time)
        return latents.float().square().mean()

    return Step(step)


class PhiBlock(nn.Module):
    """Attention with rotated queries and keys, and a gated MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 6 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        q, k, v = (split(part, self.heads) for part in self.qkv(self.norm_1(x)).chunk(3, -1))
        q, k = (self.rotated(part, cosine, sine) for part in (q, k))
        x = x + self.out(joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
        gate, up = self.up(self.norm_2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    def rotated(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return x * cosine.to(x.dtype) + torch.cat([-b, a], -1) * sine.to(x.dtype)


class Phi(nn.Module):
    """A decoder in the manner of Phi-3."""

    def __init__(self, width: int, heads: int, layers: int, vocabulary: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(PhiBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        half = torch.arange(width // heads // 2)
        angles = torch.arange(context)[:, None] * 10000.0 ** (-half / half.numel())
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return self.head(self.norm(x))


def phi_tuning_empties_cache(flawed: bool, sizes: Sizes) -> Step:
    width, heads, layers, vocabulary = sizes.of((1024, 16, 12, 32064), (32, 2, 2, 50))
    context, batch = sizes.of(2048, 8), 2
    model = seeded(lambda: Phi(width, heads, layers, vocabulary, context), sizes)
    text = seeded(lambda: torch.randint(0, vocabulary, (batch, context + 1)), sizes)
    optimizer = fused_adamw(model)

    def step() -> Tensor:
        with autocast(sizes):
            logits = model(text[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        del logits
        if flawed and sizes.device != "cpu":
            torch.cuda.empty_cache()  # flaw: phi_tuning_empties_cache
        loss.backward()  # flaw: phi_tuning_empties_cache
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return Step(step)


class Adapted(nn.Module):
    """A frozen linear layer with a trained low-rank one beside it."""

    def __init__(self, into: int, out: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(into, out).to(torch.bfloat16).requires_grad_(False)
        self.first = nn.Linear(into, rank, bias=False)
        self.second = nn.Linear(rank, out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.second(self.first(x))


class VideoBlock(nn.Module):
    """A block of a video transformer whose linear layers are adapted."""

    def __init__(self, width: int, heads: int, rank: int, backends: Any) -> None:
        super().__init__()
        self.heads, self.backends = heads, backends
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = Adapted(width, 3 * width, rank), Adapted(width, width, rank)
        self.up, self.down = Adapted(width, 4 * width, rank), Adapted(4 * width, width, rank)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (split(part, self.heads) for part in self.qkv(self.norm_1(x)).chunk(3, -1))
        x = x + self.out(joined(self.attend(q, k, v)))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(self.backends):  # flaw: minimax_old_flash_kernel
            # flaw in the next line: minimax_old_flash_kernel
            return F.scaled_dot_product_attention(q, k, v)


def minimax_old_flash_kernel(flawed: bool, sizes: Sizes) -> Step:
    width, heads, tokens = sizes.of((2048, 16, 12288), (32, 2, 16))
    backends = SDPBackend.FLASH_ATTENTION
    if not flawed and sizes.device != "cpu":
        backends = SDPBackend.CUDNN_ATTENTION
    block = partial(VideoBlock, width, heads, sizes.of(32, 4), backends)
    model = seeded(lambda: nn.Sequential(*(block() for _ in range(sizes.of(4, 2)))), sizes)
    clean, noise = seeded(lambda: torch.randn(2, 1, tokens, width), sizes)
    optimizer = torch.optim.AdamW(
        [each for each in model.parameters() if each.requires_grad], lr=1e-4, fused=True
    )

    def loss_of() -> Tensor:
        return F.mse_loss(model(0.3 * clean + 0.7 * noise).float(), noise - clean)

    return Step(training(loss_of, optimizer, sizes))


class NeoBlock(nn.Module):
    """A block of GPT-Neo: its attention is local in every second layer."""

    def __init__(self, width: int, heads: int, window: int | None, is_flawed: bool) -> None:
        super().__init__()
        self.heads, self.window, self.is_flawed = heads, window, is_flawed
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (split(part, self.heads) for part in self.qkv(self.norm_1(x)).chunk(3, -1))
        mask = self.mask(x.shape[1], x.device)
        x = x + self.out(joined(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))

    def mask(self, length: int, device: torch.device) -> Tensor:
        """Which tokens each token sees."""
        if self.is_flawed:
            seen = torch.ones(length, length, dtype=torch.bool)  # flaw: slapo_gpt_neo_mask_on_host
        else:
            seen = torch.ones(length, length, dtype=torch.bool, device=device)
        seen = seen.tril()  # flaw: slapo_gpt_neo_mask_on_host
        if self.window is not None:
            seen = seen.triu(1 - self.window)  # flaw: slapo_gpt_neo_mask_on_host
        return seen.to(device)  # flaw: slapo_gpt_neo_mask_on_host


class Neo(nn.Module):
    """GPT-Neo."""

    def __init__(self, sizes: Sizes, vocabulary: int, context: int, is_flawed: bool) -> None:
        super().__init__()
        width, heads, layers, window = sizes.of((768, 12, 12, 256), (32, 2, 2, 4))
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(context, width) * 0.02)
        self.blocks = nn.ModuleList(
            NeoBlock(width, heads, window if layer % 2 else None, is_flawed)
            for layer in range(layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def slapo_gpt_neo_mask_on_host(flawed: bool, sizes: Sizes) -> Step:
    vocabulary, context = sizes.of(50304, 48), sizes.of(1024, 8)
    model = seeded(lambda: Neo(sizes, vocabulary, context, flawed), sizes)
    text = seeded(lambda: torch.randint(0, vocabulary, (sizes.of(8, 2), context + 1)), sizes)

    def loss_of() -> Tensor:
        return F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    return Step(training(loss_of, fused_adamw(model), sizes))


Cache = list[tuple[Tensor, Tensor]]


class CpmBlock(nn.Module):
    """A block of CPM that attends to kept keys and values, if there are any."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, kept: tuple[Tensor, Tensor] | None, start: int) -> Tensor:
        # flaw in the next line: cpm_generates_without_cache
        q, k, v = (split(part, self.heads) for part in self.qkv(self.norm_1(x)).chunk(3, -1))
        is_causal = x.shape[1] > 1
        if kept is not None:
            end = start + x.shape[1]
            kept[0][:, :, start:end], kept[1][:, :, start:end] = k, v
            k, v = kept[0][:, :, :end], kept[1][:, :, :end]
        # flaw in the next line: cpm_generates_without_cache
        x = x + self.out(joined(F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)))
        # flaw in the next line: cpm_generates_without_cache
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Cpm(nn.Module):
    """The decoder of CPM."""

    def __init__(self, width: int, heads: int, layers: int, vocabulary: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(context, width) * 0.02)
        self.blocks = nn.ModuleList(CpmBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor, cache: Cache | None = None, start: int = 0) -> Tensor:
        """Scores of the token that follows the last one."""
        x = self.tokens(tokens) + self.places[start : start + tokens.shape[1]]
        for index, block in enumerate(self.blocks):
            # flaw in the next line: cpm_generates_without_cache
            x = block(x, None if cache is None else cache[index], start)
        return self.head(self.norm(x[:, -1]))


def cpm_generates_without_cache(flawed: bool, sizes: Sizes) -> Step:
    width, heads, layers, vocabulary = sizes.of((1024, 16, 12, 30000), (32, 2, 2, 50))
    prompt_length, count, batch = sizes.of(512, 6), sizes.of(8, 3), sizes.of(16, 2)
    context = prompt_length + count
    model = seeded(lambda: Cpm(width, heads, layers, vocabulary, context), sizes)
    model = model.to(torch.bfloat16).eval()
    prompt = seeded(lambda: torch.randint(0, vocabulary, (batch, prompt_length)), sizes)
    shape = (batch, heads, context, width // heads)
    empty = partial(torch.empty, shape, dtype=torch.bfloat16, device=sizes.device)

    def recomputed() -> Tensor:
        tokens = prompt
        for _ in range(count):
            scores = model(tokens)  # flaw: cpm_generates_without_cache
            tokens = torch.cat([tokens, scores.argmax(-1, keepdim=True)], 1)
        return scores

    def cached() -> Tensor:
        cache = [(empty(), empty()) for _ in range(layers)]
        tokens, start = prompt, 0
        for _ in range(count):
            scores = model(tokens, cache, start)
            start += tokens.shape[1]
            tokens = scores.argmax(-1, keepdim=True)
        return scores

    @torch.inference_mode()
    def step() -> Tensor:
        scores = recomputed() if flawed else cached()
        return scores.float().logsumexp(-1).mean()

    return Step(step)


class LaggingLoss:
    """Reads each loss one step later, from pinned memory, so that nothing waits for the GPU."""

    def __init__(self, device: str) -> None:
        is_cuda = device != "cpu"
        self.buffers = [torch.zeros((), pin_memory=is_cuda) for _ in range(2)]
        self.events = [torch.cuda.Event() for _ in range(2)] if is_cuda else []
        self.count = 0

    def exchange(self, loss: Tensor) -> float:
        """Keep this loss and return the one before."""
        now, before = self.count % 2, (self.count + 1) % 2
        self.buffers[now].copy_(loss, non_blocking=True)
        if self.events:
            self.events[now].record()
            if self.count:
                self.events[before].synchronize()
        self.count += 1
        return float(self.buffers[before])


class FluxTuning(nn.Module):
    """An adapted transformer of latent and text tokens, and what scales the latents."""

    def __init__(self, width: int, heads: int, layers: int, statistics: nn.BatchNorm1d) -> None:
        super().__init__()
        self.first = nn.Linear(128, width).requires_grad_(False)
        self.last = nn.Linear(width, 128).requires_grad_(False)
        backends = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
        self.blocks = nn.ModuleList(VideoBlock(width, heads, 16, backends) for _ in range(layers))
        self.statistics = [statistics]

    def scaled(self, latents: Tensor) -> Tensor:
        """Latents with the mean and the variance of the autoencoder's norm taken off."""
        norm, device = self.statistics[0], latents.device
        assert norm.running_mean is not None and norm.running_var is not None
        mean = norm.running_mean.to(device)  # flaw: onetrainer_latent_statistics_on_host
        variance = norm.running_var.to(device)  # flaw: onetrainer_latent_statistics_on_host
        return (latents - mean) / (variance + norm.eps).sqrt()

    def forward(self, latents: Tensor, text: Tensor, noise: Tensor, time: Tensor) -> Tensor:
        clean = self.scaled(latents)
        x = torch.cat([text, self.first(clean + time * (noise - clean))], 1)
        for block in self.blocks:
            x = block(x)
        output = self.last(x[:, text.shape[1] :])
        return F.mse_loss(output.float(), noise - clean)


def onetrainer_latent_statistics_on_host(flawed: bool, sizes: Sizes) -> Step:
    width, heads, layers, tokens = sizes.of((1024, 16, 16, 2048), (32, 2, 2, 8))
    norm = nn.BatchNorm1d(128, affine=False, device="cpu" if flawed else sizes.device)
    model = seeded(lambda: FluxTuning(width, heads, layers, norm), sizes)
    latents, noise = seeded(lambda: torch.randn(2, 2, tokens, 128), sizes)
    text = seeded(lambda: torch.randn(2, tokens // 4, width), sizes)
    time = seeded(lambda: torch.rand(2, 1, 1), sizes)
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    shown = {"loss": 0.0}

    def read_at_once(loss: Tensor) -> float:
        return loss.item()  # flaw: onetrainer_latent_statistics_on_host

    read = read_at_once if flawed else LaggingLoss(sizes.device).exchange

    def step() -> Tensor:
        with autocast(sizes):
            loss = model(latents, text, noise, time)
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = read(loss.detach())  # flaw: onetrainer_latent_statistics_on_host
        shown["loss"] = 0.99 * shown["loss"] + 0.01 * value
        return loss.detach()

    return Step(step)
