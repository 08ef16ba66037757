"""Models of diffusion, whose guides to speed are read widely."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

from .program import Sizes, Step, compiled, fused_adamw, seeded, training

__all__ = [
    "averaged_diffusion_weights_one_by_one",
    "diffusion_noise_from_cpu",
    "latent_unet_in_full_precision",
    "vae_decoder_left_eager",
]


def waves(times: Tensor, width: int) -> Tensor:
    """Sines and cosines of times at frequencies that fall geometrically."""
    places = torch.arange(width // 2, device=times.device)
    angles = times.float()[:, None] * torch.exp(-math.log(10000.0) * 2 / width * places)
    return torch.cat([angles.sin(), angles.cos()], -1)


class ResidualBlock(nn.Module):
    """Group norm, SiLU and convolution, twice, with what is known of the time between."""

    def __init__(self, inputs: int, outputs: int, groups: int, time_width: int = 0) -> None:
        super().__init__()
        self.norm_1 = nn.GroupNorm(groups, inputs)
        self.conv_1 = nn.Conv2d(inputs, outputs, 3, 1, 1)
        self.time = nn.Linear(time_width, outputs) if time_width else None
        self.norm_2 = nn.GroupNorm(groups, outputs)
        self.conv_2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        y = self.conv_1(F.silu(self.norm_1(x)))  # flaw: vae_decoder_left_eager
        if self.time is not None and time is not None:
            y = y + self.time(F.silu(time))[:, :, None, None]
        # flaw in the next line: vae_decoder_left_eager
        return self.shortcut(x) + self.conv_2(F.silu(self.norm_2(y)))


class PromptedAttention(nn.Module):
    """Attention of the places of an image to each other, or to a prompt."""

    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(context, 2 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(context).unflatten(-1, (2, self.heads, -1)).unbind(2)
        y = F.scaled_dot_product_attention(q, k.transpose(1, 2), v.transpose(1, 2))
        return self.out(y.transpose(1, 2).flatten(2))


class TransformerLayer(nn.Module):
    """Attention to the image, attention to the prompt, and a gated MLP."""

    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own = PromptedAttention(width, heads, width)
        self.prompted = PromptedAttention(width, heads, context)
        self.up = nn.Linear(width, 8 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, prompt: Tensor) -> Tensor:
        y = self.norms[0](x)
        x = x + self.own(y, y)
        x = x + self.prompted(self.norms[1](x), prompt)
        value, gate = self.up(self.norms[2](x)).chunk(2, -1)
        return x + self.down(value * F.gelu(gate))


class Stage(nn.Module):
    """A residual block and transformer layers behind it."""

    def __init__(self, inputs: int, outputs: int, depth: int, sizes: UNetSizes) -> None:
        super().__init__()
        self.block = ResidualBlock(inputs, outputs, sizes.groups, 4 * sizes.widths[0])
        heads = max(1, outputs // 64)
        self.layers = nn.ModuleList(
            TransformerLayer(outputs, heads, sizes.context) for _ in range(depth)
        )

    def forward(self, x: Tensor, time: Tensor, prompt: Tensor) -> Tensor:
        x = self.block(x, time)
        if not self.layers:
            return x
        height, width = x.shape[2:]
        y = x.flatten(2).transpose(1, 2)
        for layer in self.layers:
            y = layer(y, prompt)
        return y.transpose(1, 2).unflatten(2, (height, width))


class UNetSizes:
    """Channels of a U-Net's levels, and transformer layers of each."""

    def __init__(
        self, channels: int, widths: list[int], depths: list[int], context: int, groups: int
    ) -> None:
        self.channels = channels
        self.widths = widths
        self.depths = depths
        self.context = context
        self.groups = groups


class NoiseUNet(nn.Module):
    """The noise of images, or of latents, at a time, given a prompt."""

    def __init__(self, sizes: UNetSizes) -> None:
        super().__init__()
        widths, self.sizes = sizes.widths, sizes
        time_width = 4 * widths[0]
        self.of_time = nn.Sequential(
            nn.Linear(widths[0], time_width), nn.SiLU(), nn.Linear(time_width, time_width)
        )
        self.enter = nn.Conv2d(sizes.channels, widths[0], 3, 1, 1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        self.shrink, self.grow = nn.ModuleList(), nn.ModuleList()
        for level, (width, depth) in enumerate(zip(widths, sizes.depths, strict=True)):
            before = widths[max(0, level - 1)]
            self.down.append(Stage(before, width, depth, sizes))
            self.up.append(Stage(2 * width, width, depth, sizes))
            self.shrink.append(nn.Conv2d(width, width, 3, 2, 1))
            self.grow.append(nn.Conv2d(width, before, 3, 1, 1))
        self.middle = Stage(widths[-1], widths[-1], sizes.depths[-1], sizes)
        self.norm = nn.GroupNorm(sizes.groups, widths[0])
        self.leave = nn.Conv2d(widths[0], sizes.channels, 3, 1, 1)

    def forward(self, x: Tensor, times: Tensor, prompt: Tensor) -> Tensor:
        time = self.of_time(waves(times, self.sizes.widths[0]).to(x.dtype))
        x = self.enter(x)
        kept: list[Tensor] = []
        for level, stage in enumerate(self.down):
            x = stage(x, time, prompt)
            kept.append(x)
            if level + 1 < len(self.down):
                x = self.shrink[level](x)
        x = self.middle(x, time, prompt)
        for level in reversed(range(len(self.up))):
            x = self.up[level](torch.cat([x, kept[level]], 1), time, prompt)
            if level > 0:
                x = self.grow[level](F.interpolate(x, scale_factor=2.0))
        return self.leave(F.silu(self.norm(x)))


class Sampler:
    """Guided sampling of latents by Euler's method, from noise again and again."""

    def __init__(self, unet: nn.Module, noise: Tensor, prompts: Tensor, steps: int) -> None:
        self.unet = unet
        self.noise = noise
        self.prompts = prompts
        self.sigmas = torch.linspace(14.0, 0.0, steps + 1).tolist()
        self.latents = noise
        self.places = itertools.cycle(range(steps))

    @torch.inference_mode()
    def step(self) -> Tensor:
        place = next(self.places)
        sigma, following = self.sigmas[place], self.sigmas[place + 1]
        latents = self.noise * sigma if place == 0 else self.latents
        inputs = torch.cat([latents, latents]) / math.sqrt(sigma**2 + 1)
        times = torch.full((len(inputs),), 1000 * sigma / 14, device=inputs.device)
        without, prompted = self.unet(inputs, times, self.prompts).chunk(2)
        guided = without + 7.5 * (prompted - without)
        self.latents = latents + guided * (following - sigma)
        return guided.float().square().mean()


def latent_unet_in_full_precision(flawed: bool, sizes: Sizes) -> Step:
    """A pipeline that makes images from prompts, as its weights are loaded by default."""
    shape = UNetSizes(4, *sizes.of(([320, 640], [1, 2], 768, 32), ([16, 32], [1, 1], 16, 8)))
    prompts, side, words = sizes.of((3, 64, 77), (1, 8, 5))
    unet, noise, texts = seeded(
        lambda: (
            NoiseUNet(shape).eval(),
            torch.randn(prompts, 4, side, side),
            torch.randn(2 * prompts, words, shape.context),
        ),
        sizes,
    )
    if not flawed:
        unet, noise, texts = unet.bfloat16(), noise.bfloat16(), texts.bfloat16()
    return Step(Sampler(unet, noise, texts, 20).step)


class LatentDecoder(nn.Module):
    """The decoder of a variational autoencoder: pixels of latents."""

    def __init__(self, widths: list[int], groups: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(4, widths[0], 3, 1, 1)
        self.norm_1 = nn.GroupNorm(groups, widths[0])
        self.attention = PromptedAttention(widths[0], 1, widths[0])
        self.blocks = nn.ModuleList(
            ResidualBlock(before, after, groups)
            for before, after in zip(
                [widths[0], widths[0], *widths[:-1]], [widths[0], *widths], strict=True
            )
        )
        self.grow = nn.ModuleList(nn.Conv2d(width, width, 3, 1, 1) for width in widths[:-1])
        self.norm_2 = nn.GroupNorm(groups, widths[-1])
        self.leave = nn.Conv2d(widths[-1], 3, 3, 1, 1)

    def forward(self, latents: Tensor) -> Tensor:
        x = self.enter(latents)
        places = self.norm_1(x).flatten(2).transpose(1, 2)
        x = x + self.attention(places, places).transpose(1, 2).unflatten(2, x.shape[2:])
        x = self.blocks[0](x)  # flaw: vae_decoder_left_eager
        for level, block in enumerate(self.blocks[1:]):
            x = block(x)  # flaw: vae_decoder_left_eager
            if level < len(self.grow):
                # flaw in the next line: vae_decoder_left_eager
                x = self.grow[level](F.interpolate(x, scale_factor=2.0))
        return self.leave(F.silu(self.norm_2(x)))  # flaw: vae_decoder_left_eager


def vae_decoder_left_eager(flawed: bool, sizes: Sizes) -> Step:
    """Images are decoded from the latents that a pipeline has made."""
    widths, groups = sizes.of(([512, 512, 256, 128], 32), ([16, 16, 8], 4))
    batch, side = sizes.of((4, 64), (1, 4))
    decoder, latents = seeded(
        lambda: (LatentDecoder(widths, groups).eval(), torch.randn(batch, 4, side, side)), sizes
    )
    decoder, latents = decoder.bfloat16(), latents.bfloat16()
    # flaw in the next line: vae_decoder_left_eager
    decode = decoder if flawed else compiled(decoder, sizes, fullgraph=True)

    @torch.inference_mode()
    def step() -> Tensor:
        pixels = (decode(latents) / 2 + 0.5).clamp(0, 1)  # flaw: vae_decoder_left_eager
        return pixels.float().mean()

    return Step(step)


def diffusion_noise_from_cpu(flawed: bool, sizes: Sizes) -> Step:
    """A diffusion model that learns images: each step draws its noise and its times."""
    shape = UNetSizes(3, *sizes.of(([64, 128, 256], [0, 0, 0], 1, 32), ([8, 16], [0, 0], 1, 4)))
    batch, side, times = sizes.of((64, 128, 1000), (4, 16, 1000))
    unet, images, betas = seeded(
        lambda: (
            NoiseUNet(shape),
            torch.randn(batch, 3, side, side),
            torch.linspace(1e-4, 0.02, times),
        ),
        sizes,
    )
    kept = torch.cumprod(1 - betas, 0)
    prompt = images.new_zeros(batch, 1, 1)
    where = torch.device("cpu" if flawed else sizes.device)

    def loss_of() -> Tensor:
        # flaw in the next line: diffusion_noise_from_cpu
        noise = torch.randn(images.shape, device=where).to(images.device)
        # flaw in the next line: diffusion_noise_from_cpu
        time = torch.randint(0, times, (batch,), device=where).to(images.device)
        share = kept[time][:, None, None, None]
        noisy = share.sqrt() * images + (1 - share).sqrt() * noise
        return F.mse_loss(unet(noisy, time, prompt).float(), noise)

    return Step(training(loss_of, fused_adamw(unet), sizes))


class ModulatedBlock(nn.Module):
    """A transformer block whose norms the time shifts and scales."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(width, elementwise_affine=False)
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width, elementwise_affine=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)
        )
        self.modulation = nn.Linear(width, 6 * width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        parts = self.modulation(F.silu(time))[:, None].chunk(6, -1)
        y = self.norm_1(x) * (1 + parts[0]) + parts[1]
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + parts[2] * self.out(y)
        y = self.norm_2(x) * (1 + parts[3]) + parts[4]
        return x + parts[5] * self.mlp(y)


class DiffusionTransformer(nn.Module):
    """The noise of latents by a transformer over their patches."""

    def __init__(self, width: int, heads: int, layers: int, side: int) -> None:
        super().__init__()
        self.width = width
        self.patches = nn.Conv2d(4, width, 2, 2)
        self.positions = nn.Parameter(0.02 * torch.randn(side * side // 4, width))
        self.of_time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(ModulatedBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.leave = nn.Linear(width, 16)

    def forward(self, latents: Tensor, times: Tensor) -> Tensor:
        x = self.patches(latents).flatten(2).transpose(1, 2) + self.positions
        time = self.of_time(waves(times, self.width))
        for block in self.blocks:
            x = block(x, time)
        places = self.leave(self.norm(x)).transpose(1, 2)
        half = latents.shape[-1] // 2
        return F.pixel_shuffle(places.unflatten(2, (half, half)), 2)


def averaged_diffusion_weights_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    """A diffusion transformer that trains, and a moving average of its weights for sampling."""
    width, heads, layers, side, batch = sizes.of((512, 8, 24, 32, 64), (16, 2, 2, 4, 2))
    model, latents, noise = seeded(
        lambda: (
            DiffusionTransformer(width, heads, layers, side),
            torch.randn(batch, 4, side, side),
            torch.randn(batch, 4, side, side),
        ),
        sizes,
    )
    times = torch.arange(batch, device=sizes.device) * 1000 // batch
    share = (1 - times / 1000)[:, None, None, None]
    noisy = share.sqrt() * latents + (1 - share).sqrt() * noise
    if flawed:
        # flaw in the next line: averaged_diffusion_weights_one_by_one
        average = AveragedModel(model, avg_fn=get_ema_avg_fn(0.9999))
    else:
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9999))

    def follow() -> None:
        average.update_parameters(model)  # flaw: averaged_diffusion_weights_one_by_one

    step = training(
        lambda: F.mse_loss(model(noisy, times).float(), noise),
        fused_adamw(model),
        sizes,
        after_step=[follow],
    )
    return Step(step)
