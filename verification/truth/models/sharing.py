"""Models that use a weight or a value more than once, so that gradients are summed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from verification.truth.models.making import Made, leaf


class TiedHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(17, 8, padding_idx=0)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 17, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.embedding(tokens))
        scores = self.head(hidden)
        return F.cross_entropy(scores.flatten(0, 1), tokens.flatten(), ignore_index=0)


class UsedThrice(nn.Module):
    """One embedding as such, as a head and as a bias; one layer again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.again = nn.Linear(6, 6)
        self.embedding = nn.Embedding(9, 6)
        self.bilinear = nn.Bilinear(6, 6, 6)

    def forward(self, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = self.again(x).relu_()
        known = self.embedding(tokens)
        x = self.bilinear(x, known)
        x += known
        mixed = torch.addmm(x, known, self.embedding.weight[:6])
        return (self.embedding.weight @ mixed.t()).logsumexp(0)


class SummedGradients(nn.Module):
    """Values with several uses, beside a parameter with several, past a view of all of one."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(6))
        self.norm = nn.RMSNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        scaled = y * self.scale
        mixed = y * self.scale + scaled
        normed = self.norm(mixed)
        y = torch.cos(normed) * normed
        y[:, 1:3].cos_()
        whole = y[..., :6]
        one = whole * 2
        return torch.tanh(whole) + one - normed


class Blended(nn.Module):
    """Each layer's value is an output, and its gradients are handed on as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.activation = nn.SiLU()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), self.activation) for _ in "abc")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = [x.sin()]
        for layer in self.layers:
            value = self.activation(layer(values[-1]))
            values.append(values[-1] + (value - values[-1]) * 0.3)
        return tuple(values)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.norm, self.layer = nn.RMSNorm(8), layer
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        neighbour, weights = self.attention(x, y, y)
        return self.layer(neighbour, x).sum((1, 2)) + weights.sum((1, 2))


class Parametrized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = parametrizations.weight_norm(nn.Linear(5, 7))
        self.second = parametrizations.spectral_norm(nn.Linear(7, 3))
        self.third = parametrizations.weight_norm(nn.Linear(3, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).tanh()
        x = self.second(x)
        return self.third(x)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 3)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 7), nn.SiLU(inplace=True), nn.Linear(7, 6)) for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.gate(x).softmax(-1)
        best, at = weights.topk(2, -1)
        best /= best.sum(-1, keepdim=True)
        each = torch.zeros_like(weights).scatter_(1, at, best)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            out += expert(x) * each[:, number : number + 1]
        return out.sum(1)


class Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(x)
        half = x * 0.5
        return half.sin(), half + y.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (x,) = ctx.saved_tensors
        first, second = gradients
        return first * x.tanh() + second, second.sum().expand(4, 8)


class Yielded(nn.Module):
    """Uses more than once what a function yields, what is copied over, and what is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8, bias=False)
        self.last = nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.last(self.first(x).relu())
        one, other = Halves.apply(y, x)
        copied = other * 0.9
        copied.copy_(one.tanh())
        looked_at = one.as_strided((4, 8), (8, 1))
        return torch.lerp(copied, looked_at, 0.3) + copied.cumsum(0) * other.exp() + one


def yielded() -> Made:
    return Yielded(), (leaf(4, 8),)


def tied_head() -> Made:
    return TiedHead(), (torch.randint(1, 17, (3, 4)),)


def used_thrice() -> Made:
    return UsedThrice(), (leaf(4, 6), torch.randint(0, 9, (4,)))


def summed_gradients() -> Made:
    return SummedGradients(), (leaf(4, 6),)


def blended() -> Made:
    return Blended(), (leaf(4, 6),)


def attention() -> Made:
    return Attention(), (leaf(2, 5, 8),)


def parametrized() -> Made:
    return Parametrized(), (leaf(4, 5),)


def experts() -> Made:
    return Experts(), (leaf(4, 6),)


MODELS = (
    tied_head,
    yielded,
    used_thrice,
    summed_gradients,
    blended,
    attention,
    parametrized,
    experts,
)
