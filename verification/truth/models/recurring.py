"""Models that call one layer step by step: cells, and torch's recurrent modules."""

from __future__ import annotations

import torch
from torch import nn

from verification.truth.models.making import Made, leaf


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LSTMCell(6, 10), nn.GRUCell(10, 10)
        self.head = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = memory = x.new_zeros(2, 10)
        out = x.new_zeros(2, 10)
        for step in range(3):
            state, memory = self.first(x[:, step], (state, memory))
            out = self.second(state, out)
        return self.head(out)


class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.layer(x)
        return self.head(states[:, -1])


class Broken(nn.Module):
    """Statements of several lines after a graph break, around a loop."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        for _ in range(2):
            turned = (
                x.sin()
                .t()
                .cos()
            )  # fmt: skip
            x = (
                turned.exp()
                .t()
                .tanh()
            )  # fmt: skip
        return x.sigmoid()


@torch._dynamo.disable
def _eager(x: torch.Tensor) -> torch.Tensor:
    return x.tanh()


class Parts(nn.Module):
    """Graphs that are equal but for their lines, and one of whose values no gradient comes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        x = x.sin()
        torch._dynamo.graph_break()
        x = x.sin()
        torch._dynamo.graph_break()
        x = x.exp()
        asked = x.tanh()
        y = _eager(x)
        return torch.where(asked.detach() > 0, y, x)


def cells() -> Made:
    return Cells(), (leaf(2, 3, 6),)


def lstm() -> Made:
    return Recurrent(nn.LSTM(6, 10, 2, batch_first=True)), (leaf(2, 3, 6),)


def gru() -> Made:
    return Recurrent(nn.GRU(6, 10, 2, batch_first=True)), (leaf(2, 3, 6),)


def broken() -> Made:
    return Broken(), (leaf(4, 6),)


def parts() -> Made:
    return Parts(), (leaf(4, 6),)


MODELS = (cells, lstm, gru, broken, parts)
