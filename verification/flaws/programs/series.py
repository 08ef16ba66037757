"""Flaws of models of sounds, series and spikes, which go on in time."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .control import captured
from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "codebooks_launched",
    "correlation_over_all_lags",
    "phases_summed_in_columns",
    "spikes_step_by_step",
]


def phases_in_columns(pitch: Tensor, rate: int) -> Tensor:
    """The phase of a tone of changing pitch (batch, samples, 1)."""
    # flaw in the next line: phases_summed_in_columns
    return torch.cumsum(2 * math.pi * pitch / rate, 1)


def phases_in_rows(pitch: Tensor, rate: int) -> Tensor:
    """The same, summed along the last dimension."""
    return torch.cumsum(2 * math.pi * pitch.squeeze(2) / rate, 1)[..., None]


class Synthesizer(nn.Module):
    """Frames of pitch and loudness to a sum of harmonic tones, as DDSP makes it."""

    def __init__(self, width: int, harmonics: int, hop: int, in_columns: bool) -> None:
        super().__init__()
        self.harmonics, self.hop = harmonics, hop
        self.phases = phases_in_columns if in_columns else phases_in_rows
        self.into = nn.Linear(2, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.body = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.LeakyReLU())
        self.amplitudes, self.bend = nn.Linear(width, harmonics), nn.Linear(width, 1)

    def enlarged(self, x: Tensor) -> Tensor:
        """Frames as samples."""
        return F.interpolate(x.transpose(1, 2), scale_factor=float(self.hop)).transpose(1, 2)

    def forward(self, pitch: Tensor, loudness: Tensor) -> Tensor:
        x = self.into(torch.cat((pitch / 440, loudness), 2))
        x = self.body(self.gru(x)[0])
        bent = pitch * (1 + 0.01 * self.bend(x).tanh())
        amplitudes = self.amplitudes(x).softmax(2) * loudness
        phases = self.phases(self.enlarged(bent), 16000)  # flaw: phases_summed_in_columns
        numbers = torch.arange(1, self.harmonics + 1, device=x.device)
        return (torch.sin(phases * numbers) * self.enlarged(amplitudes)).sum(2)


def phases_summed_in_columns(flawed: bool, sizes: Sizes) -> Step:
    width, harmonics, hop, batch, frames = sizes.of((512, 32, 160, 8, 400), (8, 3, 4, 2, 6))
    model = seeded(lambda: Synthesizer(width, harmonics, hop, flawed), sizes)
    pitch, loudness, sound = seeded(
        lambda: (
            torch.rand(batch, frames, 1) * 200 + 80,
            torch.rand(batch, frames, 1),
            torch.randn(batch, frames * hop) * 0.1,
        ),
        sizes,
    )
    run = training(
        lambda: F.l1_loss(model(pitch, loudness), sound), fused_adamw(model), sizes, is_mixed=False
    )
    return Step(run)


def correlated_by_fft(queries: Tensor, keys: Tensor) -> Tensor:
    """The correlation of all pairs of series (batch, series, moments), averaged over lags."""
    left = torch.fft.rfft(queries.float())[:, :, None]
    right = torch.fft.rfft(keys.float())[:, None].conj()
    lags = torch.fft.irfft(left * right, n=queries.shape[2])  # flaw: correlation_over_all_lags
    return lags.mean(3)  # flaw: correlation_over_all_lags


def correlated(queries: Tensor, keys: Tensor) -> Tensor:
    """The same, which is the product of both sums."""
    left, right = queries.float().sum(2), keys.float().sum(2)
    return left[:, :, None] * right[:, None] / queries.shape[2]


class SeriesBlock(nn.Module):
    """Series that attend to each other by their correlation, and an MLP."""

    def __init__(self, width: int, by_fft: bool) -> None:
        super().__init__()
        self.correlation = correlated_by_fft if by_fft else correlated
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).chunk(3, -1)
        shares = self.correlation(q, k).softmax(2)  # flaw: correlation_over_all_lags
        x = x + self.out(shares.to(v.dtype) @ v)
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def correlation_over_all_lags(flawed: bool, sizes: Sizes) -> Step:
    batch, count, past, width, depth = sizes.of((32, 128, 336, 256, 3), (2, 3, 6, 8, 2))
    ahead = sizes.of(96, 3)

    def make() -> nn.Sequential:
        blocks = (SeriesBlock(width, flawed) for _ in range(depth))
        return nn.Sequential(nn.Linear(past, width), *blocks, nn.Linear(width, ahead))

    model = seeded(make, sizes)
    series, truth = seeded(
        lambda: (torch.randn(batch, count, past), torch.randn(batch, count, ahead)), sizes
    )
    return Step(
        training(lambda: F.mse_loss(model(series).float(), truth), fused_adamw(model), sizes)
    )


class CodeBlock(nn.Module):
    """A block of the small decoder that goes from codebook to codebook."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, cache: Tensor, at: int) -> Tensor:
        # flaw in the next line: codebooks_launched
        qkv = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = (each.transpose(1, 2) for each in qkv.unbind(2))
        # flaw in the next line: codebooks_launched
        cache[0, :, :, at : at + 1], cache[1, :, :, at : at + 1] = k, v
        # flaw in the next line: codebooks_launched
        seen = F.scaled_dot_product_attention(q, *cache[:, :, :, : at + 1])
        x = x + self.out(seen.transpose(1, 2).flatten(2))  # flaw: codebooks_launched
        return x + self.down(F.silu(self.up(self.norm_2(x))))  # flaw: codebooks_launched


class CodePredictor(nn.Module):
    """The codes of a frame of sound, one from the other."""

    def __init__(self, width: int, heads: int, depth: int, books: int, codes: int) -> None:
        super().__init__()
        self.books = books
        self.blocks = nn.ModuleList(CodeBlock(width, heads) for _ in range(depth))
        self.codes = nn.Embedding(books * codes, width)
        self.heads = nn.ModuleList(nn.Linear(width, codes) for _ in range(books))

    def forward(self, hidden: Tensor, cache: Tensor) -> Tensor:
        x, best = hidden, []
        for at in range(self.books):
            for block, own in zip(self.blocks, cache, strict=True):
                x = block(x, own, at)  # flaw: codebooks_launched
            scores = self.heads[at](x[:, -1])  # flaw: codebooks_launched
            code = scores.argmax(1, keepdim=True)  # flaw: codebooks_launched
            best.append(scores.float().amax(1))  # flaw: codebooks_launched
            x = self.codes(code + at * scores.shape[1])  # flaw: codebooks_launched
        return torch.stack(best).mean()


def codebooks_launched(flawed: bool, sizes: Sizes) -> Step:
    width, heads, depth, books, codes = sizes.of((1024, 16, 4, 16, 1024), (8, 2, 2, 3, 5))
    model = seeded(lambda: CodePredictor(width, heads, depth, books, codes), sizes)
    model = model.eval().bfloat16()
    hidden = seeded(lambda: torch.randn(1, 1, width), sizes).bfloat16()
    shape = (depth, 2, 1, heads, books, width // heads)
    cache = torch.zeros(shape, device=sizes.device, dtype=torch.bfloat16)

    @torch.no_grad()
    def step() -> Tensor:
        return model(hidden, cache)  # flaw: codebooks_launched

    if flawed or sizes.device == "cpu":
        return Step(step)
    return Step(captured(step))


class Spike(torch.autograd.Function):
    """One where a potential is above zero; its slope is taken to be that of a sigmoid."""

    @staticmethod
    def forward(ctx: Any, potential: Tensor) -> Tensor:
        ctx.save_for_backward(potential)
        return (potential >= 0).to(potential.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (potential,) = ctx.saved_tensors
        share = torch.sigmoid(4 * potential)
        return grad * 4 * share * (1 - share)


def fired(potential: Tensor, current: Tensor) -> tuple[Tensor, Tensor]:
    """The potential of leaky neurons after this moment, and their spikes."""
    potential = potential.lerp(current, 0.5)
    spikes = Spike.apply(potential - 0.5)
    return potential * (1 - spikes.detach()), spikes


class SpikingNet(nn.Module):
    """Convolutions between layers of spiking neurons."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, width, 4, 4)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        for conv in self.convs:
            nn.init.kaiming_normal_(conv.weight)
        self.head = nn.Linear(width, 10)

    def moment_by_moment(self, events: Tensor) -> Tensor:
        """Scores from events (moments, batch, 2, height, width): all layers in each moment."""
        states: list[Tensor | float] = [0.0] * (len(self.convs) + 1)
        total = []
        for event in events:
            x = event
            for at, conv in enumerate((self.stem, *self.convs)):
                current = conv(x)  # flaw: spikes_step_by_step
                state = states[at]
                before = torch.zeros_like(current) if isinstance(state, float) else state
                states[at], x = fired(before, current)
            total.append(self.head(x.mean((2, 3))))  # flaw: spikes_step_by_step
        return torch.stack(total).mean(0)

    def layer_by_layer(self, events: Tensor) -> Tensor:
        """The same: all moments in each layer, as only neurons have a state."""
        x = events
        for conv in (self.stem, *self.convs):
            currents = conv(x.flatten(0, 1)).unflatten(0, events.shape[:2])
            state, spikes = torch.zeros_like(currents[0]), []
            for current in currents:
                state, fires = fired(state, current)
                spikes.append(fires)
            x = torch.stack(spikes)
        return self.head(x.mean((3, 4))).mean(0)


def spikes_step_by_step(flawed: bool, sizes: Sizes) -> Step:
    width, depth, moments, batch, side = sizes.of((128, 6, 16, 8, 128), (4, 1, 3, 2, 8))
    model = seeded(lambda: SpikingNet(width, depth), sizes)
    events = seeded(lambda: (torch.rand(moments, batch, 2, side, side) < 0.2).float() * 4, sizes)
    labels = torch.arange(batch, device=sizes.device) % 10
    run = model.moment_by_moment if flawed else model.layer_by_layer

    def loss() -> Tensor:
        return F.cross_entropy(run(events), labels)  # flaw: spikes_step_by_step

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))
