"""Flaws of code that is compiled, could be, or is replayed as a CUDA graph."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Block, Config
from .habits import Backbone
from .inference import decoder, replayed
from .language import EncoderBlock
from .program import Sizes, Step, autocast, compiled, copied, fused_adamw, seeded
from .vision import images_of

__all__ = [
    "compiled_small_batch",
    "eos_check_per_token",
    "focal_loss_eager",
    "inf_clamp_branch",
    "logits_of_whole_prompt",
    "only_forward_compiled",
]


class Residual(nn.Module):
    """Two convolutions behind group norms, as a VAE of images has them."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = (nn.GroupNorm(groups, channels) for _ in range(2))
        self.conv_1, self.conv_2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv_1(F.silu(self.norm_1(x)))  # flaw: only_forward_compiled
        y = self.conv_2(F.silu(self.norm_2(y)))  # flaw: only_forward_compiled
        return x + y  # flaw: only_forward_compiled


class Autoencoder(nn.Module):
    """A VAE of images whose decoder is called by itself."""

    def __init__(self, widths: tuple[int, ...], groups: int) -> None:
        super().__init__()
        self.into = nn.Conv2d(3, 4, 8, 8)
        self.first = nn.Conv2d(4, widths[0], 3, padding=1)
        self.stages, self.ups = nn.ModuleList(), nn.ModuleList()
        for width, following in pairwise((*widths, 3)):
            self.stages.append(nn.Sequential(Residual(width, groups), Residual(width, groups)))
            self.ups.append(nn.Conv2d(width, following, 3, padding=1))

    def encode(self, images: Tensor) -> Tensor:
        return self.into(images)

    def decode(self, latents: Tensor) -> Tensor:
        x = self.first(latents)  # flaw: only_forward_compiled
        for stage, up in zip(self.stages, self.ups, strict=True):
            x = F.interpolate(stage(x), scale_factor=2.0)  # flaw: only_forward_compiled
            x = up(x)  # flaw: only_forward_compiled
        return x

    def forward(self, images: Tensor) -> Tensor:
        return self.decode(self.encode(images))


def only_forward_compiled(flawed: bool, sizes: Sizes) -> Step:
    widths, groups, batch, side = sizes.of(((256, 256, 128), 32, 4, 64), ((8, 8), 4, 2, 8))
    vae = seeded(lambda: Autoencoder(widths, groups), sizes).eval().bfloat16()
    latents = seeded(lambda: torch.randn(batch, 4, side, side), sizes).bfloat16()
    if flawed:
        vae = compiled(vae, sizes)
    else:
        vae.decode = compiled(vae.decode, sizes)

    @torch.inference_mode()
    def step() -> Tensor:
        return vae.decode(latents).float().abs().mean()  # flaw: only_forward_compiled

    return Step(step)


class TextEncoder(nn.Module):
    """An embedding of a sentence."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Parameter(torch.randn(config.context, config.width) * 0.02)
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        return F.normalize(self.norm(x).mean(1), dim=-1)


def compiled_small_batch(flawed: bool, sizes: Sizes) -> Step:
    large = Config(
        layers=4, width=384, heads=6, mlp_width=1536, vocabulary=30528, context=64, batch=1
    )
    config = gpt.TINY if sizes.is_tiny else large
    model = seeded(lambda: TextEncoder(config), sizes).eval().bfloat16()
    tokens, _ = gpt.batch_of(config, sizes)
    forward = copied(TextEncoder.forward)
    mode = "default" if flawed else "reduce-overhead"
    embed = compiled(lambda tokens: forward(model, tokens), sizes, mode=mode)
    requests = [tokens.roll(shift, 1) for shift in range(sizes.of(16, 2))]

    @torch.inference_mode()
    def step() -> Tensor:
        total = torch.zeros((), device=tokens.device)
        for request in requests:
            total += embed(request).float().abs().mean()
        return total

    return Step(step, warm_up=6)


LIMIT = torch.finfo(torch.float16).max


def clamped_if_infinite(x: Tensor) -> Tensor:
    """Keep what overflowed within float16."""
    if x.isinf().any():  # flaw: inf_clamp_branch
        x = x.clamp(1000 - LIMIT, LIMIT - 1000)
    return x


def clamped_by_where(x: Tensor) -> Tensor:
    """The same without a branch of Python."""
    limit = torch.where(x.isinf().any(), LIMIT - 1000, LIMIT).to(x.dtype)
    return torch.maximum(torch.minimum(x, limit), -limit)


class BranchingBlock(EncoderBlock):
    """A block of T5's encoder in float16."""

    def forward(self, x: Tensor) -> Tensor:  # flaw: inf_clamp_branch
        x = clamped_if_infinite(x + self.attention(self.norm_1(x)))  # flaw: inf_clamp_branch
        return clamped_if_infinite(x + self.mlp(self.norm_2(x)))  # flaw: inf_clamp_branch


class ClampedBlock(EncoderBlock):
    """The same as one graph."""

    def forward(self, x: Tensor) -> Tensor:
        x = clamped_by_where(x + self.attention(self.norm_1(x)))
        return clamped_by_where(x + self.mlp(self.norm_2(x)))


def inf_clamp_branch(flawed: bool, sizes: Sizes) -> Step:
    large = Config(layers=8, width=512, heads=8, mlp_width=2048, context=256, batch=16)
    config = gpt.TINY if sizes.is_tiny else large
    kind = BranchingBlock if flawed else ClampedBlock
    blocks = seeded(lambda: [kind(config) for _ in range(config.layers)], sizes)
    run = [compiled(block.eval().half(), sizes) for block in blocks]
    x = seeded(lambda: torch.randn(config.batch, config.context, config.width), sizes).half()

    @torch.no_grad()  # one kind of tensor, one compilation
    def step() -> Tensor:
        y = x
        for block in run:
            y = block(y)
        return y.float().abs().mean()

    return Step(step, warm_up=6)


class DenseHead(nn.Module):
    """RetinaNet's scores of all classes for each anchor of each cell."""

    def __init__(self, width: int, levels: int, anchors: int, classes: int) -> None:
        super().__init__()
        self.backbone, self.classes = Backbone(width, levels), classes
        self.scores = nn.Conv2d(self.backbone.channels, anchors * classes, 3, padding=1)
        nn.init.constant_(self.scores.bias, -math.log(99))

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.backbone.convs, self.backbone.norms, strict=True):
            x = F.relu(norm(conv(x)), inplace=True)
        return self.scores(x).permute(0, 2, 3, 1).unflatten(3, (-1, self.classes))


ALPHA = 0.25


def focal_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy that counts what is easy less."""
    # flaw in the next line: focal_loss_eager
    entropy = F.binary_cross_entropy_with_logits(scores, targets, reduction="none")
    likely = scores.sigmoid()  # flaw: focal_loss_eager
    wrong = likely * (1 - targets) + (1 - likely) * targets  # flaw: focal_loss_eager
    weight = ALPHA * targets + (1 - ALPHA) * (1 - targets)  # flaw: focal_loss_eager
    return (weight * wrong.square() * entropy).mean()  # flaw: focal_loss_eager


def focal_loss_eager(flawed: bool, sizes: Sizes) -> Step:
    width, anchors, classes, batch, side = sizes.of((64, 9, 80, 8, 512), (4, 2, 3, 2, 32))
    model = seeded(lambda: DenseHead(width, 3, anchors, classes), sizes)
    model = model.to(memory_format=torch.channels_last)
    images = images_of(sizes, batch, side).to(memory_format=torch.channels_last)
    with torch.no_grad():
        shape = model(images).shape
    targets = (seeded(lambda: torch.rand(shape), sizes) < 0.001).float()
    optimizer = fused_adamw(model)
    loss_of = focal_loss if flawed else compiled(copied(focal_loss), sizes)

    def step() -> Tensor:
        optimizer.zero_grad()
        with autocast(sizes):
            scores = model(images)
        loss = loss_of(scores.float(), targets)  # flaw: focal_loss_eager
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Step(step)


def eos_check_per_token(flawed: bool, sizes: Sizes) -> Step:
    count, prompt = sizes.of((16, 128), (4, 16))
    decode, tokens = decoder(sizes, 4)
    last = decode.model.config.vocabulary - 1
    with torch.no_grad():
        first = decode.prompt(tokens[:, :prompt])
        run = decode if sizes.is_tiny else replayed(decode, first)

    @torch.no_grad()
    def step() -> Tensor:
        decode.at.fill_(prompt)
        token, texts = first, []
        finished = torch.zeros_like(first, dtype=torch.bool)
        for _ in range(count):
            token = run(token).clone()
            texts.append(token)
            finished |= token == last
            if flawed and finished.all():  # flaw: eos_check_per_token
                break
        return torch.cat(texts, 1).float().mean()

    return Step(step)


def logits_of_whole_prompt(flawed: bool, sizes: Sizes) -> Step:
    changes = sizes.of({"vocabulary": 128_256, "batch": 8}, {})
    model, tokens, _ = gpt.made(sizes, Block, **changes)
    model = model.eval().bfloat16()

    def prefill(tokens: Tensor) -> Tensor:
        x = model.tokens(tokens) + model.positions
        for block in model.blocks:
            x = block(x)
        if flawed:
            logits = model.head(model.norm(x))  # flaw: logits_of_whole_prompt
            return logits.float()[:, -1]  # flaw: logits_of_whole_prompt
        return model.head(model.norm(x[:, -1])).float()

    @torch.inference_mode()
    def step() -> Tensor:
        return prefill(tokens).softmax(-1).amax(-1).mean()

    return Step(step)
