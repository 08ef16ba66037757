"""Models of many different ops: the user's own backward, complex numbers, losses, types."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from verification.truth.models.making import Made, leaf


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        y = x @ weight
        return y.tanh()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = ctx.saved_tensors
        y = (x @ weight).tanh()
        inner = gradient * (1 - y * y)
        return inner @ weight.t(), x.t() @ inner


class Multiplied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 9))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = Product.apply(x, self.weight)
        return y


class OwnBackward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.product = Multiplied()
        self.linear = nn.Linear(9, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.product(self.linear(self.product(x)))
        return z.exp().mean(0)


class Hooked(nn.Module):
    """Hooks on gradients of values: what they do is no sum, and differentiates nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        y.register_hook(lambda gradient: gradient * 2 + gradient.sign())
        z = torch.lerp(y, self.second(y), 0.3)
        z.register_hook(torch.sinh)
        return z.exp() + y


class Asking(nn.Module):
    """Goes another way when it is compiled, as attention of transformers does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            return x.sin() * x
        return x.sin().mul(x)


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(4, 5, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        waves = torch.fft.rfft2(x) * self.filter
        y = torch.fft.irfft2(waves, s=(4, 8))
        pair = torch.complex(y, x)
        size, angle = pair.abs(), torch.angle(pair)
        return torch.view_as_real(pair).sum(-1) * size + torch.polar(size, angle).real


class Rounded(nn.Module):
    """Adds gradients that are zero: what is left of such a sum is the other gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        smooth = y.sin()
        steps = y.sign() * y.round()
        return smooth + steps * smooth.floor()


class TurnedWaves(nn.Module):
    """Views of a value whose gradient is mutated: its own views are made anew, in a chain."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        waves = torch.fft.rfft(x).exp()
        rows = waves.view(2, 2, 4, -1)
        turned = rows.transpose(1, 2)
        return torch.fft.irfft(turned)


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(5, 7))
        self.second = nn.Parameter(torch.randn(7, 3, 11))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.einsum("bti,ij->tbj", x, self.first)
        heads = torch.einsum("tbj,jhd->bthd", y, self.second)
        weights = torch.einsum("bthd,bshd->bhts", heads, heads).softmax(-1)
        return torch.einsum("bhts,bshd->bthd", weights, heads).sum((2, 3))


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(3, 8, 3, padding=1)
        self.groups = nn.GroupNorm(2, 8)
        self.turned = nn.ConvTranspose2d(8, 4, 4, 2, 1)
        self.slope = nn.PReLU(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.silu(self.groups(self.wide(x)))
        x = self.slope(self.turned(x))
        small = F.adaptive_avg_pool2d(F.max_pool2d(x, 2), (4, 4))
        grown = F.interpolate(small, scale_factor=2, mode="bilinear")
        again = F.interpolate(grown, size=(16, 16), mode="nearest")
        return F.pixel_shuffle(again * x, 2).mean((2, 3))


class Losses(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        near = F.smooth_l1_loss(x, y)
        far = F.huber_loss(x, y * 2)
        likely = F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean")
        right = F.cross_entropy(x, classes, label_smoothing=0.1)
        margin = F.multi_margin_loss(x, classes)
        apart = F.triplet_margin_loss(x, y, x.flip(0))
        return near + far + likely + right + margin + apart


class HalfPrecision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = self.first(x)
            z = F.softmax(self.norm(y), -1)
            once = self.second(z)
            return (once.float() + self.second(z * 2)).sum(1)


def own_backward() -> Made:
    return OwnBackward(), (leaf(4, 6),)


def hooked() -> Made:
    return Hooked(), (leaf(4, 6),)


def asking() -> Made:
    return Asking(), (leaf(4, 6),)


def complex_numbers() -> Made:
    return Complex(), (leaf(4, 8),)


def rounded() -> Made:
    return Rounded(), (leaf(2, 8),)


def turned_waves() -> Made:
    return TurnedWaves(), (leaf(2, 8, 6),)


def products() -> Made:
    return Products(), (leaf(2, 6, 5),)


def images() -> Made:
    return Images(), (leaf(2, 3, 8, 8),)


def losses() -> Made:
    return Losses(), (leaf(4, 6), leaf(4, 6), torch.randint(0, 6, (4,)))


def half_precision() -> Made:
    return HalfPrecision(), (leaf(4, 5),)


MODELS = (
    own_backward,
    hooked,
    asking,
    complex_numbers,
    rounded,
    turned_waves,
    products,
    images,
    losses,
    half_precision,
)
