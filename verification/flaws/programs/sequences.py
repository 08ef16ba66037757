"""Flaws of speech, of time series and of other sequences."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = ["fft_length", "packed_lengths", "pairwise_broadcast", "pointwise_conv1d"]


class FeedForward(nn.Module):
    """Two layers for each frame, as convolutions of one frame."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w_1, self.w_2 = nn.Conv1d(width, inner, 1), nn.Conv1d(inner, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)  # flaw: pointwise_conv1d
        x = self.w_1(x)  # flaw: pointwise_conv1d
        x = self.w_2(F.silu(x))  # flaw: pointwise_conv1d
        return x.transpose(1, 2)  # flaw: pointwise_conv1d


class LinearFeedForward(FeedForward):
    """The same weights as products."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.linear(x, self.w_1.weight.squeeze(2), self.w_1.bias)
        return F.linear(F.silu(x), self.w_2.weight.squeeze(2), self.w_2.bias)


class EncoderLayer(nn.Module):
    """Attention between two half feed-forwards, as in a Conformer."""

    def __init__(self, width: int, heads: int, kind: type[FeedForward]) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.before, self.after = kind(width, 4 * width), kind(width, 4 * width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.before(self.norms[0](x))
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in self.qkv(self.norms[1](x)).chunk(3, -1)
        )
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        x = x + 0.5 * self.after(self.norms[2](x))
        return self.norms[3](x)


class Recognizer(nn.Module):
    """An encoder of spectra, with scores of characters for each frame."""

    def __init__(self, width: int, layers: int, kind: type[FeedForward], symbols: int = 32) -> None:
        super().__init__()
        self.into = nn.Linear(80, width)
        self.layers = nn.Sequential(*(EncoderLayer(width, 8, kind) for _ in range(layers)))
        self.head = nn.Linear(width, symbols)

    def forward(self, spectra: Tensor) -> Tensor:
        return self.head(self.layers(self.into(spectra)))


def pointwise_conv1d(flawed: bool, sizes: Sizes) -> Step:
    width, layers, batch, frames = sizes.of((512, 12, 32, 600), (16, 2, 2, 40))
    kind = FeedForward if flawed else LinearFeedForward
    model = seeded(lambda: Recognizer(width, layers, kind), sizes)
    spectra = seeded(lambda: torch.randn(batch, frames, 80), sizes)
    texts = torch.arange(batch * 20, device=spectra.device).view(batch, 20) % 31 + 1
    lengths = torch.full((batch,), frames), torch.full((batch,), 20)

    def loss() -> Tensor:
        scores = model(spectra).float().log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(scores, texts, *lengths)

    return Step(training(loss, fused_adamw(model), sizes))


def fft_conv(u: Tensor, k: Tensor, n: int) -> Tensor:
    """Causal convolution of a sequence with a filter as long as itself."""
    length = u.shape[-1]
    u_f = torch.fft.rfft(u, n=n)  # flaw: fft_length
    k_f = torch.fft.rfft(k, n=n)  # flaw: fft_length
    y = torch.fft.irfft(u_f * k_f, n=n)  # flaw: fft_length
    return y[..., :length]


class LongConv(nn.Module):
    """A convolution over all of the past, and an MLP."""

    def __init__(self, width: int, length: int, n: int) -> None:
        super().__init__()
        self.n = n
        decay = torch.exp(-torch.arange(length) / (1 + torch.arange(width)[:, None]))
        self.kernel = nn.Parameter(torch.randn(width, length) * 0.1 * decay)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.gate = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(8 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm_1(x)
        y = fft_conv(h.float().transpose(1, 2), self.kernel, self.n)
        x = x + y.transpose(1, 2) * self.gate(h).sigmoid()
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def fft_length(flawed: bool, sizes: Sizes) -> Step:
    width, layers, batch, length = sizes.of((512, 4, 32, 1000), (16, 2, 2, 30))
    full = 2 * length - 1 if flawed else 1 << (2 * length - 1).bit_length()
    model = seeded(
        lambda: nn.Sequential(*(LongConv(width, length, full) for _ in range(layers))), sizes
    )
    series = seeded(lambda: torch.randn(batch, length, width), sizes)

    def loss() -> Tensor:
        return F.mse_loss(model(series)[:, :-1].float(), series[:, 1:])

    return Step(training(loss, fused_adamw(model), sizes))


class Tagger(nn.Module):
    """A class for each word, by an LSTM."""

    def __init__(self, words: int, width: int, classes: int, packs: bool) -> None:
        super().__init__()
        self.packs = packs
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, texts: Tensor, lengths: Tensor) -> Tensor:
        x = self.words(texts)
        if self.packs:
            ends = lengths.cpu()  # flaw: packed_lengths
            packed = pack_padded_sequence(x, ends, True, False)  # flaw: packed_lengths
            packed, _ = self.lstm(packed)  # flaw: packed_lengths
            x, _ = pad_packed_sequence(packed, True, total_length=texts.shape[1])
        else:
            x, _ = self.lstm(x)
        return self.head(x)


def packed_lengths(flawed: bool, sizes: Sizes) -> Step:
    words, width, batch, longest = sizes.of((20_000, 512, 64, 200), (50, 8, 3, 9))
    model = seeded(lambda: Tagger(words, width, 40, packs=flawed), sizes)
    texts = seeded(lambda: torch.randint(0, words, (batch, longest)), sizes)
    lengths = longest - torch.arange(batch, device=texts.device) * longest // (2 * batch)
    places = torch.arange(longest, device=texts.device)
    tags = (texts % 40).where(places < lengths[:, None], -100)

    def loss() -> Tensor:
        return F.cross_entropy(model(texts, lengths).flatten(0, 1).float(), tags.flatten())

    return Step(training(loss, fused_adamw(model), sizes))


def euclidean_dist(x: Tensor, y: Tensor) -> Tensor:
    """The squared distance of each moment of one series from each of another."""
    n, m, d = x.size(1), y.size(1), x.size(2)
    x = x.unsqueeze(2).expand(-1, n, m, d)  # flaw: pairwise_broadcast
    y = y.unsqueeze(1).expand(-1, n, m, d)  # flaw: pairwise_broadcast
    return torch.pow(x - y, 2).sum(3)  # flaw: pairwise_broadcast


def euclidean_dist_by_product(x: Tensor, y: Tensor) -> Tensor:
    """The same by a product."""
    squares = x.square().sum(2).unsqueeze(2) + y.square().sum(2).unsqueeze(1)
    return (squares - 2 * torch.bmm(x, y.transpose(1, 2))).clamp(min=0)


class SeriesEncoder(nn.Module):
    """Embeddings of a series by dilated convolutions."""

    def __init__(self, inputs: int, width: int, outputs: int, layers: int) -> None:
        super().__init__()
        self.into = nn.Conv1d(inputs, width, 1)
        self.convs = nn.ModuleList(
            nn.Conv1d(width, width, 5, padding=2 << at, dilation=1 << at) for at in range(layers)
        )
        self.out = nn.Conv1d(width, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        for conv in self.convs:
            x = x + F.gelu(conv(x))
        return F.normalize(self.out(x), dim=1).transpose(1, 2)


def pairwise_broadcast(flawed: bool, sizes: Sizes) -> Step:
    batch, length, width, outputs = sizes.of((16, 400, 384, 64), (2, 12, 8, 4))
    model = seeded(lambda: SeriesEncoder(9, width, outputs, 5), sizes)
    first = seeded(lambda: torch.randn(batch, 9, length), sizes)
    second = first.roll(3, 2) + 0.1 * first.flip(0)
    distance_of = euclidean_dist if flawed else euclidean_dist_by_product

    def loss() -> Tensor:
        distances = distance_of(model(first), model(second))
        there = -(-distances / 0.1).logsumexp(2).mean()
        back = -(-distances / 0.1).logsumexp(1).mean()
        return there + back

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))
