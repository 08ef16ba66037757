"""Flaws of models of sound, of translators and forecasters with a state, and of their data."""

from __future__ import annotations

import math
import random
from itertools import starmap

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Config
from .language import EncoderBlock
from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "context_projected_each_step",
    "inputs_projected_in_recurrence",
    "mel_filters_rebuilt",
    "spectra_masked_one_by_one",
    "windows_built_in_list",
]


class SpecAugment:
    """Masks bands of channels and of frames of spectra (n, channels, frames)."""

    def __init__(self, bands: int, spans: int, width: int, share: float) -> None:
        self.bands, self.spans, self.width, self.share = bands, spans, width, share
        self.random = random.Random(2026)

    def one_by_one(self, spectra: Tensor, lengths: Tensor) -> Tensor:
        spectra = spectra.clone()
        channels = spectra.shape[1]
        for at in range(len(spectra)):
            for _ in range(self.bands):
                low = int(self.random.random() * (channels - self.width))
                wide = int(self.random.random() * self.width)
                # flaw in the next line: spectra_masked_one_by_one
                spectra[at, low : low + wide] = 0
            for _ in range(self.spans):
                # flaw in the next line: spectra_masked_one_by_one
                most = max(1, int(lengths[at] * self.share))
                # flaw in the next line: spectra_masked_one_by_one
                low = int(self.random.random() * max(1, int(lengths[at]) - most))
                wide = int(self.random.random() * most)
                # flaw in the next line: spectra_masked_one_by_one
                spectra[at, :, low : low + wide] = 0
        return spectra

    def at_once(self, spectra: Tensor, lengths: Tensor) -> Tensor:
        batch, channels, frames = spectra.shape
        each = self.bands + self.spans
        draws = [self.random.random() for _ in range(batch * each * 2)]
        drawn = torch.tensor(draws, dtype=torch.float64, device=spectra.device)
        drawn = drawn.view(batch, each, 2, 1)
        bands, spans = drawn.split((self.bands, self.spans), 1)
        most = (lengths * self.share).long().clamp(min=1)
        room = (lengths - most).clamp(min=1)
        low = (bands[:, :, 0] * (channels - self.width)).long()
        high = low + (bands[:, :, 1] * self.width).long()
        start = (spans[:, :, 0] * room[:, None, None]).long()
        stop = start + (spans[:, :, 1] * most[:, None, None]).long()
        c = torch.arange(channels, device=spectra.device)
        t = torch.arange(frames, device=spectra.device)
        rows = ((c >= low) & (c < high)).any(1)
        columns = ((t >= start) & (t < stop)).any(1)
        return spectra.masked_fill(rows[:, :, None] | columns[:, None], 0)


class SpeechEncoder(nn.Module):
    """A transformer of frames, four of which make a token."""

    def __init__(self, config: Config, channels: int) -> None:
        super().__init__()
        self.into = nn.Conv1d(channels, config.width, 4, 4)
        self.blocks = nn.Sequential(*(EncoderBlock(config) for _ in range(config.layers)))
        self.out = nn.Linear(config.width, config.vocabulary)

    def forward(self, spectra: Tensor) -> Tensor:
        return self.out(self.blocks(self.into(spectra).mT))


def spectra_masked_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    config = Config(layers=12, width=512, heads=8, mlp_width=2048, vocabulary=1024)
    if sizes.is_tiny:
        config = gpt.TINY
    batch, channels, frames, spans = sizes.of((48, 80, 1200, 10), (3, 10, 24, 2))
    augment = SpecAugment(2, spans, sizes.of(27, 4), 0.05)
    model = seeded(lambda: SpeechEncoder(config, channels), sizes)
    spectra, lengths, words = seeded(
        lambda: (
            torch.randn(batch, channels, frames),
            torch.randint(frames // 2, frames + 1, (batch,)),
            torch.randint(0, config.vocabulary, (batch, frames // 4)),
        ),
        sizes,
    )
    mask = augment.one_by_one if flawed else augment.at_once

    def loss() -> Tensor:
        with torch.no_grad():
            x = mask(spectra, lengths)  # flaw: spectra_masked_one_by_one
        return F.cross_entropy(model(x).float().flatten(0, 1), words.flatten())

    return Step(training(loss, fused_adamw(model), sizes))


class MelSpectrogram(nn.Module):
    """The logarithms of energies in bands of mel, of one clip."""

    def __init__(self, length: int, hop: int, channels: int, rate: int = 24_000) -> None:
        super().__init__()
        self.length, self.hop = length, hop
        most = 2595 * math.log10(1 + rate / 2 / 700)
        # flaw in the next line: mel_filters_rebuilt
        points = 700 * (10 ** (torch.linspace(0, most, channels + 2) / 2595) - 1)
        frequencies = torch.linspace(0, rate / 2, length // 2 + 1)  # flaw: mel_filters_rebuilt
        slopes = points - frequencies[:, None]  # flaw: mel_filters_rebuilt
        gaps = points.diff()  # flaw: mel_filters_rebuilt
        # flaw in the next line: mel_filters_rebuilt
        filters = torch.minimum(-slopes[:, :-2] / gaps[:-1], slopes[:, 2:] / gaps[1:])
        self.register_buffer("filters", filters.clamp(min=0))  # flaw: mel_filters_rebuilt
        self.register_buffer("window", torch.hann_window(length))  # flaw: mel_filters_rebuilt

    def forward(self, clip: Tensor) -> Tensor:
        spectrum = torch.stft(clip, self.length, self.hop, window=self.window, return_complex=True)
        return (spectrum.abs().mT @ self.filters).clamp(min=1e-5).log()


def mel_filters_rebuilt(flawed: bool, sizes: Sizes) -> Step:
    config = Config(layers=8, width=512, heads=8, mlp_width=1024)
    if sizes.is_tiny:
        config = gpt.TINY
    batch, samples, channels = sizes.of((24, 65_280, 100), (2, 1024, 8))
    length, hop = sizes.of((1024, 256), (64, 32))
    into = seeded(lambda: nn.Linear(channels, config.width), sizes)
    blocks = seeded(
        lambda: nn.Sequential(*(EncoderBlock(config) for _ in range(config.layers))), sizes
    )
    out = seeded(lambda: nn.Linear(config.width, channels), sizes)
    clips = seeded(lambda: torch.randn(batch, samples), sizes)
    kept = MelSpectrogram(length, hop, channels).to(sizes.device)

    def mel(clip: Tensor) -> Tensor:
        if not flawed:
            return kept(clip)
        # flaw in the next line: mel_filters_rebuilt
        transform = MelSpectrogram(length, hop, channels).to(clip.device)
        return transform(clip)  # flaw: mel_filters_rebuilt

    def loss() -> Tensor:
        with torch.no_grad(), torch.autocast(sizes.device, enabled=False):
            spectra = torch.stack([mel(clip) for clip in clips])  # flaw: mel_filters_rebuilt
        found = out(blocks(into(spectra * 0.9)))
        return F.mse_loss(found.float(), spectra)

    modules = nn.ModuleList((into, blocks, out))
    return Step(training(loss, fused_adamw(modules), sizes))


class AttentiveDecoder(nn.Module):
    """A decoder that looks at a sentence before each word, by an additive score."""

    def __init__(self, vocabulary: int, width: int, projects_once: bool) -> None:
        super().__init__()
        self.projects_once = projects_once
        self.words = nn.Embedding(vocabulary, width)
        self.cell = nn.LSTMCell(2 * width, width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)
        self.out = nn.Linear(2 * width, vocabulary)

    def attend(self, state: Tensor, context: Tensor, keys: Tensor | None) -> Tensor:
        if keys is None:
            keys = self.key(context)  # flaw: context_projected_each_step
        scores = self.score(torch.tanh(self.query(state)[:, None] + keys))
        return (scores.softmax(1).to(context.dtype) * context).sum(1)

    def forward(self, context: Tensor, text: Tensor) -> Tensor:
        keys = self.key(context) if self.projects_once else None
        h = c = context.mean(1).float()
        seen, outs = context[:, 0], []
        for word in self.words(text).unbind(1):
            h, c = self.cell(torch.cat((word, seen.float()), 1), (h, c))
            seen = self.attend(h, context, keys)  # flaw: context_projected_each_step
            outs.append(torch.cat((h, seen.float()), 1))
        return self.out(torch.stack(outs, 1))


def context_projected_each_step(flawed: bool, sizes: Sizes) -> Step:
    batch, read, written, width, vocabulary = sizes.of((64, 200, 40, 768, 32_000), (2, 5, 4, 8, 20))
    encoder = seeded(
        lambda: nn.LSTM(width, width // 2, 2, batch_first=True, bidirectional=True), sizes
    )
    table = seeded(lambda: nn.Embedding(vocabulary, width), sizes)
    decoder = seeded(lambda: AttentiveDecoder(vocabulary, width, not flawed), sizes)
    source, target = seeded(
        lambda: (
            torch.randint(0, vocabulary, (batch, read)),
            torch.randint(0, vocabulary, (batch, written + 1)),
        ),
        sizes,
    )

    def loss() -> Tensor:
        context, _ = encoder(table(source))
        scores = decoder(context, target[:, :-1])  # flaw: context_projected_each_step
        return F.cross_entropy(scores.flatten(0, 1).float(), target[:, 1:].flatten())

    modules = nn.ModuleList((encoder, table, decoder))
    return Step(training(loss, fused_adamw(modules), sizes))


class NormedGRU(nn.Module):
    """A GRU whose gates are normalized, in a loop over time."""

    def __init__(self, inputs: int, width: int, projects_once: bool) -> None:
        super().__init__()
        self.projects_once = projects_once
        self.input = nn.Linear(inputs, 3 * width)
        self.hidden = nn.Linear(width, 3 * width, bias=False)
        self.norm = nn.LayerNorm(3 * width)

    def cell(self, x: Tensor, h: Tensor) -> Tensor:
        own, update, reset = x.chunk(3, 1)
        back, up, re = self.norm(self.hidden(h)).chunk(3, 1)
        gate = torch.sigmoid(update + up)
        new = torch.tanh(own + torch.sigmoid(reset + re) * back)
        return torch.lerp(new.to(h.dtype), h, gate.to(h.dtype))

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), self.hidden.in_features, dtype=torch.float32)
        if self.projects_once:
            x = self.input(x)
        outs = []
        for each in x.unbind(1):
            # flaw in the next line: inputs_projected_in_recurrence
            given = each if self.projects_once else self.input(each)
            h = self.cell(given, h)
            outs.append(h)
        return torch.stack(outs, 1)


def inputs_projected_in_recurrence(flawed: bool, sizes: Sizes) -> Step:
    batch, moments, inputs, width = sizes.of((256, 96, 2048, 512), (2, 5, 8, 8))
    model = seeded(lambda: NormedGRU(inputs, width, not flawed), sizes)
    head = seeded(lambda: nn.Linear(width, 61), sizes)
    frames, phones = seeded(
        lambda: (torch.randn(batch, moments, inputs), torch.randint(0, 61, (batch, moments))),
        sizes,
    )

    def loss() -> Tensor:
        scores = head(model(frames))  # flaw: inputs_projected_in_recurrence
        return F.cross_entropy(scores.float().flatten(0, 1), phones.flatten())

    return Step(training(loss, fused_adamw(nn.ModuleList((model, head))), sizes))


class FoldSequences:
    """Windows of the rows of many symbols, which lie on the device as one table."""

    def __init__(self, rows: Tensor, length: int) -> None:
        self.rows, self.length = rows, length
        self.offsets = torch.arange(length, device=rows.device)

    def window(self, symbol: int, start: int) -> Tensor:
        # flaw in the next line: windows_built_in_list
        return self.rows[symbol, start : start + self.length]

    def one_by_one(self, picks: list[tuple[int, int]]) -> Tensor:
        return torch.stack(list(starmap(self.window, picks)))  # flaw: windows_built_in_list

    def at_once(self, picks: list[tuple[int, int]]) -> Tensor:
        symbols, starts = torch.tensor(picks).to(self.rows.device, non_blocking=True).unbind(1)
        at = (symbols * self.rows.shape[1] + starts)[:, None] + self.offsets
        return self.rows.flatten(0, 1).index_select(0, at.flatten()).unflatten(0, at.shape)


def windows_built_in_list(flawed: bool, sizes: Sizes) -> Step:
    symbols, moments, features, length = sizes.of((500, 2000, 25, 60), (3, 30, 4, 5))
    batch, width = sizes.of((2048, 1024), (4, 8))
    rows = seeded(lambda: torch.randn(symbols, moments, features), sizes)
    dataset = FoldSequences(rows, length + 1)
    model = seeded(
        lambda: nn.Sequential(
            nn.Linear(length * features, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, features),
        ),
        sizes,
    )
    draw = random.Random(2026)
    gather = dataset.one_by_one if flawed else dataset.at_once

    def loss() -> Tensor:
        latest = moments - length - 1
        picks = [(draw.randrange(symbols), draw.randrange(latest)) for _ in range(batch)]
        windows = gather(picks)  # flaw: windows_built_in_list
        past, future = windows[:, :-1], windows[:, -1]
        level = past[:, -1]
        found = model((past - level[:, None]).flatten(1)) + level
        return F.mse_loss(found.float(), future)

    return Step(training(loss, fused_adamw(model), sizes))
