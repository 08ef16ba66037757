"""Flaws of models of speech and of other signals."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Config
from .language import EncoderBlock
from .loading import Forecaster
from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "double_series",
    "fp32_inference",
    "linear_per_channel",
    "loss_per_sample",
    "spectra_on_cpu",
]


def mel_filters(bins: int, bands: int) -> Tensor:
    """Triangles over the bins of a spectrum, of equal width in mel."""
    centres = torch.expm1(torch.linspace(0, math.log1p(10), bands + 2)) * (bins - 1) / 10
    low, middle, high = (centres[at : at + bands, None] for at in range(3))
    bin_ = torch.arange(bins)[None]
    rising = (bin_ - low) / (middle - low)
    falling = (high - bin_) / (high - middle)
    return torch.minimum(rising, falling).clamp(min=0)


def log_mel(waves: Tensor, window: Tensor, filters: Tensor) -> Tensor:
    """The logarithm of the power in each band and frame."""
    n = len(window)
    # flaw in the next line: spectra_on_cpu
    spectra = torch.stft(waves, n, n * 2 // 5, window=window, return_complex=True)
    power = spectra.abs().square()  # flaw: spectra_on_cpu
    return (filters @ power).clamp(min=1e-10).log10()  # flaw: spectra_on_cpu


class AudioTagger(nn.Module):
    """Classes of a clip, by blocks of attention over the frames of its spectrum."""

    def __init__(self, bands: int, config: Config, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv1d(bands, config.width, 3, padding=1),
            nn.GELU(),
            nn.Conv1d(config.width, config.width, 3, 2, 1),
            nn.GELU(),
        )
        self.blocks = nn.Sequential(*(EncoderBlock(config) for _ in range(config.layers)))
        self.norm, self.head = nn.LayerNorm(config.width), nn.Linear(config.width, classes)

    def forward(self, spectra: Tensor) -> Tensor:
        x = self.blocks(self.stem(spectra).transpose(1, 2))
        return self.head(self.norm(x).mean(1))


def spectra_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    large = Config(layers=8, width=512, heads=8, mlp_width=2048)
    config = gpt.TINY if sizes.is_tiny else large
    batch, samples, n, bands = sizes.of((16, 160_000, 400, 80), (2, 800, 40, 8))
    model = seeded(lambda: AudioTagger(bands, config, 50), sizes)
    waves = torch.randn(batch, samples, generator=torch.Generator().manual_seed(8))
    if not sizes.is_tiny:
        waves = waves.pin_memory()
    window, filters = torch.hann_window(n), mel_filters(n // 2 + 1, bands)
    if not flawed:
        window, filters = window.to(sizes.device), filters.to(sizes.device)
    labels = torch.arange(batch, device=sizes.device) % 50

    def loss() -> Tensor:
        if flawed:
            # flaw in the next line: spectra_on_cpu
            spectra = torch.stack([log_mel(wave, window, filters) for wave in waves])
            spectra = spectra.to(sizes.device)  # flaw: spectra_on_cpu
        else:
            spectra = log_mel(waves.to(sizes.device, non_blocking=True), window, filters)
        return F.cross_entropy(model(spectra), labels)

    return Step(training(loss, fused_adamw(model), sizes))


class SpeakerEncoder(nn.Module):
    """An embedding of an utterance by an LSTM, and the scale of similarities."""

    def __init__(self, bands: int, width: int, embedding: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(bands, width, 3, batch_first=True)
        self.project = nn.Linear(width, embedding)
        self.w, self.b = nn.Parameter(torch.tensor(10.0)), nn.Parameter(torch.tensor(-5.0))

    def forward(self, mels: Tensor) -> Tensor:
        frames, _ = self.lstm(mels)
        return F.normalize(self.project(frames[:, -1]), dim=1)


def loss_by_loops(model: SpeakerEncoder, embeddings: Tensor) -> Tensor:
    """The loss of GE2E, for each utterance against each speaker."""
    speakers, utterances, _ = embeddings.shape
    total = embeddings.new_zeros(())
    for own in range(speakers):
        for at in range(utterances):
            e = embeddings[own, at]  # flaw: loss_per_sample
            similarities = []
            for speaker in range(speakers):
                centroid = embeddings[speaker].mean(0)  # flaw: loss_per_sample
                if speaker == own:
                    centroid = (centroid * utterances - e) / (utterances - 1)
                cosine = F.cosine_similarity(e, centroid, dim=0)  # flaw: loss_per_sample
                similarities.append(model.w * cosine + model.b)  # flaw: loss_per_sample
            scores = torch.stack(similarities)  # flaw: loss_per_sample
            total = total + scores.logsumexp(0) - scores[own]  # flaw: loss_per_sample
    return total / (speakers * utterances)


def loss_of_all(model: SpeakerEncoder, embeddings: Tensor) -> Tensor:
    """The same at once."""
    speakers, utterances, _ = embeddings.shape
    sums = embeddings.sum(1)
    centroids = sums / utterances
    without = (sums[:, None] - embeddings) / (utterances - 1)
    cosines = F.cosine_similarity(embeddings[:, :, None], centroids[None, None], dim=3)
    own = F.cosine_similarity(embeddings, without, dim=2)
    is_own = torch.eye(speakers, dtype=torch.bool, device=embeddings.device)[:, None]
    scores = model.w * torch.where(is_own, own[:, :, None], cosines) + model.b
    labels = torch.arange(speakers, device=embeddings.device)[:, None].expand(-1, utterances)
    return F.cross_entropy(scores.flatten(0, 1), labels.flatten())


def loss_per_sample(flawed: bool, sizes: Sizes) -> Step:
    speakers, utterances, frames, width = sizes.of((6, 5, 160, 768), (3, 2, 6, 8))
    model = seeded(lambda: SpeakerEncoder(40, width, sizes.of(256, 8)), sizes)
    mels = seeded(lambda: torch.randn(speakers * utterances, frames, 40), sizes)
    loss_of = loss_by_loops if flawed else loss_of_all

    def loss() -> Tensor:
        return loss_of(model, model(mels).unflatten(0, (speakers, utterances)))

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


def fp32_inference(flawed: bool, sizes: Sizes) -> Step:
    large = Config(layers=12, width=768, heads=12, mlp_width=3072)
    config = gpt.TINY if sizes.is_tiny else large
    batch, frames, bands = sizes.of((4, 3000, 80), (2, 16, 8))
    model = seeded(lambda: AudioTagger(bands, config, 99), sizes).eval()
    spectra = seeded(lambda: torch.randn(batch, bands, frames), sizes)
    if not flawed:
        model, spectra = model.bfloat16(), spectra.bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        return model(spectra).float().abs().mean()

    return Step(step)


class NLinear(nn.Module):
    """A forecast of each series by a linear layer of its own, from its last value."""

    def __init__(self, series: int, length: int, ahead: int) -> None:
        super().__init__()
        self.ahead = ahead
        self.layers = nn.ModuleList(nn.Linear(length, ahead) for _ in range(series))

    def forward(self, x: Tensor) -> Tensor:
        last = x[:, -1:]
        x = x - last
        out = x.new_zeros(len(x), self.ahead, x.shape[2])
        for at, layer in enumerate(self.layers):
            out[:, :, at] = layer(x[:, :, at])  # flaw: linear_per_channel
        return out + last


class StackedNLinear(nn.Module):
    """The same with the weights of all layers in one tensor."""

    def __init__(self, model: NLinear) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([each.weight.data for each in model.layers]))
        self.bias = nn.Parameter(torch.stack([each.bias.data for each in model.layers]))

    def forward(self, x: Tensor) -> Tensor:
        last = x[:, -1:]
        each = (x - last).permute(2, 0, 1)
        out = torch.baddbmm(self.bias[:, None], each, self.weight.transpose(1, 2))
        return out.permute(1, 2, 0) + last


def linear_per_channel(flawed: bool, sizes: Sizes) -> Step:
    series, length, ahead, batch = sizes.of((137, 336, 192, 256), (4, 12, 5, 3))
    model: nn.Module = seeded(lambda: NLinear(series, length, ahead), sizes)
    if not flawed:
        model = StackedNLinear(model)
    past, future = seeded(
        lambda: (torch.randn(batch, length, series), torch.randn(batch, ahead, series)), sizes
    )

    def loss() -> Tensor:
        return F.mse_loss(model(past), future)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


def double_series(flawed: bool, sizes: Sizes) -> Step:
    series, length, ahead, width, batch = sizes.of((16, 256, 24, 128, 64), (3, 16, 4, 8, 2))
    model = seeded(lambda: Forecaster(series, width, sizes.of(5, 2), ahead), sizes)
    past, future = seeded(
        lambda: (torch.randn(batch, series, length), torch.randn(batch, series, ahead)), sizes
    )
    if flawed:
        model, past, future = model.double(), past.double(), future.double()

    def loss() -> Tensor:
        return F.mse_loss(model(past), future)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))
