"""More steps of these kinds, written after the rule and its models.

They were fitted to nothing when they were timed. Since, `affine_blocks` has changed the rule.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verification.flaws.programs.program import Sizes, Step, compiled, copied

from .programs import inference, random

__all__ = [
    "affine_blocks",
    "cat_of_twenty",
    "laplacian",
    "logged_activation",
    "mask_product",
    "norm_as_custom_op",
    "scaled_between",
]

_BFLOAT16 = torch.bfloat16


class Affine(nn.Module):
    """A residual block without products, as in mixers of states."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)  # fusion: affine_blocks
        return x + self.scale * F.silu(h)  # fusion: affine_blocks


def affine_blocks(flawed: bool, sizes: Sizes) -> Step:
    x = random(sizes, sizes.of(32768, 32), sizes.of(4096, 32))[0].requires_grad_()
    torch.manual_seed(0)
    model = nn.Sequential(*(Affine(x.shape[-1]) for _ in range(4))).to(x.device, x.dtype)
    if flawed:
        for at, block in enumerate(model):
            model[at] = compiled(block, sizes)
    run = model if flawed else compiled(model, sizes)
    grad = torch.ones_like(x)

    def step() -> Tensor:
        out = run(x)
        out.backward(grad)
        x.grad = None
        model.zero_grad(set_to_none=True)
        return out.detach()[:, 0].float().mean()

    return Step(step)


class Logged(nn.Module):
    """An activation that keeps the sizes of what it gets."""

    def __init__(self, is_logged: bool) -> None:
        super().__init__()
        self.is_logged, self.sizes = is_logged, set[int]()

    @torch.compiler.disable
    def log(self, h: Tensor) -> None:
        self.sizes.add(h.shape[0])

    def forward(self, x: Tensor, up: Tensor) -> Tensor:
        h = F.silu(x) * up  # fusion: logged_activation
        if self.is_logged:
            self.log(h)
        return torch.tanh(h) + x  # fusion: logged_activation


def logged_activation(flawed: bool, sizes: Sizes) -> Step:
    x, up = random(sizes, sizes.of(32768, 32), sizes.of(8192, 32), count=2)
    x, up = x.requires_grad_(), up.requires_grad_()
    run = compiled(Logged(flawed), sizes)
    grad = torch.ones_like(x)

    def step() -> Tensor:
        out = run(x, up)
        out.backward(grad)
        x.grad = up.grad = None
        return out.detach()[:, 0].float().mean()

    return Step(step)


@torch.library.custom_op("fusions::norm", mutates_args=())
def norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.layer_norm(x, weight.shape, weight)


def normalised(x: Tensor, weight: Tensor) -> Tensor:
    return F.layer_norm(x, weight.shape, weight)


@norm.register_fake
def _(x: Tensor, weight: Tensor) -> Tensor:
    return torch.empty_like(x)


def normed(x: Tensor, skip: Tensor, weight: Tensor, is_custom: bool) -> Tensor:
    own = norm if is_custom else normalised
    h = x + skip  # fusion: norm_as_custom_op
    h = own(h, weight)  # fusion: norm_as_custom_op
    return F.relu(h)  # fusion: norm_as_custom_op


def norm_as_custom_op(flawed: bool, sizes: Sizes) -> Step:
    x, skip = random(sizes, sizes.of(65536, 32), sizes.of(4096, 32), count=2)
    weight = random(sizes, x.shape[-1])[0]
    run = compiled(copied(normed), sizes)
    return inference(lambda: run(x, skip, weight, flawed)[:, 0].float().mean())


def gathered(parts: list[Tensor], scale: Tensor) -> Tensor:
    rows = torch.cat(parts)  # fusion: cat_of_twenty
    return F.silu(rows) * scale  # fusion: cat_of_twenty


def cat_of_twenty(flawed: bool, sizes: Sizes) -> Step:
    parts = list(random(sizes, sizes.of(4096, 8), sizes.of(2048, 32), count=20).float())
    scale = random(sizes, parts[0].shape[-1])[0].float()
    options = {} if flawed else {"options": {"max_pointwise_cat_inputs": 20}}
    run = compiled(copied(gathered), sizes, **options)
    return inference(lambda: run(parts, scale)[:, 0].mean())


def field_of(parts: list[Tensor]) -> Tensor:
    a, b, c, d, e = parts
    field = (a - b) * c + d * e  # fusion: laplacian
    x = field[1:-1, 1:-1]
    down, across = field[2:, 1:-1] + field[:-2, 1:-1], field[1:-1, 2:] + field[1:-1, :-2]
    return down + across - 4 * x  # fusion: laplacian


def laplacian(flawed: bool, sizes: Sizes) -> Step:
    parts = list(random(sizes, sizes.of(16384, 32), sizes.of(8192, 32), count=5).float())
    options = {} if flawed else {"options": {"realize_reads_threshold": 16}}
    run = compiled(copied(field_of), sizes, **options)
    return inference(lambda: run(parts)[:, 0].mean())


def mask_product_of(mask: Tensor, weight: Tensor) -> Tensor:
    rows = mask.to(_BFLOAT16)  # fusion: mask_product
    return rows @ weight  # fusion: mask_product


def mask_product(flawed: bool, sizes: Sizes) -> Step:
    mask = random(sizes, sizes.of(524288, 32), 2048)[0] > 1
    weight = random(sizes, 2048, 128)[0]
    options = {} if flawed else {"options": {"max_autotune": True}}
    run = compiled(copied(mask_product_of), sizes, **options)
    return inference(lambda: run(mask, weight)[:, 0].float().mean())


def opened(x: Tensor) -> Tensor:
    return F.gelu(x) + x  # fusion: scaled_between


def closed(h: Tensor, skip: Tensor) -> Tensor:
    return torch.sigmoid(h) * skip  # fusion: scaled_between


def scaled_between(flawed: bool, sizes: Sizes) -> Step:
    x, skip = random(sizes, sizes.of(65536, 32), sizes.of(8192, 32), count=2)
    scale = random(sizes, x.shape[-1])[0]
    first, second = copied(opened), copied(closed)
    if flawed:
        first, second = compiled(first, sizes), compiled(second, sizes)

    def block(x: Tensor, skip: Tensor) -> Tensor:
        h = first(x)
        h = h * scale  # fusion: scaled_between
        return second(h, skip)

    run = block if flawed else compiled(block, sizes)
    return inference(lambda: run(x, skip)[:, 0].float().mean())
