"""Flaws of flows, of what makes pictures and sounds, and of networks of sums and hidden states."""

from __future__ import annotations

import functools
import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "determinants_each_forward",
    "hidden_states_in_sequence",
    "style_seen_each_step",
    "text_keys_each_denoising",
    "vocoder_deterministic",
    "waves_multiplied_and_summed",
]


class Mixing(nn.Module):
    """An invertible product of the channels of each pixel, and the log of its determinant."""

    def __init__(self, channels: int, by_factors: bool) -> None:
        super().__init__()
        self.by_factors = by_factors
        weight, _ = torch.linalg.qr(torch.randn(channels, channels))
        permuted, lower, upper = torch.linalg.lu(weight)
        self.weight, self.lower = nn.Parameter(weight), nn.Parameter(lower.tril(-1))
        self.upper, diagonal = nn.Parameter(upper.triu(1)), upper.diagonal()
        self.log_scale = nn.Parameter(diagonal.abs().log())
        self.signs, self.permuted = nn.Buffer(diagonal.sign()), nn.Buffer(permuted)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.by_factors:
            one = torch.eye(len(self.signs), device=x.device)
            upper = self.upper.triu(1) + torch.diag(self.signs * self.log_scale.exp())
            weight = self.permuted @ (self.lower.tril(-1) + one) @ upper
            return F.conv2d(x, weight[..., None, None]), self.log_scale.sum()
        _, log_volume = torch.linalg.slogdet(self.weight)  # flaw: determinants_each_forward
        return F.conv2d(x, self.weight[..., None, None]), log_volume


class FlowStep(nn.Module):
    """Channels are mixed, and half of them scale and shift the others."""

    def __init__(self, channels: int, width: int, by_factors: bool) -> None:
        super().__init__()
        self.mixing = Mixing(channels, by_factors)
        self.net = nn.Sequential(
            nn.Conv2d(channels // 2, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, channels, 3, padding=1),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mixed, log_volume = self.mixing(x)  # flaw: determinants_each_forward
        own, other = mixed.chunk(2, 1)
        shift, scale = self.net(own).chunk(2, 1)
        scale = 0.5 * scale.tanh()
        x = torch.cat((own, other * scale.exp() + shift), 1)
        return x, log_volume * x[0, 0].numel() + scale.sum((1, 2, 3))


def determinants_each_forward(flawed: bool, sizes: Sizes) -> Step:
    batch, channels, side, width, depth = sizes.of((32, 48, 16, 256, 32), (2, 4, 4, 8, 2))
    model = seeded(
        lambda: nn.ModuleList(FlowStep(channels, width, not flawed) for _ in range(depth)), sizes
    )
    images = seeded(lambda: torch.randn(batch, channels, side, side), sizes)

    def loss() -> Tensor:
        x, volume = images, torch.zeros(batch, device=images.device)
        for flow in model:
            x, own = flow(x)  # flaw: determinants_each_forward
            volume = volume + own
        likely = -0.5 * x.square().sum((1, 2, 3)) + volume
        return -likely.mean() / images[0].numel()

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class TextedLayer(nn.Module):
    """A layer of a diffusion transformer that looks at a text."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2, self.norm_3 = (nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.queries, self.texts = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.key_norm, self.merge = nn.RMSNorm(width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def seen(self, text: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a text."""
        k, v = self.texts(text).chunk(2, -1)  # flaw: text_keys_each_denoising
        return self.split(self.key_norm(k)), self.split(v)  # flaw: text_keys_each_denoising

    def forward(self, x: Tensor, seen: tuple[Tensor, Tensor]) -> Tensor:
        q, k, v = (self.split(each) for each in self.qkv(self.norm_1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = F.scaled_dot_product_attention(self.split(self.queries(self.norm_2(x))), *seen)
        x = x + self.merge(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_3(x))))


def text_keys_each_denoising(flawed: bool, sizes: Sizes) -> Step:
    batch, patches, words, width, heads, depth, turns = sizes.of(
        (4, 256, 512, 1536, 12, 16, 6), (2, 4, 6, 8, 2, 2, 3)
    )
    layers = seeded(lambda: nn.ModuleList(TextedLayer(width, heads) for _ in range(depth)), sizes)
    layers = layers.eval().bfloat16()
    first, text = seeded(
        lambda: (torch.randn(batch, patches, width), torch.randn(batch, words, width)), sizes
    )
    first, text = first.bfloat16(), text.bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        x = first
        once = None if flawed else [layer.seen(text) for layer in layers]
        for _ in range(turns):
            y = x
            for at, layer in enumerate(layers):
                # flaw in the next line: text_keys_each_denoising
                y = layer(y, layer.seen(text) if once is None else once[at])
            x = x - y / turns
        return x.float().square().mean()

    return Step(step)


class Features(nn.Module):
    """A fixed network whose features tell the style of a picture."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.stages = nn.ModuleList()
        before = 3
        for width in widths:
            convs = (nn.Conv2d(before, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1))
            self.stages.append(nn.Sequential(convs[0], nn.ReLU(), convs[1], nn.ReLU()))
            before = width

    def forward(self, x: Tensor) -> list[Tensor]:
        found = []
        for at, stage in enumerate(self.stages):
            x = stage(F.max_pool2d(x, 2) if at else x)  # flaw: style_seen_each_step
            found.append(x)
        return found


def grams(features: list[Tensor]) -> list[Tensor]:
    """Products of the channels of features."""
    flat = [each.flatten(2) for each in features]
    return [each @ each.mT / each[0].numel() for each in flat]  # flaw: style_seen_each_step


class Transformed(nn.Module):
    """A picture in another style."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.into, self.out = nn.Conv2d(3, width, 9, 4, 4), nn.ConvTranspose2d(width, 3, 4, 4)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        for conv in self.convs:
            x = x + F.relu(conv(x))
        return self.out(x)


def style_seen_each_step(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width, depth = sizes.of((8, 256, 128, 10), (2, 16, 4, 1))
    model = seeded(lambda: Transformed(width, depth), sizes)
    features_of = seeded(lambda: Features(sizes.of((64, 128, 256, 512), (4, 8))), sizes)
    model, features_of = (
        each.to(memory_format=torch.channels_last) for each in (model, features_of)
    )
    features_of.requires_grad_(False)
    contents, style = seeded(
        lambda: (torch.randn(batch, 3, side, side), torch.randn(1, 3, side, side)), sizes
    )
    contents = contents.contiguous(memory_format=torch.channels_last)

    def style_grams() -> list[Tensor]:
        with torch.autocast(sizes.device, dtype=torch.bfloat16):
            every = style.expand(batch, -1, -1, -1)  # flaw: style_seen_each_step
            return grams(features_of(every))  # flaw: style_seen_each_step

    kept = style_grams()

    def loss() -> Tensor:
        found = features_of(model(contents))
        wanted = style_grams() if flawed else kept  # flaw: style_seen_each_step
        errors = [
            F.mse_loss(own.float(), other.float())
            for own, other in zip(grams(found), wanted, strict=True)
        ]
        return 1e3 * torch.stack(errors).sum()

    return Step(training(loss, fused_adamw(model), sizes))


class WaveLayer(nn.Module):
    """Each output is a sum of waves of all inputs."""

    def __init__(self, inputs: int, outputs: int, waves: int, written: bool) -> None:
        super().__init__()
        self.written = written
        scale = (inputs * waves) ** -0.5
        self.weights = nn.Parameter(torch.randn(2, outputs, inputs, waves) * scale)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        times = torch.arange(1, self.weights.shape[3] + 1, device=x.device)
        cosines, sines = (x[..., None] * times).cos(), (x[..., None] * times).sin()
        if self.written:
            # flaw in the next line: waves_multiplied_and_summed
            y = (cosines[:, None] * self.weights[0]).sum((2, 3))
            # flaw in the next line: waves_multiplied_and_summed
            y = y + (sines[:, None] * self.weights[1]).sum((2, 3))
            return y + self.bias
        both = torch.stack((cosines, sines), 1).flatten(1)
        return F.linear(both, self.weights.transpose(0, 1).flatten(1), self.bias)


def waves_multiplied_and_summed(flawed: bool, sizes: Sizes) -> Step:
    batch, widths, waves = sizes.of((128, (784, 256, 256, 10), 8), (3, (5, 4, 3), 2))
    model = seeded(
        lambda: nn.Sequential(
            *(
                WaveLayer(inputs, outputs, waves, flawed)
                for inputs, outputs in itertools.pairwise(widths)
            )
        ),
        sizes,
    )
    x = seeded(lambda: torch.randn(batch, widths[0]), sizes)
    labels = torch.arange(batch, device=sizes.device) % widths[-1]

    def loss() -> Tensor:
        return F.cross_entropy(model(x), labels)  # flaw: waves_multiplied_and_summed

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class Vocoder(nn.Module):
    """Frames of a spectrum as sound, by transposed and dilated convolutions."""

    def __init__(self, bands: int, width: int, factors: tuple[int, ...]) -> None:
        super().__init__()
        self.into = nn.Conv1d(bands, width, 7, padding=3)
        self.ups, self.convs = nn.ModuleList(), nn.ModuleList()
        for at, factor in enumerate(factors):
            own = width >> at
            self.ups.append(nn.ConvTranspose1d(own, own // 2, 2 * factor, factor, factor // 2))
            for dilation in (1, 3, 5):
                padding = 3 * dilation
                conv = nn.Conv1d(own // 2, own // 2, 7, padding=padding, dilation=dilation)
                self.convs.append(conv)
        self.out = nn.Conv1d(width >> len(factors), 1, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        for at, up in enumerate(self.ups):
            x = up(F.leaky_relu(x, 0.1))
            for conv in self.convs[3 * at : 3 * at + 3]:
                x = x + conv(F.leaky_relu(x, 0.1))
        return self.out(x).squeeze(1)


def vocoder_deterministic(flawed: bool, sizes: Sizes) -> Step:
    batch, bands, frames, width, factors = sizes.of(
        (16, 80, 64, 512, (8, 8, 2, 2)), (2, 4, 5, 8, (4, 2))
    )
    model = seeded(lambda: Vocoder(bands, width, factors), sizes)
    spectra = seeded(lambda: torch.randn(batch, bands, frames), sizes)

    def loss() -> Tensor:
        sound = model(spectra)
        return (sound[:, 1:] - sound[:, :-1]).abs().mean() + sound.square().mean()

    step = training(loss, fused_adamw(model), sizes, is_mixed=False)
    within = functools.partial(
        torch.backends.cudnn.flags, enabled=True, benchmark=False, deterministic=flawed
    )
    return Step(step, within)


def log_product(x: Tensor, y: Tensor) -> Tensor:
    """The log of a product of matrices, of which the logs are given."""
    x_most, y_most = x.amax(-1, keepdim=True), y.amax(-2, keepdim=True)
    return ((x - x_most).exp() @ (y - y_most).exp()).log() + x_most + y_most


def likelihood_in_sequence(first: Tensor, changes: Tensor) -> Tensor:
    """The log-likelihood of a chain, moment by moment."""
    state = first
    for change in changes.unbind(1):
        moved = state[:, :, None] + change  # flaw: hidden_states_in_sequence
        state = moved.logsumexp(1)  # flaw: hidden_states_in_sequence
    return state.logsumexp(1)


def likelihood_in_pairs(first: Tensor, changes: Tensor) -> Tensor:
    """The same, where pairs of neighbours are multiplied until one is left."""
    while changes.shape[1] > 1:
        changes = log_product(changes[:, 0::2], changes[:, 1::2])
    return (first[:, :, None] + changes[:, 0]).logsumexp((1, 2))


def hidden_states_in_sequence(flawed: bool, sizes: Sizes) -> Step:
    batch, moments, states, width = sizes.of((64, 512, 16, 128), (2, 8, 3, 4))
    network = seeded(
        lambda: nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, states)), sizes
    )
    transitions, start = seeded(
        lambda: (
            nn.Parameter(torch.randn(states, states)),
            nn.Parameter(torch.zeros(states)),
        ),
        sizes,
    )
    seen = seeded(lambda: torch.randn(batch, moments, 8), sizes)
    weights = [*network.parameters(), transitions, start]
    optimizer = torch.optim.AdamW(weights, lr=1e-3, fused=True)
    likelihood = likelihood_in_sequence if flawed else likelihood_in_pairs

    def loss() -> Tensor:
        scores = F.logsigmoid(network(seen))
        changes = F.log_softmax(transitions, 1) + scores[:, :, None]
        first = F.log_softmax(start, 0).expand(batch, -1)
        found = likelihood(first, changes)  # flaw: hidden_states_in_sequence
        return -found.mean() / moments

    return Step(training(loss, optimizer, sizes, is_mixed=False))
