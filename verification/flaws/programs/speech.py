"""Flaws of models that hear and speak."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "durations_in_loop",
    "projections_apart",
    "resampling_kernel_each_call",
    "scores_copied_for_argmax",
]


class ConvStack(nn.Module):
    """Convolutions along time with a norm and a residual path, of (batch, time, channels)."""

    def __init__(self, width: int, depth: int, kernel: int = 5) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(width, width, kernel, padding=kernel // 2) for _ in range(depth)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.gelu(conv(norm(x).transpose(1, 2)).transpose(1, 2))
        return x


def stretched_in_loop(x: Tensor, durations: Tensor) -> Tensor:
    """Each phoneme as often as its frames, phoneme by phoneme."""
    rows = []
    for row, counts in zip(x, durations, strict=True):
        pieces = []
        for vector, count in zip(row, counts, strict=True):
            frames = int(count)  # flaw: durations_in_loop
            pieces.append(vector.expand(frames, -1))  # flaw: durations_in_loop
        rows.append(torch.cat(pieces))  # flaw: durations_in_loop
    return torch.stack(rows)


def stretched(x: Tensor, durations: Tensor, frames: int) -> Tensor:
    """The same at once."""
    total = len(x) * frames
    flat = x.flatten(0, 1).repeat_interleave(durations.flatten(), 0, output_size=total)
    return flat.unflatten(0, (len(x), frames))


class Speaker(nn.Module):
    """Phonemes to the frames of a mel spectrum, as FastSpeech and ForwardTacotron make them."""

    def __init__(self, phonemes: int, width: int, depth: int, loops: bool) -> None:
        super().__init__()
        self.loops = loops
        self.phonemes = nn.Embedding(phonemes, width)
        self.encoder, self.decoder = ConvStack(width, depth), ConvStack(width, depth)
        self.duration, self.mel = nn.Linear(width, 1), nn.Linear(width, 80)

    def forward(self, text: Tensor, durations: Tensor, frames: int) -> tuple[Tensor, Tensor]:
        x = self.encoder(self.phonemes(text))
        guesses = self.duration(x).squeeze(-1)
        y = stretched_in_loop(x, durations) if self.loops else stretched(x, durations, frames)
        return self.mel(self.decoder(y)), guesses


def durations_in_loop(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, length = sizes.of((384, 6, 12, 64), (8, 1, 2, 6))
    model = seeded(lambda: Speaker(100, width, depth, flawed), sizes)
    text = seeded(lambda: torch.randint(0, 100, (batch, length)), sizes)
    each = torch.arange(length, device=sizes.device) % 11 + 2
    durations = torch.stack([each.roll(row) for row in range(batch)])
    frames = int(each.sum())
    mels = seeded(lambda: torch.randn(batch, frames, 80), sizes)

    def loss() -> Tensor:
        heard, guesses = model(text, durations, frames)
        return F.l1_loss(heard, mels) + F.mse_loss(guesses.float(), durations.float().log())

    return Step(training(loss, fused_adamw(model), sizes))


class Listener(nn.Module):
    """Frames to the scores of word pieces, for CTC."""

    def __init__(self, width: int, depth: int, heads: int, pieces: int) -> None:
        super().__init__()
        self.stem = nn.Conv1d(80, width, 5, 2, 2)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.out = nn.Linear(width, pieces)

    def forward(self, mels: Tensor) -> Tensor:
        x = self.layers(self.stem(mels).transpose(1, 2))
        return self.out(x).float().log_softmax(-1)


def greedy(labels: Tensor) -> list[list[int]]:
    """The word pieces of each text: no blanks, and of equal neighbours one."""
    texts = []
    for row in labels.tolist():
        pairs = zip(row, [0, *row], strict=False)
        texts.append([now for now, before in pairs if now not in (0, before)])
    return texts


def scores_copied_for_argmax(flawed: bool, sizes: Sizes) -> Step:
    width, depth, heads, pieces = sizes.of((512, 12, 8, 1025), (8, 1, 2, 12))
    batch, frames = sizes.of((16, 1000), (2, 20))
    model = seeded(lambda: Listener(width, depth, heads, pieces), sizes).eval().bfloat16()
    mels = seeded(lambda: torch.randn(batch, 80, frames), sizes).bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        scores = model(mels)
        if flawed:
            scores = scores.cpu()  # flaw: scores_copied_for_argmax
        labels = scores.max(-1).indices  # flaw: scores_copied_for_argmax
        texts = greedy(labels)
        return torch.tensor([len(text) / frames for text in texts]).mean()

    return Step(step)


def sinc_kernel(before: int, after: int, device: str) -> tuple[Tensor, int]:
    """The windowed sinc functions that resample, one for each phase, as torchaudio made them."""
    lowest = min(before, after) * 0.99
    width = math.ceil(6 * before / lowest)
    places = torch.arange(-width, width + before, device=device) / before
    rows = []
    for phase in range(after):
        # flaw in the next line: resampling_kernel_each_call
        t = ((places - phase / after) * lowest).clamp(-6, 6)
        window = (t * math.pi / 12).cos().square()  # flaw: resampling_kernel_each_call
        rows.append(t.sinc() * window)  # flaw: resampling_kernel_each_call
    return torch.stack(rows)[:, None] * (lowest / before), width


def resampled(waves: Tensor, before: int, after: int, kernel: Tensor, width: int) -> Tensor:
    """Waves (batch, samples) at another rate, whose ratio is that of `after` to `before`."""
    padded = F.pad(waves[:, None], (width, width + before))
    return F.conv1d(padded, kernel, stride=before).transpose(1, 2).flatten(1)


class WaveClassifier(nn.Module):
    """Strided convolutions over samples, and a head."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, width, 80, 20)
        self.stack = ConvStack(width, depth, 9)
        self.head = nn.Linear(width, 50)

    def forward(self, waves: Tensor) -> Tensor:
        x = self.stem(waves[:, None]).transpose(1, 2)
        return self.head(self.stack(x).mean(1))


def resampling_kernel_each_call(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, samples = sizes.of((256, 6, 32, 88200), (8, 1, 2, 4000))
    before, after = 441, 160
    model = seeded(lambda: WaveClassifier(width, depth), sizes)
    waves = seeded(lambda: torch.randn(batch, samples), sizes)
    labels = torch.arange(batch, device=sizes.device) % 50
    once = sinc_kernel(before, after, sizes.device)

    def loss() -> Tensor:
        if flawed:
            # flaw in the next line: resampling_kernel_each_call
            kernel, reach = sinc_kernel(before, after, sizes.device)
        else:
            kernel, reach = once
        with torch.no_grad():
            slower = resampled(waves, before, after, kernel, reach)
        return F.cross_entropy(model(slower), labels)

    return Step(training(loss, fused_adamw(model), sizes))


class Attention(nn.Module):
    """Attention as Whisper has it: three layers for queries, keys and values, keys without bias."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.value = nn.Linear(width, width), nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width)

    def projected(self, x: Tensor) -> tuple[Tensor, ...]:
        q = self.query(x)  # flaw: projections_apart
        k = self.key(x)  # flaw: projections_apart
        v = self.value(x)  # flaw: projections_apart
        return q, k, v

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each.unflatten(-1, (self.heads, -1)) for each in self.projected(x))
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class JoinedAttention(Attention):
    """The same from one product, made of the three layers of another."""

    def __init__(self, other: Attention) -> None:
        nn.Module.__init__(self)
        self.heads, self.out = other.heads, other.out
        zeros = torch.zeros_like(other.query.bias)
        layers = (other.query, other.key, other.value)
        self.weight = nn.Parameter(torch.cat([each.weight for each in layers]))
        self.bias = nn.Parameter(torch.cat([other.query.bias, zeros, other.value.bias]))

    def projected(self, x: Tensor) -> tuple[Tensor, ...]:
        return F.linear(x, self.weight, self.bias).chunk(3, -1)


class TextBlock(nn.Module):
    """A block of a decoder that rescores texts."""

    def __init__(self, width: int, heads: int, is_joined: bool) -> None:
        super().__init__()
        attention = Attention(width, heads)
        self.attention = JoinedAttention(attention) if is_joined else attention
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def projections_apart(flawed: bool, sizes: Sizes) -> Step:
    width, heads, depth, batch, length = sizes.of((512, 8, 48, 4, 24), (8, 2, 2, 2, 5))
    model = seeded(
        lambda: nn.Sequential(*(TextBlock(width, heads, not flawed) for _ in range(depth))), sizes
    )
    model = model.eval().bfloat16()
    texts = seeded(lambda: torch.randn(batch, length, width), sizes).bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        return model(texts).float().square().mean()

    return Step(step)
