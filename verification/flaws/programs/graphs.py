"""Flaws of graph convolutional networks."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .geometry import SparseProduct
from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = ["dense_adjacency", "norm_per_layer"]


def undirected(nodes: int, edges: int, sizes: Sizes) -> Tensor:
    """Random edges in both directions, and one from each node to itself."""
    pairs = seeded(lambda: torch.randint(0, nodes, (2, edges)), sizes)
    loops = torch.arange(nodes, device=pairs.device).expand(2, -1)
    return torch.cat((pairs, pairs.flip(0), loops), 1)


def norm_of(edge_index: Tensor, nodes: int) -> Tensor:
    """A weight for each edge, from the degrees of both of its nodes."""
    source, target = edge_index
    ones = torch.ones(source.shape, device=source.device)  # flaw: norm_per_layer
    degree = torch.zeros(nodes, device=source.device)  # flaw: norm_per_layer
    degree = degree.scatter_add(0, target, ones)  # flaw: norm_per_layer
    inverse = degree.pow(-0.5)  # flaw: norm_per_layer
    inverse = inverse.masked_fill(inverse.isinf(), 0)  # flaw: norm_per_layer
    return inverse[source] * ones * inverse[target]  # flaw: norm_per_layer


class GCN(nn.Module):
    """Graph convolutions, each a linear layer and a sum over neighbours."""

    def __init__(self, inputs: int, width: int, classes: int, layers: int) -> None:
        super().__init__()
        widths = [inputs] + [width] * (layers - 1) + [classes]
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(widths))

    def propagate(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        for at, layer in enumerate(self.layers):
            x = self.propagate(layer(x))
            x = x.relu() if at + 1 < len(self.layers) else x
        return x


class DenseGCN(GCN):
    """A network that multiplies by the whole adjacency matrix."""

    adjacency: Tensor

    def propagate(self, x: Tensor) -> Tensor:
        return self.adjacency @ x  # flaw: dense_adjacency


class SparseGCN(DenseGCN):
    """A network that multiplies by its entries."""

    def propagate(self, x: Tensor) -> Tensor:
        return SparseProduct.apply(x, self.adjacency, self.adjacency)


def dense_adjacency(flawed: bool, sizes: Sizes) -> Step:
    nodes, edges, inputs, width, classes = sizes.of(
        (16_384, 100_000, 500, 256, 40), (20, 30, 5, 8, 3)
    )
    kind = DenseGCN if flawed else SparseGCN
    model = seeded(lambda: kind(inputs, width, classes, 3), sizes)
    pairs = undirected(nodes, edges, sizes)
    adjacency = torch.sparse_coo_tensor(
        pairs, norm_of(pairs, nodes), (nodes, nodes), check_invariants=False
    ).coalesce()
    model.adjacency = adjacency.to_dense() if flawed else adjacency
    x = seeded(lambda: torch.randn(nodes, inputs), sizes)
    labels = torch.arange(nodes, device=x.device) % classes

    def loss() -> Tensor:
        return F.cross_entropy(model(x), labels)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class MessageGCN(GCN):
    """A network that computes the weights of the edges in each layer, or has them."""

    edge_index: Tensor
    kept: Tensor | None = None

    def propagate(self, x: Tensor) -> Tensor:
        weight = self.kept
        if weight is None:
            weight = norm_of(self.edge_index, len(x))  # flaw: norm_per_layer
        source, target = self.edge_index
        message = x.index_select(0, source) * weight[:, None]
        return torch.zeros_like(x).index_add(0, target, message)


def norm_per_layer(flawed: bool, sizes: Sizes) -> Step:
    nodes, edges, inputs, width, classes = sizes.of(
        (60_000, 600_000, 128, 32, 16), (20, 30, 5, 8, 3)
    )
    model = seeded(lambda: MessageGCN(inputs, width, classes, sizes.of(8, 3)), sizes)
    model.edge_index = undirected(nodes, edges, sizes)
    if not flawed:
        model.kept = norm_of(model.edge_index, nodes)
    x = seeded(lambda: torch.randn(nodes, inputs), sizes)
    labels = torch.arange(nodes, device=x.device) % classes

    def loss() -> Tensor:
        return F.cross_entropy(model(x), labels)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))
