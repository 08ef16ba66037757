"""Ten more steps of these kinds, written when the rule was as it is; nothing is fitted to them.

They follow code that people publish: image pipelines, samplers of diffusion models, recommenders,
quantised layers, solvers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verification.flaws.programs.program import Sizes, Step, compiled, copied

from .programs import inference, random

__all__ = [
    "dense_features",
    "focal_loss_apart",
    "guided_sampler",
    "image_pipeline",
    "pixels_embedded",
    "pooled_audio",
    "printed_shapes",
    "quantised_twice",
    "rotary_as_op",
    "spectral_filter",
    "standardised_columns",
    "upwind_fluxes",
]

_BFLOAT16 = torch.bfloat16


def jittered(x: Tensor, brightness: Tensor, contrast: Tensor) -> Tensor:
    return (x * brightness - 0.5) * contrast + 0.5  # fusion: image_pipeline


def normalised(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return (x.clamp(0, 1) - mean) / std  # fusion: image_pipeline


def noised(x: Tensor, noise: Tensor) -> Tensor:
    return x + 0.01 * noise  # fusion: image_pipeline


def image_pipeline(flawed: bool, sizes: Sizes) -> Step:
    """Each transform of a pipeline is compiled by itself."""
    side = sizes.of(224, 16)
    x, noise = random(sizes, sizes.of(512, 2), 3, side, side, count=2).float()
    brightness, contrast = random(sizes, x.shape[0], 1, 1, 1, count=2).float()
    mean, std = random(sizes, 3, 1, 1, count=2).float().abs() + 0.5
    parts = [copied(jittered), copied(normalised), copied(noised)]
    if flawed:
        parts = [compiled(each, sizes) for each in parts]
    jitter, normalise, add_noise = parts

    def pipeline(x: Tensor) -> Tensor:
        return add_noise(normalise(jitter(x, brightness, contrast), mean, std), noise)

    run = pipeline if flawed else compiled(pipeline, sizes)
    return inference(lambda: run(x)[:, 0, 0].mean())


def scores(h: Tensor, bias: Tensor, temperature: Tensor) -> Tensor:
    return (h + bias) / F.softplus(temperature)  # fusion: focal_loss_apart


def focal_loss(logits: Tensor, targets: Tensor) -> Tensor:
    p = torch.sigmoid(logits)  # fusion: focal_loss_apart
    of_target = p * targets + (1 - p) * (1 - targets)  # fusion: focal_loss_apart
    entropy = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return ((1 - of_target) ** 2 * entropy).mean()


def focal_loss_apart(flawed: bool, sizes: Sizes) -> Step:
    """A detector's scores and its loss are compiled apart."""
    h = random(sizes, sizes.of(1048576, 64), 91)[0].float().requires_grad_()
    targets = (random(sizes, *h.shape)[0] > 2).float()
    bias, temperature = (p.float().requires_grad_() for p in random(sizes, 91, count=2))
    first, second = copied(scores), copied(focal_loss)
    if flawed:
        first, second = compiled(first, sizes), compiled(second, sizes)

    def loss_of(h: Tensor) -> Tensor:
        return second(first(h, bias, temperature), targets)

    run = loss_of if flawed else compiled(loss_of, sizes)

    def step() -> Tensor:
        loss = run(h)
        loss.backward()
        h.grad = bias.grad = temperature.grad = None
        return loss.detach()

    return Step(step)


class Gate(nn.Module):
    """A gate whose shapes somebody still prints."""

    def __init__(self, is_printed: bool) -> None:
        super().__init__()
        self.is_printed = is_printed

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        h = F.mish(x) * 1.25  # fusion: printed_shapes
        if self.is_printed:
            print(tuple(h.shape), end="\r")
        return torch.where(skip > 0, h, skip)  # fusion: printed_shapes


def printed_shapes(flawed: bool, sizes: Sizes) -> Step:
    x, skip = random(sizes, sizes.of(65536, 32), sizes.of(4096, 32), count=2)
    run = compiled(Gate(flawed), sizes)
    return inference(lambda: run(x, skip)[:, 0].float().mean())


def guided(cond: Tensor, uncond: Tensor, scale: float) -> Tensor:
    return uncond + scale * (cond - uncond)  # fusion: guided_sampler


def stepped(x: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:
    return (x - sigma * noise) / (1 + sigma.square()).sqrt()  # fusion: guided_sampler


def guided_sampler(flawed: bool, sizes: Sizes) -> Step:
    """The clamp between guidance and the sampler's step is eager."""
    side = sizes.of(512, 8)
    x, cond, uncond = random(sizes, sizes.of(256, 2), 4, side, side, count=3)
    sigma = random(sizes, x.shape[0], 1, 1, 1)[0].abs()
    first, second = copied(guided), copied(stepped)
    if flawed:
        first, second = compiled(first, sizes), compiled(second, sizes)

    def sample(x: Tensor) -> Tensor:
        noise = first(cond, uncond, 7.5)
        noise = noise.clamp(-3, 3)  # fusion: guided_sampler
        return second(x, noise, sigma)

    run = sample if flawed else compiled(sample, sizes)
    return inference(lambda: run(x)[:, 0, 0].float().mean())


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


@torch.library.custom_op("fusions::rotary", mutates_args=())
def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return turned(x, cos, sin)


@rotary.register_fake
def _(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.empty_like(x)


def queries(x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, is_op: bool) -> Tensor:
    x = F.rms_norm(x, weight.shape, weight)  # fusion: rotary_as_op
    x = rotary(x, cos, sin) if is_op else turned(x, cos, sin)  # fusion: rotary_as_op
    return x * 0.125  # fusion: rotary_as_op


def rotary_as_op(flawed: bool, sizes: Sizes) -> Step:
    x = random(sizes, sizes.of(16, 1), sizes.of(4096, 16), 32, 128)[0]
    cos, sin = random(sizes, x.shape[1], 1, 64, count=2)
    weight = random(sizes, 128)[0]
    run = compiled(copied(queries), sizes)
    return inference(lambda: run(x, weight, cos, sin, flawed)[:, 0].float().mean())


def filtered(x: Tensor, gain: Tensor, spectrum: Tensor, phase: Tensor) -> Tensor:
    x = x * gain  # fusion: spectral_filter
    turned = torch.complex(x, phase) * spectrum  # fusion: spectral_filter
    return turned.real.relu() + turned.imag  # fusion: spectral_filter


def filtered_in_parts(x: Tensor, gain: Tensor, spectrum: Tensor, phase: Tensor) -> Tensor:
    x = x * gain
    re, im = torch.view_as_real(spectrum).unbind(-1)
    return (x * re - phase * im).relu() + (x * im + phase * re)


def spectral_filter(flawed: bool, sizes: Sizes) -> Step:
    x, phase = random(sizes, sizes.of(16384, 16), sizes.of(8192, 16), count=2).float()
    gain = random(sizes, x.shape[-1])[0].float()
    spectrum = torch.complex(*random(sizes, x.shape[-1], count=2).float())
    run = compiled(copied(filtered if flawed else filtered_in_parts), sizes)
    return inference(lambda: run(x, gain, spectrum, phase)[:, 0].mean())


def interacted(parts: list[Tensor], mean: Tensor, scale: Tensor) -> Tensor:
    wide = torch.cat(parts, 1)  # fusion: dense_features
    return torch.tanh((wide - mean) * scale)  # fusion: dense_features


def dense_features(flawed: bool, sizes: Sizes) -> Step:
    """A recommender joins its embeddings, and scales them."""
    parts = list(random(sizes, sizes.of(131072, 16), 64, count=26))
    mean, scale = random(sizes, 26 * 64, count=2)
    options = {} if flawed else {"options": {"max_pointwise_cat_inputs": 32}}
    run = compiled(copied(interacted), sizes, **options)
    return inference(lambda: run(parts, mean, scale)[:, 0].float().mean())


def fluxes(parts: list[Tensor]) -> Tensor:
    density, speed, pressure, energy, depth = parts
    flux = density * speed.square() + pressure + energy * depth  # fusion: upwind_fluxes
    return density[:, 1:] - 0.1 * (flux[:, 1:] - flux[:, :-1])  # fusion: upwind_fluxes


def upwind_fluxes(flawed: bool, sizes: Sizes) -> Step:
    parts = list(random(sizes, sizes.of(8192, 32), sizes.of(16384, 32), count=5).float())
    options = {} if flawed else {"options": {"realize_reads_threshold": 16}}
    run = compiled(copied(fluxes), sizes, **options)
    return inference(lambda: run(parts)[:, 0].mean())


def downsampled(x: Tensor, skip: Tensor) -> Tensor:
    h = F.leaky_relu(x + skip, 0.1)  # fusion: pooled_audio
    return F.avg_pool1d(h, 4)  # fusion: pooled_audio


def downsampled_by_view(x: Tensor, skip: Tensor) -> Tensor:
    return F.leaky_relu(x + skip, 0.1).unflatten(-1, (-1, 4)).mean(-1)


def pooled_audio(flawed: bool, sizes: Sizes) -> Step:
    x, skip = random(sizes, sizes.of(128, 2), 64, sizes.of(32768, 32), count=2)
    run = compiled(copied(downsampled if flawed else downsampled_by_view), sizes)
    return inference(lambda: run(x, skip)[:, 0].float().mean())


def quantised(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    q = (x / scale).round().clamp(-127, 127).to(torch.int8)  # fusion: quantised_twice
    return q, q.t().contiguous()  # fusion: quantised_twice


def quantised_twice(flawed: bool, sizes: Sizes) -> Step:
    """Int8 activations for the forward, and transposed for the backward."""
    x = random(sizes, sizes.of(65536, 32), sizes.of(4096, 32))[0]
    scale = random(sizes, x.shape[0], 1)[0].abs() + 0.1
    options = {"options": {"loop_ordering_after_fusion": not flawed}}
    run = compiled(copied(quantised), sizes, **options)

    def step() -> Tensor:
        rows, columns = run(x, scale)
        return rows[:, 0].float().mean() + columns[:, 0].float().mean()

    return inference(step)


def embedded(pixels: Tensor, weight: Tensor) -> Tensor:
    x = pixels.to(_BFLOAT16) / 255  # fusion: pixels_embedded
    return x @ weight  # fusion: pixels_embedded


def pixels_embedded(flawed: bool, sizes: Sizes) -> Step:
    """Patches of 16 x 16 pixels in bytes are embedded in few channels."""
    pixels = (random(sizes, sizes.of(786432, 32), 768)[0].abs() * 80).clamp(0, 255).byte()
    weight = random(sizes, 768, 96)[0]
    options = {} if flawed else {"options": {"max_autotune": True}}
    run = compiled(copied(embedded), sizes, **options)
    return inference(lambda: run(pixels, weight)[:, 0].float().mean())


def standardised(table: Tensor, widths: Tensor) -> Tensor:
    columns = []
    for column, width in zip(table.unbind(1), widths, strict=True):
        spread = column.std(-1, keepdim=True)  # fusion: standardised_columns
        columns.append((column - column.mean(-1, keepdim=True)) / spread * width)
    return torch.cat(columns, 1)


def standardised_columns(flawed: bool, sizes: Sizes) -> Step:
    """Each of 160 features is standardised by itself, in a CUDA graph."""
    table = random(sizes, sizes.of(2048, 16), sizes.of(160, 4), 64)[0].float()
    widths = random(sizes, table.shape[1], 64)[0].float()
    for tensor in (table, widths):
        torch._dynamo.mark_static_address(tensor, guard=False)
    options = {"triton.cudagraphs": True, "combo_kernels": not flawed}
    run = compiled(copied(standardised), sizes, options=options)
    return inference(lambda: run(table, widths)[:, 0].abs().mean(), warm_up=6)
