"""Flaws of models that make motions and images: diffusion, flow matching, and flows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Config
from .language import EncoderBlock
from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "couplings_on_cpu",
    "kronecker_weight_rebuilt",
    "spline_inside_by_mask",
    "text_encoded_each_denoising",
]


class TextEncoder(nn.Module):
    """A frozen encoder of prompts, as CLIP has it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Parameter(torch.randn(config.context, config.width) * 0.02)
        self.blocks = nn.Sequential(*(gpt.Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, text: Tensor) -> Tensor:
        x = self.words(text) + self.positions  # flaw: text_encoded_each_denoising
        return self.norm(self.blocks(x))[:, -1]  # flaw: text_encoded_each_denoising


class MotionDenoiser(nn.Module):
    """The motion before noise was added, from the noisy one, the time, and a prompt."""

    def __init__(self, config: Config, prompts: Config, features: int) -> None:
        super().__init__()
        self.text = TextEncoder(prompts)
        self.project = nn.Linear(prompts.width, config.width)
        self.time = nn.Sequential(
            nn.Linear(1, config.width), nn.SiLU(), nn.Linear(config.width, config.width)
        )
        self.into = nn.Linear(features, config.width)
        self.blocks = nn.Sequential(*(EncoderBlock(config) for _ in range(config.layers)))
        self.out = nn.Linear(config.width, features)

    def encode_text(self, text: Tensor) -> Tensor:
        return self.project(self.text(text))  # flaw: text_encoded_each_denoising

    def forward(self, noisy: Tensor, time: Tensor, text: Tensor, read: Tensor | None) -> Tensor:
        if read is None:
            read = self.encode_text(text)  # flaw: text_encoded_each_denoising
        token = (self.time(time) + read)[:, None]
        x = self.blocks(torch.cat((token, self.into(noisy)), 1))
        return self.out(x[:, 1:])


def text_encoded_each_denoising(flawed: bool, sizes: Sizes) -> Step:
    config = Config(layers=8, width=512, heads=8, mlp_width=1024)
    prompts = Config(layers=12, width=512, heads=8, mlp_width=2048, vocabulary=49408, context=77)
    if sizes.is_tiny:
        config = prompts = gpt.TINY
    features, frames, batch, steps = sizes.of((263, 196, 32, 10), (5, 6, 2, 3))
    model = seeded(lambda: MotionDenoiser(config, prompts, features), sizes).eval().bfloat16()
    noise, text = seeded(
        lambda: (
            torch.randn(batch, frames, features),
            torch.randint(0, prompts.vocabulary, (batch, prompts.context)),
        ),
        sizes,
    )
    times = torch.linspace(1, 0, steps + 1, device=sizes.device).bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        x = noise.bfloat16()
        read = None if flawed else model.encode_text(text)
        for now, after in pairwise(times):
            # flaw in the next line: text_encoded_each_denoising
            clean = model(x, now.expand(batch, 1), text, read)
            x = clean + (x - clean) * (after / now)
        return x.float().square().mean()

    return Step(step)


def kernel_of(first: Tensor, second: Tensor) -> Tensor:
    """How cheap it is to move each row to each other, between 0 and 1."""
    costs = torch.cdist(first.flatten(1), second.flatten(1)).square()
    return (-10 * costs / costs.max()).exp()


def pairs_on_cpu(first: Tensor, second: Tensor, rounds: int) -> Tensor:
    """The best partner of each row by Sinkhorn's rounds in numpy."""
    kernel = kernel_of(first, second).cpu().numpy()  # flaw: couplings_on_cpu
    rows = np.full(len(kernel), 1 / len(kernel), np.float32)
    v = np.ones_like(rows)
    for _ in range(rounds):
        u = rows / (kernel @ v)  # flaw: couplings_on_cpu
        v = rows / (kernel.T @ u)  # flaw: couplings_on_cpu
    plan = u[:, None] * kernel * v  # flaw: couplings_on_cpu
    found = plan.argmax(1)  # flaw: couplings_on_cpu
    return torch.from_numpy(found).to(first.device)  # flaw: couplings_on_cpu


def pairs_on_device(first: Tensor, second: Tensor, rounds: int) -> Tensor:
    """The same where the rows are."""
    kernel = kernel_of(first, second)
    rows = torch.full_like(kernel[0], 1 / len(kernel))
    v = torch.ones_like(rows)
    for _ in range(rounds):
        u = rows / (kernel @ v)
        v = rows / (kernel.T @ u)
    return (u[:, None] * kernel * v).argmax(1)


class Velocity(nn.Module):
    """The velocity of each pixel of an image at a time, by convolutions."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.time = nn.Linear(1, width)
        self.into = nn.Conv2d(3, width, 3, 2, 1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(depth))
        self.out = nn.ConvTranspose2d(width, 3, 2, 2)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        x = self.into(x) + self.time(time[:, None])[..., None, None]
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + conv(F.silu(norm(x)))
        return self.out(x)


def couplings_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width, depth, rounds = sizes.of((1024, 32, 128, 8, 40), (4, 8, 8, 2, 5))
    model = seeded(lambda: Velocity(width, depth), sizes)
    images, noise, times = seeded(
        lambda: (
            torch.randn(batch, 3, side, side),
            torch.randn(batch, 3, side, side),
            torch.rand(batch),
        ),
        sizes,
    )
    pairs = pairs_on_cpu if flawed else pairs_on_device

    def loss() -> Tensor:
        with torch.no_grad(), torch.autocast(sizes.device, enabled=False):
            best = pairs(noise, images, rounds)  # flaw: couplings_on_cpu
            ends = images.index_select(0, best)
        at = times[:, None, None, None]
        return F.mse_loss(model(torch.lerp(noise, ends, at), times).float(), ends - noise)

    return Step(training(loss, fused_adamw(model), sizes))


def knots(raw: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """The widths of the bins of a spline, and their ends from -bound to bound."""
    shares = 1e-3 + (1 - 1e-3 * raw.shape[-1]) * raw.softmax(-1)
    ends = F.pad(shares.cumsum(-1), (1, 0)) * 2 * bound - bound
    return ends[..., 1:] - ends[..., :-1], ends


def spline(x: Tensor, raw: Tensor, bins: int, bound: float) -> tuple[Tensor, Tensor]:
    """A rational-quadratic spline at x, and the logarithm of its slope."""
    widths, xs = knots(raw[..., :bins], bound)
    heights, ys = knots(raw[..., bins : 2 * bins], bound)
    slopes = F.pad(1e-3 + F.softplus(raw[..., 2 * bins :]), (1, 1), value=1.0)
    at = ((x[..., None] >= xs[..., :-1]).sum(-1, keepdim=True) - 1).clamp(0, bins - 1)

    def here(each: Tensor) -> Tensor:
        return each.gather(-1, at)[..., 0]

    width, height, low, high = here(widths), here(heights), here(slopes), here(slopes[..., 1:])
    slope = height / width
    t = (x - here(xs[..., :-1])) / width
    both = t * (1 - t)
    bottom = slope + (low + high - 2 * slope) * both
    y = here(ys[..., :-1]) + height * (slope * t.square() + low * both) / bottom
    top = slope.square() * (high * t.square() + 2 * slope * both + low * (1 - t).square())
    return y, top.log() - 2 * bottom.log()


def spline_of_masked(x: Tensor, raw: Tensor, bins: int, bound: float) -> tuple[Tensor, Tensor]:
    """The spline where x is within the bounds, and x itself elsewhere."""
    inside = (x >= -bound) & (x <= bound)
    y, slopes = torch.zeros_like(x), torch.zeros_like(x)
    y[~inside] = x[~inside]  # flaw: spline_inside_by_mask
    # flaw in the next line: spline_inside_by_mask
    y[inside], slopes[inside] = spline(x[inside], raw[inside, :], bins, bound)
    return y, slopes


def spline_of_all(x: Tensor, raw: Tensor, bins: int, bound: float) -> tuple[Tensor, Tensor]:
    """The same without picking elements."""
    inside = (x >= -bound) & (x <= bound)
    y, slopes = spline(x.clamp(-bound, bound), raw, bins, bound)
    return torch.where(inside, y, x), torch.where(inside, slopes, 0.0)


class Coupling(nn.Module):
    """Half of the dimensions transformed by splines that the other half gives."""

    def __init__(self, dims: int, width: int, bins: int, by_mask: bool) -> None:
        super().__init__()
        self.transform = spline_of_masked if by_mask else spline_of_all
        self.half, self.bins = dims // 2, bins
        self.net = nn.Sequential(
            nn.Linear(self.half, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, self.half * (3 * bins - 1)),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        kept, changed = x.chunk(2, 1)
        raw = self.net(kept).unflatten(1, (self.half, -1))
        # flaw in the next line: spline_inside_by_mask
        y, slopes = self.transform(changed, raw, self.bins, 3.0)
        return torch.cat((y, kept), 1), slopes.sum(1)


def spline_inside_by_mask(flawed: bool, sizes: Sizes) -> Step:
    batch, dims, width, bins, depth = sizes.of((8192, 32, 256, 8, 8), (6, 4, 8, 3, 2))
    model = seeded(
        lambda: nn.ModuleList(Coupling(dims, width, bins, flawed) for _ in range(depth)), sizes
    )
    data = seeded(lambda: torch.randn(batch, dims) * 1.5, sizes)

    def loss() -> Tensor:
        x, total = data, data.new_zeros(batch)
        for layer in model:
            x, slopes = layer(x)
            total = total + slopes
        return (0.5 * x.square().sum(1) - total).mean() / dims

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class LoKrLinear(nn.Module):
    """A frozen layer with an adapter, the Kronecker product of a small and a larger matrix."""

    def __init__(self, wide: int, out: int, factor: int, is_rebuilt: bool) -> None:
        super().__init__()
        self.is_rebuilt, self.factor = is_rebuilt, factor
        weight = torch.randn(out, wide, dtype=torch.bfloat16) / wide**0.5
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.left = nn.Parameter(torch.randn(factor, factor) / factor)
        self.right = nn.Parameter(torch.randn(out // factor, wide // factor) * 0.01)

    def forward(self, x: Tensor) -> Tensor:
        if self.is_rebuilt:
            delta = torch.kron(self.left, self.right)  # flaw: kronecker_weight_rebuilt
            return F.linear(x, self.weight + delta)  # flaw: kronecker_weight_rebuilt
        parts = x.unflatten(-1, (self.factor, -1))
        changed = F.linear(F.linear(parts, self.right).mT, self.left).mT
        return F.linear(x, self.weight) + changed.flatten(-2)


class AdaptedBlock(nn.Module):
    """A block of a diffusion transformer whose layers are adapted."""

    def __init__(self, config: Config, factor: int, is_rebuilt: bool) -> None:
        super().__init__()
        width, inner = config.width, config.mlp_width
        self.heads = config.heads
        self.norm_1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm_2 = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv = LoKrLinear(width, 3 * width, factor, is_rebuilt)
        self.out = LoKrLinear(width, width, factor, is_rebuilt)
        self.up = LoKrLinear(width, inner, factor, is_rebuilt)
        self.down = LoKrLinear(inner, width, factor, is_rebuilt)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).chunk(3, -1)  # flaw: kronecker_weight_rebuilt
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.out(y)  # flaw: kronecker_weight_rebuilt
        # flaw in the next line: kronecker_weight_rebuilt
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def kronecker_weight_rebuilt(flawed: bool, sizes: Sizes) -> Step:
    large = Config(layers=2, width=4096, heads=32, mlp_width=16384, batch=1, context=1024)
    config = sizes.of(large, gpt.TINY)
    factor = sizes.of(16, 4)
    blocks = seeded(
        lambda: nn.Sequential(
            *(AdaptedBlock(config, factor, flawed) for _ in range(config.layers))
        ),
        sizes,
    )
    latents, wanted = seeded(
        lambda: torch.randn(2, config.batch, config.context, config.width), sizes
    )
    adapters = [each for each in blocks.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(adapters, lr=1e-4, fused=True)

    def loss() -> Tensor:
        return F.mse_loss(blocks(latents).float(), wanted)

    return Step(training(loss, optimizer, sizes))
