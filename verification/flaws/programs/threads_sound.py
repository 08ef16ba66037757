"""A vocoder, a transducer, an acoustic encoder and a mixer of long sequences, as in threads."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from .program import Sizes, Step, autocast, compiled, fused_adamw, seeded, training

__all__ = [
    "hifigan_without_autocast",
    "linear_attention_short_conv",
    "specaugment_mask_value_item",
    "transducer_cell_by_cell",
]


class Residual(nn.Module):
    """Dilated convolutions of one kernel size."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.pairs = nn.ModuleList(
            nn.ModuleList(
                weight_norm(
                    nn.Conv1d(width, width, kernel, dilation=step, padding=kernel // 2 * step)
                )
                for step in (dilation, 1)
            )
            for dilation in (1, 3, 5)
        )

    def forward(self, x: Tensor) -> Tensor:
        for first, second in self.pairs:
            x = x + second(F.leaky_relu(first(F.leaky_relu(x, 0.1)), 0.1))
        return x


class Vocoder(nn.Module):
    """A HiFi-GAN generator."""

    def __init__(self, mels: int, width: int) -> None:
        super().__init__()
        self.first = weight_norm(nn.Conv1d(mels, width, 7, padding=3))
        self.ups, self.residuals = nn.ModuleList(), nn.ModuleList()
        for stage, rate in enumerate((8, 8, 2, 2)):
            into = width >> (stage + 1)
            up = nn.ConvTranspose1d(2 * into, into, 2 * rate, rate, padding=rate // 2)
            self.ups.append(weight_norm(up))
            self.residuals.append(nn.ModuleList(Residual(into, kernel) for kernel in (3, 7, 11)))
        self.last = weight_norm(nn.Conv1d(width >> 4, 1, 7, padding=3))

    def forward(self, mel: Tensor) -> Tensor:
        x = self.first(mel)
        for up, residuals in zip(self.ups, self.residuals, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            x = sum(residual(x) for residual in residuals) / len(residuals)
        return torch.tanh(self.last(F.leaky_relu(x)))


class PeriodJudge(nn.Module):
    """A discriminator of a waveform that is folded by a period."""

    def __init__(self, period: int, width: int) -> None:
        super().__init__()
        self.period = period
        widths = (1, width, 4 * width, 16 * width, 32 * width)
        self.layers = nn.ModuleList(
            weight_norm(nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0))) for a, b in pairwise(widths)
        )
        self.last = weight_norm(nn.Conv2d(widths[-1], 1, (3, 1), padding=(1, 0)))

    def forward(self, wave: Tensor) -> list[Tensor]:
        missing = -wave.shape[-1] % self.period
        x = F.pad(wave, (0, missing), "reflect").unflatten(-1, (-1, self.period))
        features = []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
            features.append(x)
        return [*features, self.last(x)]


def mel_of(wave: Tensor, window: Tensor, filters: Tensor) -> Tensor:
    """The logarithm of the mel spectrum, in float32."""
    with torch.autocast(wave.device.type, enabled=False):
        size = window.shape[0]
        spectrum = torch.stft(
            wave.float().squeeze(1), size, 256, window=window, return_complex=True
        ).abs()
        return (filters @ spectrum).clamp(min=1e-5).log()[..., :-1]


def hifigan_without_autocast(flawed: bool, sizes: Sizes) -> Step:
    mels, samples = 80, sizes.of(8192, 2048)
    model = seeded(lambda: Vocoder(mels, sizes.of(512, 32)), sizes)
    judges = seeded(
        lambda: nn.ModuleList(PeriodJudge(p, sizes.of(32, 2)) for p in (2, 3, 5, 7, 11)), sizes
    )
    window = torch.hann_window(1024, device=sizes.device)
    filters = seeded(lambda: torch.rand(mels, 513) / 100, sizes)
    wave = seeded(lambda: torch.rand(sizes.of(16, 2), 1, samples) * 2 - 1, sizes)
    mel = mel_of(wave, window, filters)
    of_model, of_judges = fused_adamw(model), fused_adamw(judges)
    mixed = nullcontext if flawed else partial(autocast, sizes)

    def step() -> Tensor:
        with mixed():
            made = model(mel)  # flaw: hifigan_without_autocast
            both = torch.cat([wave, made.detach().float()])
            # flaw in the next line: hifigan_without_autocast
            halves = [judge(both)[-1].chunk(2) for judge in judges]
            judged = sum(((1 - a) ** 2).mean() + (b**2).mean() for a, b in halves)
        of_judges.zero_grad(set_to_none=True)
        judged.backward()
        of_judges.step()
        with mixed():
            # flaw in the next line: hifigan_without_autocast
            features = [judge(torch.cat([wave, made.float()])) for judge in judges]
            loss = 45 * F.l1_loss(mel_of(made, window, filters), mel)
            for *inner, last in features:
                loss = loss + ((1 - last.chunk(2)[1]) ** 2).mean()
                pairs = (layer.chunk(2) for layer in inner)
                loss = loss + 2 * sum(F.l1_loss(b, a.detach()) for a, b in pairs)
        of_model.zero_grad(set_to_none=True)
        loss.backward()
        of_model.step()
        return loss.detach()

    return Step(step)


def shifted_sum(x: Tensor, weight: Tensor) -> Tensor:
    """A causal depthwise convolution of (batch, tokens, channels) by a few shifted products."""
    taps, tokens = weight.shape[-1], x.shape[1]
    padded = F.pad(x, (0, 0, taps - 1, 0)).float()
    kernel = weight.squeeze(1)
    total = sum(padded[:, tap : tap + tokens] * kernel[:, tap] for tap in range(taps))
    return F.silu(total).to(x.dtype)


class Mixer(nn.Module):
    """Attention whose queries, keys and values pass a short causal convolution."""

    def __init__(self, width: int, heads: int, convolve: Any) -> None:
        super().__init__()
        self.heads, self.convolve = heads, convolve
        self.norm = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.short = nn.Conv1d(3 * width, 3 * width, 4, groups=3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm_2 = nn.RMSNorm(width)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(self.norm(x))
        if self.convolve is None:
            # flaw in the next line: linear_attention_short_conv
            qkv = F.silu(self.short(F.pad(qkv.transpose(1, 2), (3, 0)))).transpose(1, 2)
        else:
            qkv = self.convolve(qkv, self.short.weight)
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in qkv.chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def linear_attention_short_conv(flawed: bool, sizes: Sizes) -> Step:
    width, tokens = sizes.of(2048, 32), sizes.of(8192, 16)
    convolve = None if flawed else compiled(shifted_sum, sizes)
    layers = sizes.of(4, 2)
    model = seeded(
        lambda: nn.Sequential(*(Mixer(width, sizes.of(16, 2), convolve) for _ in range(layers))),
        sizes,
    )
    x, target = seeded(lambda: torch.randn(2, 1, tokens, width), sizes)
    optimizer = fused_adamw(model)
    return Step(training(lambda: F.mse_loss(model(x).float(), target), optimizer, sizes))


class Transducer(nn.Module):
    """An encoder of frames, a predictor of tokens, and their joint logits."""

    def __init__(self, mels: int, width: int, tokens: int) -> None:
        super().__init__()
        self.encoder = nn.LSTM(mels, width, 3, batch_first=True)
        self.embedding = nn.Embedding(tokens, width)
        self.predictor = nn.LSTM(width, width, 1, batch_first=True)
        self.joiner = nn.Linear(width, tokens)

    def forward(self, frames: Tensor, tokens: Tensor) -> Tensor:
        heard, _ = self.encoder(frames)
        said, _ = self.predictor(F.pad(self.embedding(tokens), (0, 0, 1, 0)))
        joint = self.joiner(torch.tanh(heard[:, :, None] + said[:, None]))
        return joint.float().log_softmax(-1)


def likelihood_of_cells(blank: Tensor, emit: Tensor) -> Tensor:
    """The likelihood of all alignments, by one sum for each frame and token."""
    frames, states = blank.shape[1:]
    previous: list[Tensor] = []
    for t in range(frames):
        row: list[Tensor] = []
        for u in range(states):  # flaw: transducer_cell_by_cell
            arrivals = []
            if t > 0:
                arrivals.append(previous[u] + blank[:, t - 1, u])  # flaw: transducer_cell_by_cell
            if u > 0:
                arrivals.append(row[u - 1] + emit[:, t, u - 1])  # flaw: transducer_cell_by_cell
            if len(arrivals) == 2:
                row.append(torch.logaddexp(*arrivals))  # flaw: transducer_cell_by_cell
            else:
                row.append(arrivals[0] if arrivals else torch.zeros_like(blank[:, 0, 0]))
        previous = row
    return previous[-1] + blank[:, -1, -1]


def likelihood_of_rows(blank: Tensor, emit: Tensor) -> Tensor:
    """The same by one cumulative sum for each frame."""
    said = F.pad(emit.cumsum(-1), (1, 0))
    row = said[:, 0]
    for stay, sums in zip(blank.unbind(1), said[:, 1:].unbind(1), strict=False):
        row = sums + torch.logcumsumexp(row + stay - sums, -1)
    return row[:, -1] + blank[:, -1, -1]


def transducer_cell_by_cell(flawed: bool, sizes: Sizes) -> Step:
    vocabulary, mels, batch = sizes.of(512, 20), 80, sizes.of(32, 2)
    model = seeded(lambda: Transducer(mels, sizes.of(640, 16), vocabulary), sizes)
    frames = seeded(lambda: torch.randn(batch, sizes.of(40, 5), mels), sizes)
    tokens = seeded(lambda: torch.randint(1, vocabulary, (batch, sizes.of(10, 3))), sizes)
    likelihood = likelihood_of_cells if flawed else likelihood_of_rows

    def loss_of() -> Tensor:
        scores = model(frames, tokens)
        chosen = tokens[:, None, :, None].expand(-1, frames.shape[1], -1, -1)
        emit = scores[:, :, :-1].gather(-1, chosen).squeeze(-1)
        return -likelihood(scores[..., 0], emit).mean()  # flaw: transducer_cell_by_cell

    return Step(training(loss_of, fused_adamw(model), sizes))


class Acoustic(nn.Module):
    """Frames, of which four make one, through a transformer to scores of senones."""

    def __init__(self, mels: int, width: int, layers: int, senones: int) -> None:
        super().__init__()
        self.first = nn.Linear(4 * mels, width)
        layer = partial(nn.TransformerEncoderLayer, width, max(1, width // 64), 4 * width, 0.0)
        self.layers = nn.ModuleList(
            layer(activation="gelu", batch_first=True, norm_first=True) for _ in range(layers)
        )
        self.last = nn.Linear(width, senones)

    def forward(self, features: Tensor) -> Tensor:
        x = self.first(features.transpose(1, 2).unflatten(1, (-1, 4)).flatten(2))
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def masked_along(features: Tensor, value: Any, limit: int, axis: int, chance: Any) -> Tensor:
    """Features with one span of each utterance masked, the spans drawn independently."""
    count, length = features.shape[0], features.shape[axis]
    spans, starts = torch.rand(2, count, 1, 1, device=features.device, generator=chance)
    begin = starts * (length - limit)
    place = torch.arange(length, device=features.device).view(
        [1, -1, 1] if axis == 1 else [1, 1, -1]
    )
    return torch.where((place >= begin) & (place < begin + spans * limit), value, features)


def specaugment_mask_value_item(flawed: bool, sizes: Sizes) -> Step:
    mels, frames, batch = 80, sizes.of(800, 32), sizes.of(64, 2)
    senones = sizes.of(4000, 16)
    model = seeded(lambda: Acoustic(mels, sizes.of(512, 32), sizes.of(12, 1), senones), sizes)
    features = seeded(lambda: torch.randn(batch, mels, frames), sizes)
    targets = seeded(lambda: torch.randint(0, senones, (batch * frames // 4,)), sizes)
    chance = torch.Generator(sizes.device).manual_seed(1)

    def loss_of() -> Tensor:
        x = features
        for axis, limit in ((1, 27), (1, 27), (2, sizes.of(100, 8)), (2, sizes.of(100, 8))):
            mean = x.mean()
            value = mean.item() if flawed else mean  # flaw: specaugment_mask_value_item
            x = masked_along(x, value, limit, axis, chance)
        return F.cross_entropy(model(x).flatten(0, 1), targets)

    return Step(training(loss_of, fused_adamw(model), sizes))
