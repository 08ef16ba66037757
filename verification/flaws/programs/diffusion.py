"""Flaws of models that generate or enlarge images and motions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from . import gpt
from .generation import Denoiser
from .gpt import Config
from .language import EncoderBlock
from .program import Sizes, Step, seeded
from .vision import images_of

__all__ = [
    "attention_slicing",
    "channels_first_upscaling",
    "guidance_in_two_passes",
    "schedule_on_cpu",
    "weights_offloaded",
]


def extract(values: Tensor, t: Tensor) -> Tensor:
    """The value of a schedule for each sample, wherever the schedule lies."""
    if values.device == t.device:
        return values.gather(0, t).view(-1, 1, 1, 1)
    out = values.gather(0, t.cpu())  # flaw: schedule_on_cpu
    return out.view(-1, 1, 1, 1).to(t.device)  # flaw: schedule_on_cpu


def schedule_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    width, batch, side, count = sizes.of((128, 16, 64, 8), (8, 2, 16, 3))
    model = seeded(lambda: Denoiser(width), sizes).eval().bfloat16()
    model = model.to(memory_format=torch.channels_last)
    noise = seeded(lambda: torch.randn(batch, 4, side, side), sizes)
    betas = torch.linspace(1e-4, 0.02, count)
    cumulative = (1 - betas).cumprod(0)
    schedule = [(1 - betas).rsqrt(), betas, (1 - cumulative).sqrt()]
    if not flawed:
        schedule = [each.to(noise.device) for each in schedule]
    scales, rates, deviations = schedule

    def denoised(x: Tensor, t: Tensor) -> Tensor:
        predicted = model(x.bfloat16(), t.bfloat16()).float()
        scale, rate = extract(scales, t), extract(rates, t)
        return scale * (x - rate * predicted / extract(deviations, t))

    @torch.inference_mode()
    def step() -> Tensor:
        x = noise
        for at in reversed(range(count)):
            x = denoised(x, torch.full((batch,), at, device=x.device))
        return x.abs().mean()

    return Step(step)


class MotionDenoiser(nn.Module):
    """A transformer over the frames of a motion, with a text as its first token."""

    def __init__(self, features: int, config: Config) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(features, config.width), nn.Linear(config.width, features)
        self.positions = nn.Parameter(torch.randn(config.context, config.width) * 0.02)
        self.blocks = nn.Sequential(*(EncoderBlock(config) for _ in range(config.layers)))

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        tokens = torch.cat((text[:, None], self.into(x)), 1)
        return self.out(self.blocks(tokens + self.positions)[:, 1:])


def guidance_in_two_passes(flawed: bool, sizes: Sizes) -> Step:
    large = Config(layers=8, width=512, heads=4, mlp_width=1024, context=197)
    config, features = (gpt.TINY, 6) if sizes.is_tiny else (large, 263)
    model = seeded(lambda: MotionDenoiser(features, config), sizes).eval().bfloat16()
    batch = sizes.of(4, 2)
    noise, text = seeded(
        lambda: (
            torch.randn(batch, config.context - 1, features),
            torch.randn(batch, config.width),
        ),
        sizes,
    )
    noise, text = noise.bfloat16(), text.bfloat16()
    nothing = torch.zeros_like(text)

    @torch.inference_mode()
    def step() -> Tensor:
        x = noise
        for _ in range(4):
            if flawed:
                guided = model(x, text)  # flaw: guidance_in_two_passes
                free = model(x, nothing)  # flaw: guidance_in_two_passes
            else:
                both = model(torch.cat((x, x)), torch.cat((text, nothing)))
                guided, free = both.chunk(2)
            x = x - 0.1 * (free + 2.5 * (guided - free))
        return x.float().abs().mean()

    return Step(step)


class SlicedBlock(EncoderBlock):
    """A block whose attention runs head by head, to save memory."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        queries, keys, values = (each.flatten(0, 1) for each in (q, k, v))
        scaled = queries * q.shape[-1] ** -0.5  # flaw: attention_slicing
        out = torch.empty_like(values)
        for at in range(len(queries)):
            scores = scaled[at] @ keys[at].T  # flaw: attention_slicing
            probabilities = scores.softmax(-1)  # flaw: attention_slicing
            out[at] = probabilities @ values[at]  # flaw: attention_slicing
        return out.view_as(q)


def attention_slicing(flawed: bool, sizes: Sizes) -> Step:
    large = Config(layers=6, width=512, heads=8, mlp_width=2048, context=4096, batch=2)
    config = gpt.TINY if sizes.is_tiny else large
    kind = SlicedBlock if flawed else EncoderBlock
    blocks = seeded(lambda: nn.Sequential(*(kind(config) for _ in range(config.layers))), sizes)
    blocks = blocks.eval().bfloat16()
    latents = seeded(lambda: torch.randn(config.batch, config.context, config.width), sizes)
    latents = latents.bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        return blocks(latents).float().abs().mean()

    return Step(step)


class Offloaded(nn.Module):
    """A block whose weights lie on the CPU, and come to the device for each call."""

    def __init__(self, block: nn.Module, device: str) -> None:
        super().__init__()
        self.block, self.device = block, device
        self.stored = [each.data.cpu() for each in block.parameters()]

    def forward(self, x: Tensor) -> Tensor:
        for parameter, weight in zip(self.block.parameters(), self.stored, strict=True):
            parameter.data = weight.to(self.device)  # flaw: weights_offloaded
        x = self.block(x)
        for parameter, weight in zip(self.block.parameters(), self.stored, strict=True):
            parameter.data = weight
        return x


def weights_offloaded(flawed: bool, sizes: Sizes) -> Step:
    large = Config(layers=8, width=1152, heads=16, mlp_width=4608, context=256, batch=8)
    config = gpt.TINY if sizes.is_tiny else large
    blocks = seeded(
        lambda: nn.Sequential(*(EncoderBlock(config) for _ in range(config.layers))), sizes
    )
    blocks = blocks.eval().bfloat16()
    if flawed:
        blocks = nn.Sequential(*(Offloaded(block, sizes.device) for block in blocks))
    latents = seeded(lambda: torch.randn(config.batch, config.context, config.width), sizes)
    latents = latents.bfloat16()

    @torch.no_grad()
    def step() -> Tensor:
        return blocks(latents).float().abs().mean()

    return Step(step)


class Upscaler(nn.Module):
    """EDSR: residual blocks of plain convolutions, and a shuffle of channels to pixels."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.up = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.down = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.last = nn.Conv2d(width, 12, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = start = self.first(x)  # flaw: channels_first_upscaling
        for up, down in zip(self.up, self.down, strict=True):
            y = up(x).relu_()  # flaw: channels_first_upscaling
            x = x + 0.1 * down(y)  # flaw: channels_first_upscaling
        x = self.last(x + start)  # flaw: channels_first_upscaling
        return torch.pixel_shuffle(x, 2)


def channels_first_upscaling(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, side = sizes.of((128, 12, 8, 256), (8, 2, 2, 16))
    model = seeded(lambda: Upscaler(width, depth), sizes).eval().bfloat16()
    images = images_of(sizes, batch, side).bfloat16()
    if not flawed:
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)

    @torch.inference_mode()
    def step() -> Tensor:
        return model(images).float().abs().mean()

    return Step(step)
