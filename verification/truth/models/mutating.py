"""Models whose ops mutate: values, views of them, through strides, in equal layers, again."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from verification.truth.models.making import Made, leaf


class Mutating(nn.Module):
    """A layer in which nearly each line mutates a value or a view of one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))
        self.linear = nn.Linear(width, width)
        self.swish = nn.Hardswish(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        y.mul_(self.scale)
        y[:, :2].add_(1)
        y[0] += self.scale
        y.sub_(x).div_(3)
        z = y.sin()
        z.mul_(1.5)
        z.masked_fill_(x > 0, 0.5)
        z[:, 1:3].cos_()
        return self.swish(z) + y


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Mutating(5) for _ in range(2)])
        self.other = Mutating(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        other = self.other(x)
        for layer in self.layers:
            x = layer(x)
        x += other
        return x.logsumexp(1)


class Checkpointed(Layers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.other(x).mean(0)


class Views(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[:, 1:3].mul_(3)
        y.view(-1)[5:9] += 1.5
        y[0] = x[1].cos()
        turned = y.t()
        turned[2].sigmoid_()
        windows = y.unfold(1, 3, 1).sum(-1)
        y = y.clone()
        y[:, ::2] *= x[:, ::2]
        y.fill_diagonal_(0.5)
        each = y.expand(2, 4, 6).permute(2, 0, 1).reshape(6, 8)
        return windows.sum() + each.std(1).sum() + y.clamp(min=-1).norm()


class ReadLater(nn.Module):
    """A view of what is mutated before another module reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.reads = nn.Linear(6, 6), nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        turned = y.t().reshape(3, 2, -1)
        rows = y.view(-1, 3)
        y[:, :3].mul_(x[:, :3])
        return self.reads(rows).view_as(y) + self.reads(turned).sum()


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.second = nn.Conv2d(width, width, 1)
        self.again = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.norm(self.first(x)))
        y = self.again(self.second(y))
        y += x
        return self.relu(y)


class ConvolutionNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3)
        self.stages = nn.Sequential(Residual(6), Residual(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu_(self.stem(x))
        return self.stages(x).mean((2, 3))


class Scattering(nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        total = torch.zeros(9, 6).scatter_add(0, index, y)
        total.index_put_((index[:, 0],), y, accumulate=True)
        total.index_add_(0, index[0], y[:1].expand(6, 6).cos())
        total[index[:, 1]] *= 2
        largest, at = total.topk(4, dim=1)
        largest /= largest.sum(-1, keepdim=True)
        spread = torch.zeros_like(total).scatter_(1, at, largest)
        spread.masked_scatter_(total > 0.5, y.exp().repeat(2, 1))
        return spread.gather(0, index).cumsum(1).logsumexp(0)


class Chosen(nn.Module):
    """Rows that their values choose, where a graph ends: the next one is given them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        chosen = y[x[:, 0] > 0]
        weights = chosen.detach().sum(1)
        weights[weights > 0] -= 1
        mixed = self.second(chosen) + chosen.sin() * weights[:, None]
        return mixed.sum(0) + chosen.cos().sum(0)


def mutating_layers() -> Made:
    return Layers(), (leaf(4, 5),)


def mutating_and_checkpointed() -> Made:
    return Checkpointed(), (leaf(4, 5),)


def mutated_views() -> Made:
    return Views(), (leaf(4, 6),)


def read_later() -> Made:
    return nn.Sequential(ReadLater(), ReadLater()), (leaf(4, 6),)


def chosen_by_values() -> Made:
    return Chosen(), (leaf(7, 6),)


def convolutions() -> Made:
    return ConvolutionNet(), (torch.randn(2, 3, 8, 8),)


def scattering() -> Made:
    return Scattering(), (leaf(5, 6), torch.randint(0, 5, (5, 6)))


MODELS = (
    mutating_layers,
    mutating_and_checkpointed,
    mutated_views,
    read_later,
    chosen_by_values,
    convolutions,
    scattering,
)
