"""Flaws of models of sound, of video and of latents, and of layers that read all positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, compiled, fused_adamw, seeded, training
from .vision import UNet

__all__ = [
    "alignments_in_list",
    "attention_order",
    "latents_encoded_each_step",
    "long_kernel_convolved",
    "sketches_by_full_fft",
    "video_channels_first",
]


def reverberated(dry: Tensor, rooms: Tensor) -> Tensor:
    """Each clip with the echo of its room, by a convolution over all taps."""
    taps = rooms.shape[1]
    clips = F.pad(dry, (taps - 1, 0))[None]
    # flaw in the next line: long_kernel_convolved
    return F.conv1d(clips, rooms.flip(1)[:, None], groups=len(dry))[0]


def reverberated_by_fft(dry: Tensor, rooms: Tensor) -> Tensor:
    """The same by a product of spectra."""
    samples = dry.shape[1]
    length = 1 << (samples + rooms.shape[1] - 2).bit_length()
    spectrum = torch.fft.rfft(dry, length) * torch.fft.rfft(rooms, length)
    return torch.fft.irfft(spectrum, length)[:, :samples]


class Dereverberator(nn.Module):
    """An encoder of waveforms as wav2vec has it, and back."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        self.into = nn.Conv1d(1, width, 16, 8, 4)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(levels))
        self.out = nn.ConvTranspose1d(width, 1, 16, 8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.into(x[:, None]))
        for conv in self.convs:
            x = x + F.gelu(conv(x))
        return self.out(x)[:, 0]


def long_kernel_convolved(flawed: bool, sizes: Sizes) -> Step:
    width, levels, batch, samples, taps = sizes.of((256, 8, 16, 63488, 2048), (8, 2, 2, 128, 32))
    model = seeded(lambda: Dereverberator(width, levels), sizes)
    dry, rooms = seeded(
        lambda: (torch.randn(batch, samples), torch.randn(batch, taps)),
        sizes,
    )
    rooms = rooms * torch.linspace(0, -6, taps, device=sizes.device).exp()
    add_echo = reverberated if flawed else reverberated_by_fft

    def loss() -> Tensor:
        with torch.no_grad(), torch.autocast(sizes.device, enabled=False):
            wet = add_echo(dry, rooms)
        return F.mse_loss(model(wet), dry)

    return Step(training(loss, fused_adamw(model), sizes))


class CompactBilinearPooling(nn.Module):
    """Outer products of features, as products of the spectra of their sketches."""

    sketches: Tensor

    def __init__(self, width: int, outputs: int, is_real: bool) -> None:
        super().__init__()
        self.outputs, self.is_real = outputs, is_real
        places = torch.randint(0, outputs, (2, width))
        signs = torch.randint(0, 2, (2, width)) * 2.0 - 1
        sketches = F.one_hot(places, outputs).float() * signs[:, :, None]
        self.register_buffer("sketches", sketches)

    def forward(self, x: Tensor) -> Tensor:
        first, second = ((x @ sketch).float() for sketch in self.sketches)
        if self.is_real:
            product = torch.fft.rfft(first) * torch.fft.rfft(second)
            return torch.fft.irfft(product, self.outputs).sum(1)
        product = torch.fft.fft(first) * torch.fft.fft(second)  # flaw: sketches_by_full_fft
        return torch.fft.ifft(product).real.sum(1)  # flaw: sketches_by_full_fft


class FineGrained(nn.Module):
    """The last layers of a classifier of birds."""

    def __init__(self, width: int, outputs: int, is_real: bool) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.pool = CompactBilinearPooling(width, outputs, is_real)
        self.head = nn.Linear(outputs, 200)

    def forward(self, x: Tensor) -> Tensor:
        for conv in self.convs:
            x = F.relu(conv(x))
        pooled = self.pool(x.flatten(2).mT)
        return self.head(F.normalize(pooled, dim=-1) * 30)


def sketches_by_full_fft(flawed: bool, sizes: Sizes) -> Step:
    width, outputs, batch, side = sizes.of((512, 8192, 32, 14), (8, 32, 2, 4))
    model = seeded(lambda: FineGrained(width, outputs, is_real=not flawed), sizes)
    model = model.to(memory_format=torch.channels_last)
    features = seeded(lambda: torch.randn(batch, width, side, side), sizes)
    features = features.to(memory_format=torch.channels_last)
    labels = torch.arange(batch, device=sizes.device) % 200
    optimizer = fused_adamw(model)
    return Step(training(lambda: F.cross_entropy(model(features), labels), optimizer, sizes))


class VideoDecoder(nn.Module):
    """The decoder of a video VAE: convolutions over time and space, and one doubling."""

    def __init__(self, latent: int, width: int, depth: int) -> None:
        super().__init__()
        self.into = nn.Conv3d(latent, 2 * width, 3, padding=1)
        self.low = nn.ModuleList(
            nn.Conv3d(2 * width, 2 * width, 3, padding=1) for _ in range(depth)
        )
        self.narrow = nn.Conv3d(2 * width, width, 3, padding=1)
        self.high = nn.ModuleList(nn.Conv3d(width, width, 3, padding=1) for _ in range(depth))
        self.out = nn.Conv3d(width, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)  # flaw: video_channels_first
        for conv in self.low:
            x = x + F.silu(conv(x))  # flaw: video_channels_first
        x = self.narrow(F.interpolate(x, scale_factor=(1, 2, 2)))  # flaw: video_channels_first
        for conv in self.high:
            x = x + F.silu(conv(x))  # flaw: video_channels_first
        return self.out(x)  # flaw: video_channels_first


def video_channels_first(flawed: bool, sizes: Sizes) -> Step:
    width, depth, frames, side = sizes.of((96, 3, 24, 64), (4, 1, 2, 4))
    decoder = seeded(lambda: VideoDecoder(16, width, depth), sizes).eval().bfloat16()
    latents = seeded(lambda: torch.randn(1, 16, frames, side, side), sizes).bfloat16()
    if not flawed:
        decoder = decoder.to(memory_format=torch.channels_last_3d)
        latents = latents.to(memory_format=torch.channels_last_3d)

    @torch.inference_mode()
    def step() -> Tensor:
        return decoder(latents).float().abs().mean()

    return Step(step)


def encoder_of(width: int, latent: int) -> nn.Sequential:
    """The encoder of an image VAE, which gives the means of its latents."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.SiLU()]
    for level in range(3):
        layers += [nn.Conv2d(width << level, width << level, 3, padding=1), nn.SiLU()]
        layers += [nn.Conv2d(width << level, width << level + 1, 3, 2, 1), nn.SiLU()]
    return nn.Sequential(*layers, nn.Conv2d(width << 3, latent, 3, padding=1))


def latents_encoded_each_step(flawed: bool, sizes: Sizes) -> Step:
    width, batch, side = sizes.of((64, 8, 512), (2, 2, 16))
    unet = seeded(lambda: UNet(4, sizes.of(256, 4), 4), sizes)
    unet = unet.to(memory_format=torch.channels_last)
    vae = seeded(lambda: encoder_of(width, 4), sizes).eval().bfloat16().requires_grad_(False)
    vae = vae.to(memory_format=torch.channels_last)
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes).bfloat16()
    images = images.to(memory_format=torch.channels_last)
    noise = seeded(lambda: torch.randn(batch, 4, side // 8, side // 8), sizes)
    with torch.no_grad():
        cached = vae(images).float()

    def loss() -> Tensor:
        latents = cached
        if flawed:
            with torch.no_grad():
                latents = vae(images).float()  # flaw: latents_encoded_each_step
        return F.mse_loss(unet(latents * 0.8 + noise * 0.6), noise)

    return Step(training(loss, fused_adamw(unet), sizes))


class SimpleSelfAttention(nn.Module):
    """Attention without a softmax, over all pixels."""

    def __init__(self, width: int, is_quadratic: bool) -> None:
        super().__init__()
        self.is_quadratic = is_quadratic
        self.conv = nn.Conv1d(width, width, 1, bias=False)
        self.gamma = nn.Parameter(torch.full((1,), 0.5))

    def forward(self, features: Tensor) -> Tensor:
        x = features.flatten(2)
        values = self.conv(x)
        if self.is_quadratic:
            pairs = x.mT @ values  # flaw: attention_order
            mixed = x @ pairs  # flaw: attention_order
        else:
            mixed = (x @ x.mT) @ values
        return features + (self.gamma * mixed / x.shape[2]).view_as(features)


class XResNet(nn.Module):
    """A stem, the attention, and convolutions of three levels."""

    def __init__(self, width: int, is_quadratic: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.ReLU())
        self.attention = SimpleSelfAttention(width, is_quadratic)
        self.stages = nn.Sequential()
        for level in range(3):
            for _ in range(3):
                self.stages.append(nn.Conv2d(width << level, width << level, 3, padding=1))
                self.stages.append(nn.ReLU())
            self.stages.append(nn.Conv2d(width << level, width << level + 1, 3, 2, 1))
        self.head = nn.Linear(width << 3, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(self.attention(self.stem(x))).mean((2, 3)))


def attention_order(flawed: bool, sizes: Sizes) -> Step:
    width, batch, side = sizes.of((64, 64, 128), (4, 2, 16))
    model = seeded(lambda: XResNet(width, is_quadratic=flawed), sizes)
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)
    labels = torch.arange(batch, device=sizes.device) % 10
    optimizer = fused_adamw(model)
    return Step(training(lambda: F.cross_entropy(model(images), labels), optimizer, sizes))


class SpeechDecoder(nn.Module):
    """Tacotron's decoder, frame by frame, with attention to the memory of a text."""

    alignments: list[Tensor]

    def __init__(self, width: int, mels: int) -> None:
        super().__init__()
        self.prenet = nn.Linear(mels, width)
        self.gates, self.new = nn.Linear(3 * width, 2 * width), nn.Linear(3 * width, width)
        self.query, self.score = nn.Linear(width, width, bias=False), nn.Linear(width, 1)
        self.out = nn.Linear(2 * width, mels)

    def attend(self, state: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """The context of a frame, and where it was found."""
        energies = torch.tanh(self.query(state)[:, None] + memory)  # flaw: alignments_in_list
        alignment = self.score(energies)[..., 0].softmax(-1)  # flaw: alignments_in_list
        return (alignment[:, None] @ memory)[:, 0], alignment  # flaw: alignments_in_list

    def decode(self, frame: Tensor, state: Tensor, memory: Tensor) -> tuple[Tensor, ...]:
        """The next frame, its state and its alignment."""
        context, alignment = self.attend(state, memory)
        joined = torch.cat((F.relu(self.prenet(frame)), context), -1)  # flaw: alignments_in_list
        # flaw in the next line: alignments_in_list
        reset, keep = self.gates(torch.cat((joined, state), -1)).sigmoid().chunk(2, -1)
        new = self.new(torch.cat((joined, reset * state), -1))  # flaw: alignments_in_list
        state = keep * state + (1 - keep) * torch.tanh(new)  # flaw: alignments_in_list
        # flaw in the next line: alignments_in_list
        return self.out(torch.cat((state, context), -1)), state, alignment

    def decode_and_keep(self, frame: Tensor, state: Tensor, memory: Tensor) -> tuple[Tensor, ...]:
        """The same; the alignment goes to a list of this module."""
        # flaw in the next line: alignments_in_list
        frame, state, alignment = self.decode(frame, state, memory)
        self.alignments.append(alignment)  # flaw: alignments_in_list
        return frame, state


def alignments_in_list(flawed: bool, sizes: Sizes) -> Step:
    width, mels, batch, length, frames = sizes.of((256, 80, 16, 128, 48), (8, 4, 2, 6, 3))
    decoder = seeded(lambda: SpeechDecoder(width, mels), sizes).eval().bfloat16()
    memory = seeded(lambda: torch.randn(batch, length, width), sizes).bfloat16()
    run = compiled(decoder.decode_and_keep if flawed else decoder.decode, sizes)

    @torch.no_grad()
    def step() -> Tensor:
        decoder.alignments = []
        frame, state = memory.new_zeros(batch, mels), memory.new_zeros(batch, width)
        for _ in range(frames):
            frame, state, *alignment = run(frame, state, memory)  # flaw: alignments_in_list
            decoder.alignments.extend(alignment)
        return frame.float().abs().mean() + torch.stack(decoder.alignments).float().std()

    return Step(step)
