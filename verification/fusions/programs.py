"""Steps with two kernels that could be one, beside the same step with the setting or the edit.

Each function makes the flawed or the remedied step of one kind; the lines that are marked are
those of the two kernels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verification.flaws.programs.program import Sizes, Step, compiled, copied, seeded

from .swiglu import swiglu

__all__ = [
    "cat_of_many",
    "complex_rotation",
    "custom_op",
    "disabled_helper",
    "eager_between",
    "eager_random",
    "epilogue",
    "light_epilogue",
    "pool_of_sum",
    "prologue",
    "regional_blocks",
    "side_by_side",
    "stencil",
    "transposed_copy",
    "two_functions",
    "user_triton",
    "windows",
]

_BFLOAT16 = torch.bfloat16


def random(sizes: Sizes, *shape: int, count: int = 1, dtype: torch.dtype = _BFLOAT16) -> Tensor:
    return seeded(lambda: torch.randn(count, *shape), sizes).to(dtype)


def inference(run: Callable[[], Tensor], warm_up: int = 4) -> Step:
    return Step(torch.inference_mode()(run), warm_up=warm_up)


class Modulated(nn.Module):
    """A gated activation that somebody looks at."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))
        self.calls = 0

    @torch.compiler.disable
    def count(self, h: Tensor) -> None:
        self.calls += h.shape[0]

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        h = F.gelu(x + self.bias)  # fusion: disabled_helper
        self.count(h)
        return h * torch.sigmoid(gate)  # fusion: disabled_helper


class Uncounted(Modulated):
    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        h = F.gelu(x + self.bias)
        return h * torch.sigmoid(gate)


def disabled_helper(flawed: bool, sizes: Sizes) -> Step:
    x, gate = random(sizes, sizes.of(65536, 32), sizes.of(8192, 32), count=2)
    model = seeded(lambda: (Modulated if flawed else Uncounted)(x.shape[-1]), sizes).to(x.dtype)
    run = compiled(model, sizes)
    return inference(lambda: run(x, gate)[:, 0].float().mean())


def modulate(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return x * (1 + scale) + shift  # fusion: two_functions


def gated(x: Tensor, h: Tensor, gate: Tensor) -> Tensor:
    return x + gate * F.silu(h)  # fusion: two_functions


def two_functions(flawed: bool, sizes: Sizes) -> Step:
    x, skip = random(sizes, sizes.of(65536, 32), sizes.of(4096, 32), count=2)
    scale, shift, gate = (p.requires_grad_() for p in random(sizes, x.shape[-1], count=3))
    x.requires_grad_()
    first, second = copied(modulate), copied(gated)
    if flawed:
        first, second = compiled(first, sizes), compiled(second, sizes)

    def block(x: Tensor) -> Tensor:
        return second(skip, first(x, scale, shift), gate)

    run = block if flawed else compiled(block, sizes)
    grad = torch.ones_like(x)

    def step() -> Tensor:
        out = run(x)
        out.backward(grad)
        x.grad = scale.grad = shift.grad = gate.grad = None
        return out.detach()[:, 0].float().mean()

    return Step(step)


class Block(nn.Module):
    """A residual block with a thin product."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.down = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)  # fusion: regional_blocks
        h = self.up(F.gelu(self.down(h)))
        return x + 0.5 * h  # fusion: regional_blocks


def regional_blocks(flawed: bool, sizes: Sizes) -> Step:
    x = random(sizes, sizes.of(65536, 32), sizes.of(2048, 32))[0]
    made = seeded(lambda: nn.Sequential(*(Block(x.shape[-1], 64) for _ in range(6))), sizes)
    model = made.to(x.dtype)
    if flawed:
        for at, block in enumerate(model):
            model[at] = compiled(block, sizes)
    run = model if flawed else compiled(model, sizes)
    return inference(lambda: run(x)[:, 0].float().mean())


def normalised(x: Tensor, weight: Tensor) -> Tensor:
    return F.gelu(F.rms_norm(x, (x.shape[-1],), weight))  # fusion: eager_between


def combined(h: Tensor, gate: Tensor) -> Tensor:
    return h * torch.sigmoid(gate) + h  # fusion: eager_between


def eager_between(flawed: bool, sizes: Sizes) -> Step:
    x, gate = random(sizes, sizes.of(131072, 32), sizes.of(4096, 32), count=2)
    weight, padding = random(sizes, x.shape[-1])[0], random(sizes, x.shape[0], 1)[0] > 1
    first, second = copied(normalised), copied(combined)
    if flawed:
        first, second = compiled(first, sizes), compiled(second, sizes)

    def block(x: Tensor, gate: Tensor) -> Tensor:
        h = first(x, weight)
        h = h.masked_fill(padding, 0.0)  # fusion: eager_between
        return second(h, gate)

    run = block if flawed else compiled(block, sizes)
    return inference(lambda: run(x, gate)[:, 0].float().mean())


@torch.library.custom_op("fusions::squared_relu", mutates_args=())
def squared_relu(x: Tensor) -> Tensor:
    return torch.relu(x).square_()  # fusion: custom_op


@squared_relu.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def activated(x: Tensor, bias: Tensor, gate: Tensor, is_custom: bool) -> Tensor:
    h = x + bias  # fusion: custom_op
    h = squared_relu(h) if is_custom else torch.relu(h).square()  # fusion: custom_op
    return h * gate  # fusion: custom_op


def custom_op(flawed: bool, sizes: Sizes) -> Step:
    x, gate = random(sizes, sizes.of(65536, 32), sizes.of(8192, 32), count=2)
    bias = random(sizes, x.shape[-1])[0]
    run = compiled(copied(activated), sizes)
    return inference(lambda: run(x, bias, gate, flawed)[:, 0].float().mean())


def gated_unit(x: Tensor, up: Tensor, skip: Tensor) -> Tensor:
    x, up = x * 0.5, up + 1  # fusion: user_triton
    h = swiglu(x, up)  # fusion: user_triton
    return skip + h  # fusion: user_triton


def gated_unit_in_torch(x: Tensor, up: Tensor, skip: Tensor) -> Tensor:
    x, up = x * 0.5, up + 1
    return skip + F.silu(x) * up


def user_triton(flawed: bool, sizes: Sizes) -> Step:
    x, up, skip = random(sizes, sizes.of(65536, 32), sizes.of(8192, 32), count=3)
    run = compiled(copied(gated_unit if flawed else gated_unit_in_torch), sizes)
    return inference(lambda: run(x, up, skip)[:, 0].float().mean())


def rotated(x: Tensor, scale: Tensor, freqs: Tensor) -> Tensor:
    x = x.float() * scale  # fusion: complex_rotation
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    turned = torch.view_as_real(pairs * freqs).flatten(-2)  # fusion: complex_rotation
    return turned.to(_BFLOAT16) * 0.125  # fusion: complex_rotation


def rotated_in_pairs(x: Tensor, scale: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    x = x.float() * scale
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
    return turned.to(_BFLOAT16) * 0.125


def complex_rotation(flawed: bool, sizes: Sizes) -> Step:
    x = random(sizes, sizes.of(8192, 16), 32, 128, count=sizes.of(8, 1))
    scale = random(sizes, 128)[0].float()
    angles = seeded(lambda: torch.rand(x.shape[1], 1, 64), sizes)
    turns = (torch.polar(torch.ones_like(angles), angles),)
    turns = turns if flawed else (angles.cos(), angles.sin())
    run = compiled(copied(rotated if flawed else rotated_in_pairs), sizes)
    return inference(lambda: run(x, scale, *turns)[:, 0].float().abs().mean())


def dropped(x: Tensor, h: Tensor, bias: Tensor) -> Tensor:
    h = F.dropout(F.gelu(h + bias), 0.1)  # fusion: eager_random
    return F.dropout(x + h, 0.1)  # fusion: eager_random


def eager_random(flawed: bool, sizes: Sizes) -> Step:
    x, h = random(sizes, sizes.of(65536, 64), sizes.of(4096, 64), count=2)
    bias = random(sizes, x.shape[-1])[0]
    run = compiled(copied(dropped), sizes, options={"fallback_random": flawed})
    return inference(lambda: run(x, h, bias)[:, 0].float().abs().mean())


def concatenated(parts: list[Tensor], bias: Tensor) -> Tensor:
    features = torch.cat(parts, 1)  # fusion: cat_of_many
    return F.gelu(features + bias)  # fusion: cat_of_many


def cat_of_many(flawed: bool, sizes: Sizes) -> Step:
    parts = list(random(sizes, sizes.of(262144, 32), 128, count=12))
    bias = random(sizes, 12 * 128)[0]
    options = {} if flawed else {"options": {"max_pointwise_cat_inputs": 16}}
    run = compiled(copied(concatenated), sizes, **options)
    return inference(lambda: run(parts, bias)[:, 0].float().mean())


def differences(parts: list[Tensor]) -> Tensor:
    a, b, c, d, e, f = parts
    field = a * b + c * d + e * f  # fusion: stencil
    return (field[1:] - field[:-1]).abs()  # fusion: stencil


def stencil(flawed: bool, sizes: Sizes) -> Step:
    parts = list(random(sizes, sizes.of(65536, 32), sizes.of(4096, 32), count=6))
    options = {} if flawed else {"options": {"realize_reads_threshold": 16}}
    run = compiled(copied(differences), sizes, **options)
    return inference(lambda: run(parts)[:, 0].float().mean())


def smoothed(x: Tensor, bias: Tensor) -> Tensor:
    h = F.gelu(x + bias)  # fusion: windows
    count, channels = h.shape
    pairs = h.as_strided((count - 1, 2, channels), (channels, channels, 1))  # fusion: windows
    return pairs.mean(1)  # fusion: windows


def smoothed_by_slices(x: Tensor, bias: Tensor) -> Tensor:
    h = F.gelu(x + bias)
    return (h[1:] + h[:-1]) / 2


def windows(flawed: bool, sizes: Sizes) -> Step:
    x = random(sizes, sizes.of(131072, 32), sizes.of(4096, 32))[0]
    bias = random(sizes, x.shape[-1])[0]
    run = compiled(copied(smoothed if flawed else smoothed_by_slices), sizes)
    return inference(lambda: run(x, bias)[:, 0].float().mean())


def pooled(x: Tensor, y: Tensor) -> Tensor:
    h = F.relu(x + y)  # fusion: pool_of_sum
    return F.avg_pool2d(h, 2)  # fusion: pool_of_sum


def pooled_by_view(x: Tensor, y: Tensor) -> Tensor:
    h = F.relu(x + y)
    return h.unflatten(-1, (-1, 2)).unflatten(-3, (-1, 2)).mean((-1, -3))


def pool_of_sum(flawed: bool, sizes: Sizes) -> Step:
    x, y = random(sizes, sizes.of(256, 2), 64, sizes.of(128, 8), sizes.of(128, 8), count=2)
    run = compiled(copied(pooled if flawed else pooled_by_view), sizes)
    return inference(lambda: run(x, y)[:, 0].float().mean())


def both_layouts(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    rows = (x * scale).to(torch.float8_e4m3fn)  # fusion: transposed_copy
    return rows, rows.t().contiguous()  # fusion: transposed_copy


def transposed_copy(flawed: bool, sizes: Sizes) -> Step:
    x = random(sizes, sizes.of(32768, 32), sizes.of(16384, 32))[0]
    scale = random(sizes, 1)[0]
    options = {"options": {"loop_ordering_after_fusion": not flawed}}
    run = compiled(copied(both_layouts), sizes, **options)

    def step() -> Tensor:
        rows, columns = run(x, scale)
        return rows[:, 0].float().mean() + columns[:, 0].float().mean()

    return inference(step)


def expanded(x: Tensor, weight: Tensor, gate: Tensor) -> Tensor:
    h = x @ weight  # fusion: epilogue
    return F.gelu(h) * gate  # fusion: epilogue


def epilogue(flawed: bool, sizes: Sizes) -> Step:
    x = random(sizes, sizes.of(1048576, 32), 64)[0]
    weight, gate = random(sizes, 64, 512)[0], random(sizes, 512)[0]
    options = {} if flawed else {"options": {"max_autotune": True}}
    run = compiled(copied(expanded), sizes, **options)
    return inference(lambda: run(x, weight, gate)[:, 0].float().mean())


def adapted(x: Tensor, weight: Tensor, skip: Tensor) -> Tensor:
    h = x @ weight  # fusion: light_epilogue
    return skip + h  # fusion: light_epilogue


def light_epilogue(flawed: bool, sizes: Sizes) -> Step:
    x = random(sizes, sizes.of(1048576, 32), 64)[0]
    weight, skip = random(sizes, 64, 512)[0], random(sizes, x.shape[0], 512)[0]
    options = {} if flawed else {"options": {"max_autotune": True}}
    run = compiled(copied(adapted), sizes, **options)
    return inference(lambda: run(x, weight, skip)[:, 0].float().mean())


def dequantised(x: Tensor, scale: Tensor, weight: Tensor) -> Tensor:
    rows = x.to(_BFLOAT16)  # fusion: prologue
    return (rows @ weight) * scale  # fusion: prologue


def prologue(flawed: bool, sizes: Sizes) -> Step:
    x = (random(sizes, sizes.of(1048576, 32), 1024)[0] * 8).to(torch.int8)
    scale, weight = random(sizes, 64)[0], random(sizes, 1024, 64)[0]
    options = {} if flawed else {"options": {"max_autotune": True}}
    run = compiled(copied(dequantised), sizes, **options)
    return inference(lambda: run(x, scale, weight)[:, 0].float().mean())


def features(x: Tensor, weights: Tensor) -> Tensor:
    own = []
    for column, weight in zip(x.unbind(1), weights, strict=True):
        own.append(F.layer_norm(column, weight.shape, weight))  # fusion: side_by_side
    return torch.cat(own, 1)


def side_by_side(flawed: bool, sizes: Sizes) -> Step:
    x = random(sizes, sizes.of(4096, 16), sizes.of(256, 4), 32)[0].float()
    weights = random(sizes, x.shape[1], 32)[0].float()
    for tensor in (x, weights):
        torch._dynamo.mark_static_address(tensor, guard=False)
    options = {"triton.cudagraphs": True, "combo_kernels": not flawed}
    run = compiled(copied(features), sizes, options=options)
    return inference(lambda: run(x, weights)[:, 0].abs().mean(), warm_up=6)
