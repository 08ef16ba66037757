"""Flaws of policies and diffusion transformers, and of networks that listen to speakers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .control import captured
from .gpt import Config
from .language import EncoderBlock
from .program import Sizes, Step, compiled, fused_adamw, seeded, training

__all__ = [
    "actions_denoised_eagerly",
    "chunks_repeated_per_speaker",
    "losses_as_numbers",
    "query_norms_by_hand",
    "segments_embedded_one_by_one",
]


class ChunkingPolicy(nn.Module):
    """Chunks of actions from what is seen, and their losses; a latent says how they are done."""

    def __init__(self, config: Config, seen: int, acts: int, as_numbers: bool) -> None:
        super().__init__()
        self.as_numbers = as_numbers
        self.seen, self.acts = nn.Linear(seen, config.width), nn.Linear(acts, config.width)
        self.latent = nn.Linear(config.width, 2 * config.width)
        self.blocks = nn.Sequential(*(EncoderBlock(config) for _ in range(config.layers)))
        self.out = nn.Linear(config.width, acts)

    def forward(self, seen: Tensor, acts: Tensor) -> tuple[Tensor, dict[str, Tensor | float]]:
        mean, spread = self.latent(self.acts(acts).mean(1)).chunk(2, 1)
        x = torch.cat((mean[:, None], self.seen(seen)), 1)  # flaw: losses_as_numbers
        x = self.blocks(x)[:, -acts.shape[1] :]  # flaw: losses_as_numbers
        apart = (self.out(x).float() - acts).abs().mean()  # flaw: losses_as_numbers
        parts: dict[str, Tensor | float] = {}
        # flaw in the next line: losses_as_numbers
        parts["l1"] = apart.item() if self.as_numbers else apart.detach()
        mean, spread = mean.float(), spread.float()  # flaw: losses_as_numbers
        divergence = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(1).mean()
        # flaw in the next line: losses_as_numbers
        parts["divergence"] = divergence.item() if self.as_numbers else divergence.detach()
        return apart + 0.01 * divergence, parts  # flaw: losses_as_numbers


def losses_as_numbers(flawed: bool, sizes: Sizes) -> Step:
    large = Config(layers=2, width=512, heads=8, mlp_width=2048)
    config = sizes.of(large, Config(layers=2, width=16, heads=2, mlp_width=32))
    batch, tokens, chunk, width = sizes.of((8, 303, 100, 512), (2, 6, 3, 4))
    acts = sizes.of(14, 2)
    policy = seeded(lambda: ChunkingPolicy(config, width, acts, flawed), sizes)
    seen, wanted = seeded(
        lambda: (torch.randn(batch, tokens, width), torch.randn(batch, chunk, acts)), sizes
    )
    run, logged = compiled(policy, sizes), {}

    def loss() -> Tensor:
        total, parts = run(seen, wanted)  # flaw: losses_as_numbers
        logged.update(parts)
        return total

    return Step(training(loss, fused_adamw(policy), sizes))


class ExpertBlock(nn.Module):
    """Actions see each other, and the keys and values of what the robot saw."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        y = self.qkv(self.norm_1(x))  # flaw: actions_denoised_eagerly
        q, k, v = y.unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        k, v = torch.cat((keys, k), 2), torch.cat((values, v), 2)  # flaw: actions_denoised_eagerly
        y = F.scaled_dot_product_attention(q, k, v)  # flaw: actions_denoised_eagerly
        x = x + self.out(y.transpose(1, 2).flatten(2))  # flaw: actions_denoised_eagerly
        y = F.gelu(self.up(self.norm_2(x)))  # flaw: actions_denoised_eagerly
        return x + self.down(y)  # flaw: actions_denoised_eagerly


class ActionExpert(nn.Module):
    """The velocity of noisy actions towards good ones."""

    def __init__(self, acts: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.into, self.time = nn.Linear(acts, width), nn.Linear(1, width)
        self.blocks = nn.ModuleList(ExpertBlock(width, heads) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, acts)

    def forward(self, noisy: Tensor, time: Tensor, seen: Tensor) -> Tensor:
        x = self.into(noisy) + self.time(time)  # flaw: actions_denoised_eagerly
        for block, (keys, values) in zip(self.blocks, seen, strict=True):
            x = block(x, keys, values)  # flaw: actions_denoised_eagerly
        return self.out(self.norm(x))  # flaw: actions_denoised_eagerly


def actions_denoised_eagerly(flawed: bool, sizes: Sizes) -> Step:
    acts, chunk, width, heads, layers = sizes.of((14, 32, 1024, 16, 12), (2, 3, 8, 2, 2))
    seen_tokens, turns = sizes.of((392, 10), (5, 2))
    expert = seeded(lambda: ActionExpert(acts, width, heads, layers), sizes).eval().bfloat16()
    noise, seen = seeded(
        lambda: (
            torch.randn(1, chunk, acts),
            torch.randn(layers, 2, 1, heads, seen_tokens, width // heads),
        ),
        sizes,
    )
    noise, seen = noise.bfloat16(), seen.bfloat16()
    times = torch.linspace(0, 1, turns, device=sizes.device)[:, None].bfloat16()

    @torch.no_grad()
    def denoise() -> Tensor:
        actions = noise
        for time in times:
            # flaw in the next line: actions_denoised_eagerly
            actions = actions + expert(actions, time, seen) / turns
        return actions.float().abs().mean()

    return Step(denoise if flawed or sizes.is_tiny else captured(denoise))


class RootMeanSquare(nn.Module):
    """A norm in float32, written out."""

    def __init__(self, width: int, by_hand: bool) -> None:
        super().__init__()
        self.by_hand, self.weight = by_hand, nn.Parameter(torch.ones(width))

    def normalized(self, x: Tensor) -> Tensor:
        # flaw in the next line: query_norms_by_hand
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    def forward(self, x: Tensor) -> Tensor:
        if not self.by_hand:
            return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)
        # flaw in the next line: query_norms_by_hand
        return self.normalized(x.float()).type_as(x) * self.weight


class VideoBlock(nn.Module):
    """A block of a diffusion transformer for videos, which normalizes queries and keys."""

    def __init__(self, width: int, heads: int, by_hand: bool) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.norm_q, self.norm_k = (RootMeanSquare(width, by_hand) for _ in range(2))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm_1(x)
        q = self.norm_q(self.q(y))  # flaw: query_norms_by_hand
        k = self.norm_k(self.k(y))  # flaw: query_norms_by_hand
        q, k, v = (
            each.unflatten(2, (self.heads, -1)).transpose(1, 2) for each in (q, k, self.v(y))
        )
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


def query_norms_by_hand(flawed: bool, sizes: Sizes) -> Step:
    batch, tokens, width, heads, layers = sizes.of((4, 1560, 1536, 12, 6), (2, 6, 16, 2, 2))
    model = seeded(
        lambda: nn.Sequential(*(VideoBlock(width, heads, flawed) for _ in range(layers))), sizes
    )
    model = model.bfloat16()
    noisy, wanted = seeded(lambda: torch.randn(2, batch, tokens, width), sizes).bfloat16()

    def loss() -> Tensor:
        found = model(noisy)  # flaw: query_norms_by_hand
        return F.mse_loss(found.float(), wanted.float())

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class FrameNetwork(nn.Module):
    """Features of the frames of a spectrum."""

    def __init__(self, width: int, depths: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.downs, self.stages = nn.ModuleList(), nn.ModuleList()
        for at, depth in enumerate(depths):
            inner, before = width << at, width << max(at - 1, 0)
            self.downs.append(nn.Conv2d(before, inner, 3, 2 if at else 1, 1))
            self.stages.append(
                nn.ModuleList(nn.Conv2d(inner, inner, 3, padding=1) for _ in range(depth))
            )

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x[:, None]))  # flaw: chunks_repeated_per_speaker
        for down, stage in zip(self.downs, self.stages, strict=True):
            x = F.relu(down(x))  # flaw: chunks_repeated_per_speaker
            for conv in stage:
                x = x + F.relu(conv(x))  # flaw: chunks_repeated_per_speaker
        return x.flatten(1, 2)


class SpeakerNetwork(nn.Module):
    """A vector of a speaker, from the frames in which a mask says that he talks."""

    def __init__(self, width: int, depths: tuple[int, ...], bands: int, out: int) -> None:
        super().__init__()
        self.frames = FrameNetwork(width, depths)
        last = len(depths) - 1
        self.out = nn.Linear(2 * (width << last) * (bands >> last), out)

    def pooled(self, frames: Tensor, masks: Tensor) -> Tensor:
        """Means and deviations of frames (n, width, t) by masks (n, speakers, t)."""
        weights = masks / (masks.sum(2, keepdim=True) + 1e-4)
        means = weights @ frames.mT
        squares = weights @ frames.square().mT
        spread = (squares - means.square()).clamp(min=1e-4).sqrt()
        return self.out(torch.cat((means, spread), 2))


def chunks_repeated_per_speaker(flawed: bool, sizes: Sizes) -> Step:
    chunks, speakers, bands, moments = sizes.of((16, 3, 80, 400), (2, 3, 8, 16))
    width, depths, out = sizes.of((32, (3, 4, 6, 3), 256), (4, (1, 1), 8))
    model = seeded(lambda: SpeakerNetwork(width, depths, bands, out), sizes).eval().bfloat16()
    model = model.to(memory_format=torch.channels_last)
    spectra, masks = seeded(
        lambda: (
            torch.randn(chunks, bands, moments),
            (torch.rand(chunks, speakers, moments >> (len(depths) - 1)) < 0.4).float(),
        ),
        sizes,
    )
    spectra, masks = spectra.bfloat16(), masks.bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        if flawed:
            repeated = spectra.repeat_interleave(speakers, 0)  # flaw: chunks_repeated_per_speaker
            frames = model.frames(repeated)  # flaw: chunks_repeated_per_speaker
            vectors = model.pooled(frames, masks.flatten(0, 1)[:, None])
        else:
            vectors = model.pooled(model.frames(spectra), masks)
        return F.normalize(vectors.float(), dim=-1).abs().mean()

    return Step(step)


class TimeDelayLayer(nn.Module):
    """A dilated convolution, which a mean over time gates, and whose result is concatenated."""

    def __init__(self, inputs: int, growth: int, dilation: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(inputs)
        self.squeeze = nn.Conv1d(inputs, 4 * growth, 1)
        self.conv = nn.Conv1d(4 * growth, growth, 3, padding=dilation, dilation=dilation)
        self.gate = nn.Conv1d(4 * growth, growth, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(x))  # flaw: segments_embedded_one_by_one
        y = F.relu(self.squeeze(y))  # flaw: segments_embedded_one_by_one
        mean = y.mean(2, keepdim=True)  # flaw: segments_embedded_one_by_one
        gate = self.gate(mean).sigmoid()  # flaw: segments_embedded_one_by_one
        y = self.conv(y) * gate  # flaw: segments_embedded_one_by_one
        return torch.cat((x, y), 1)  # flaw: segments_embedded_one_by_one


class TimeDelayNetwork(nn.Module):
    """A vector of who speaks in a segment."""

    def __init__(self, bands: int, width: int, growth: int, layers: int, out: int) -> None:
        super().__init__()
        self.stem = nn.Conv1d(bands, width, 5, 2, 2)
        self.layers = nn.Sequential(
            *(TimeDelayLayer(width + at * growth, growth, 1 + at % 2) for at in range(layers))
        )
        self.out = nn.Linear(2 * (width + layers * growth), out)

    def forward(self, spectrum: Tensor) -> Tensor:
        x = F.relu(self.stem(spectrum))  # flaw: segments_embedded_one_by_one
        x = self.layers(x).float()  # flaw: segments_embedded_one_by_one
        # flaw in the next line: segments_embedded_one_by_one
        x = torch.cat((x.mean(2), x.std(2)), 1).to(spectrum.dtype)
        return self.out(x)  # flaw: segments_embedded_one_by_one


def segments_embedded_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    segments, bands, moments, width = sizes.of((32, 80, 150, 128), (3, 8, 10, 8))
    growth, layers, out = sizes.of((32, 16, 192), (4, 2, 8))
    model = seeded(lambda: TimeDelayNetwork(bands, width, growth, layers, out), sizes)
    model = model.eval().bfloat16()
    spectra = seeded(lambda: torch.randn(segments, bands, moments), sizes).bfloat16()
    pieces = list(spectra)

    @torch.inference_mode()
    def step() -> Tensor:
        if flawed:
            found = [model(piece[None]) for piece in pieces]  # flaw: segments_embedded_one_by_one
            vectors = torch.cat(found)  # flaw: segments_embedded_one_by_one
        else:
            vectors = model(torch.stack(pieces))
        return F.normalize(vectors.float(), dim=1).abs().mean()

    return Step(step)
