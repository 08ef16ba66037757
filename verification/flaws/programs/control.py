"""Flaws of networks of graphs and points, of control, and of what feeds a step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, autocast, compiled, fused_adamw, seeded, training

__all__ = [
    "adjacency_coo",
    "batch_copied_in_line",
    "boolean_index_breaks",
    "counts_unknown",
    "edges_concatenated",
    "replay_by_permutation",
    "small_updates_launched",
]


class EdgeLayer(nn.Module):
    """A message of each edge from both of its ends, and the sum of them at its target."""

    def __init__(self, width: int, is_concatenated: bool) -> None:
        super().__init__()
        self.is_concatenated = is_concatenated
        self.message, self.update = nn.Linear(2 * width, width), nn.Linear(width, width)

    def messages(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        if self.is_concatenated:
            left = x.index_select(0, sources)  # flaw: edges_concatenated
            right = x.index_select(0, targets)  # flaw: edges_concatenated
            ends = torch.cat((left, right), 1)  # flaw: edges_concatenated
            return self.message(ends)  # flaw: edges_concatenated
        own, other = self.message.weight.chunk(2, 1)
        from_source = F.linear(x, own).index_select(0, sources)
        return from_source + F.linear(x, other, self.message.bias).index_select(0, targets)

    def forward(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        messages = F.relu(self.messages(x, sources, targets))
        total = torch.zeros_like(x).index_add(0, targets, messages.to(x.dtype))
        return x + self.update(total * 0.1)


def edges_concatenated(flawed: bool, sizes: Sizes) -> Step:
    width, layers, nodes, edges = sizes.of((128, 4, 30_000, 300_000), (8, 2, 10, 40))
    model = seeded(lambda: nn.ModuleList(EdgeLayer(width, flawed) for _ in range(layers)), sizes)
    features, sources, targets = seeded(
        lambda: (
            torch.randn(nodes, width),
            torch.randint(0, nodes, (edges,)),
            torch.randint(0, nodes, (edges,)),
        ),
        sizes,
    )

    def loss() -> Tensor:
        x = features
        for layer in model:
            x = layer(x, sources, targets)
        return x.square().mean()

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class CompressedProduct(torch.autograd.Function):
    """A product with a constant sparse matrix whose transpose is at hand."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor, x: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.transposed @ grad


def compressed(indices: Tensor, values: Tensor, nodes: int) -> Tensor:
    """The matrix by rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that they are in beta state
        return torch.sparse_coo_tensor(indices, values, (nodes, nodes)).to_sparse_csr()


def adjacency_coo(flawed: bool, sizes: Sizes) -> Step:
    nodes, edges, width, pairs = sizes.of((60_000, 600_000, 128, 65536), (12, 30, 8, 6))
    table, ends, picked = seeded(
        lambda: (
            nn.Embedding(nodes, width),
            torch.randint(0, nodes, (2, edges)),
            torch.randint(0, nodes, (3, pairs)),
        ),
        sizes,
    )
    head = seeded(lambda: nn.Sequential(nn.Linear(width, width), nn.ReLU()), sizes)
    weights = torch.full((edges,), nodes / edges, device=sizes.device)
    by_rows = compressed(ends, weights, nodes)
    by_columns = compressed(ends.flip(0), weights, nodes)

    def spread(x: Tensor) -> Tensor:
        """The mean of a node and of its neighbours, one, two and three steps away."""
        total = x
        for _ in range(3):
            if flawed:
                # flaw in the next line: adjacency_coo
                matrix = torch.sparse_coo_tensor(ends, weights, (nodes, nodes))
                x = torch.sparse.mm(matrix, x)  # flaw: adjacency_coo
            else:
                x = CompressedProduct.apply(by_rows, by_columns, x)
            total = total + x
        return total / 4

    def loss() -> Tensor:
        x = spread(table.weight)
        users, liked, other = (head(x.index_select(0, at)) for at in picked)
        return -F.logsigmoid((users * (liked - other)).sum(1)).mean()

    optimizer = fused_adamw(nn.ModuleList([table, head]))
    return Step(training(loss, optimizer, sizes, is_mixed=False))


class GraphContext(nn.Module):
    """A layer of nodes that sees a vector of its whole graph."""

    def __init__(self, width: int, knows_count: bool) -> None:
        super().__init__()
        self.knows_count = knows_count
        self.norm, self.context = nn.LayerNorm(width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, graphs: Tensor, counts: Tensor) -> Tensor:
        context = self.context(graphs)
        if self.knows_count:
            context = torch.repeat_interleave(context, counts, 0, output_size=len(x))
        else:
            context = torch.repeat_interleave(context, counts, 0)  # flaw: counts_unknown
        return x + self.down(F.silu(self.up(self.norm(x) + context)))


def counts_unknown(flawed: bool, sizes: Sizes) -> Step:
    width, layers, graphs, most = sizes.of((256, 12, 512, 120), (8, 3, 4, 5))
    model = seeded(
        lambda: nn.ModuleList(GraphContext(width, not flawed) for _ in range(layers)), sizes
    )
    counts = torch.arange(graphs, device=sizes.device) % most + 1
    nodes = int(counts.sum())
    features, globals_ = seeded(
        lambda: (torch.randn(nodes, width), torch.randn(graphs, width)), sizes
    )

    def loss() -> Tensor:
        x = features
        for layer in model:
            x = layer(x, globals_, counts)
        return x.float().square().mean()

    return Step(training(loss, fused_adamw(model), sizes))


def mlp_of(inputs: int, width: int, outputs: int) -> nn.Sequential:
    """An actor or a critic."""
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, outputs),
    )


def replay_by_permutation(flawed: bool, sizes: Sizes) -> Step:
    rows, seen, acts, width, batch = sizes.of((200_000, 32, 8, 512, 512), (50, 4, 2, 8, 6))
    memory = np.random.default_rng(0).standard_normal((rows, 2 * seen + acts + 1), np.float32)
    actor = seeded(lambda: mlp_of(seen, width, acts), sizes)
    critics = seeded(lambda: nn.ModuleList(mlp_of(seen + acts, width, 1) for _ in range(2)), sizes)
    both = nn.ModuleList([actor, critics])
    optimizer, chance = fused_adamw(both), np.random.default_rng(1)

    def sample() -> Tensor:
        if flawed:
            chosen = np.random.choice(rows, batch, replace=False)  # flaw: replay_by_permutation
        else:
            chosen = chance.choice(rows, batch, replace=False, shuffle=False)
        return torch.from_numpy(memory[chosen]).to(sizes.device)

    def loss() -> Tensor:
        now, action, reward, then = sample().split((seen, acts, 1, seen), 1)
        with torch.no_grad():
            ahead = torch.cat((then, actor(then).tanh()), 1)
            worst = torch.minimum(*(critic(ahead) for critic in critics))
            target = reward + 0.99 * worst
        done = torch.cat((now, action), 1)
        errors = sum(F.mse_loss(critic(done), target) for critic in critics)
        return errors - critics[0](torch.cat((now, actor(now).tanh()), 1)).mean()

    return Step(training(loss, optimizer, sizes, is_mixed=False))


class WorldModel(nn.Module):
    """A recurrent state of an agent, which it infers from what it sees, as Dreamer has it."""

    def __init__(self, seen: int, acts: int, width: int, stochastic: int) -> None:
        super().__init__()
        self.encoder = mlp_of(seen, width, width)
        self.into = nn.Linear(stochastic + acts, width)
        self.cell = nn.GRUCell(width, width)
        self.prior = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, stochastic))
        self.posterior = nn.Sequential(
            nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, stochastic)
        )
        self.decoder = mlp_of(width + stochastic, width, seen)

    def forward(self, seen: Tensor, acts: Tensor) -> Tensor:
        """The loss of sequences (moments, batch, channels)."""
        embedded = self.encoder(seen)
        state = embedded.new_zeros(embedded.shape[1:])
        sample = embedded.new_zeros(embedded.shape[1], self.prior[2].out_features)
        features, gaps = [], []
        for view, act in zip(embedded, acts, strict=True):
            # flaw in the next line: small_updates_launched
            state = self.cell(F.silu(self.into(torch.cat((sample, act), 1))), state)
            prior = self.prior(state)  # flaw: small_updates_launched
            # flaw in the next line: small_updates_launched
            posterior = self.posterior(torch.cat((state, view), 1))
            sample = posterior.softmax(-1)  # flaw: small_updates_launched
            gaps.append(F.mse_loss(prior, posterior))  # flaw: small_updates_launched
            features.append(torch.cat((state, sample), 1))  # flaw: small_updates_launched
        restored = self.decoder(torch.stack(features))
        return F.mse_loss(restored, seen) + 0.1 * torch.stack(gaps).mean()


def captured(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """A forward and its backward as a CUDA graph, which keeps alive what it reads."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = run()

    def replay(_reads: Callable[[], Tensor] = run) -> Tensor:
        graph.replay()
        return result

    return replay


def small_updates_launched(flawed: bool, sizes: Sizes) -> Step:
    seen, acts, width, stochastic = sizes.of((64, 8, 512, 256), (6, 2, 8, 4))
    moments, batch = sizes.of((32, 64), (4, 2))
    model = seeded(lambda: WorldModel(seen, acts, width, stochastic), sizes)
    views, moves = seeded(
        lambda: (torch.randn(moments, batch, seen), torch.randn(moments, batch, acts)), sizes
    )
    optimizer = fused_adamw(model)

    def learn() -> Tensor:
        optimizer.zero_grad()
        loss = model(views, moves)
        loss.backward()  # flaw: small_updates_launched
        return loss.detach()

    run = learn if flawed or sizes.is_tiny else captured(learn)

    def step() -> Tensor:
        loss = run()
        optimizer.step()
        return loss

    return Step(step)


class MaskedNorm(nn.Module):
    """Batch norm over the points that are there, among places of which some are empty."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def normed(self, x: Tensor, total: Tensor, squares: Tensor, count: Tensor) -> Tensor:
        mean = total / count
        return (x - mean) * (squares / count - mean * mean + 1e-5).rsqrt() * self.weight + self.bias


class IndexedPoints(MaskedNorm):
    """A layer of points, whose norm takes the points out and puts them back."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        h = self.linear(x).float()
        there = h[mask]  # flaw: boolean_index_breaks
        count = torch.full((), float(there.shape[0]), device=x.device)
        out = torch.zeros_like(h)
        # flaw in the next line: boolean_index_breaks
        out[mask] = self.normed(there, there.sum(0), there.square().sum(0), count)
        return x + F.gelu(out)


class WherePoints(IndexedPoints):
    """The same without indices."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        h = self.linear(x).float()
        there = torch.where(mask[..., None], h, 0.0)
        total, squares = there.sum((0, 1)), there.square().sum((0, 1))
        out = self.normed(h, total, squares, mask.sum())
        return x + F.gelu(torch.where(mask[..., None], out, 0.0))


def boolean_index_breaks(flawed: bool, sizes: Sizes) -> Step:
    width, layers, batch, points = sizes.of((256, 6, 64, 1024), (8, 2, 2, 9))
    kind = IndexedPoints if flawed else WherePoints
    model = seeded(lambda: nn.ModuleList(kind(width) for _ in range(layers)), sizes)
    x = seeded(lambda: torch.randn(batch, points, width), sizes)
    lengths = torch.arange(batch, device=sizes.device)[:, None] % (points // 2) + points // 2
    mask = torch.arange(points, device=sizes.device) < lengths
    blocks = [compiled(layer, sizes) for layer in model]

    @torch.no_grad()
    def step() -> Tensor:
        y = x
        with autocast(sizes):
            for block in blocks:
                y = block(y, mask)
        return y.square().mean()

    return Step(step)


def in_line(batches: Iterator[Tensor], device: str) -> Iterator[Tensor]:
    """Each batch, copied when it is asked for."""
    for batch in batches:
        yield batch.to(device, non_blocking=True)  # flaw: batch_copied_in_line


def ahead(batches: Iterator[Tensor], device: str) -> Iterator[Tensor]:
    """Each batch, copied on a stream of its own while the one before is used."""
    if device == "cpu":
        yield from batches
        return
    side = torch.cuda.Stream()

    def copied() -> Tensor:
        with torch.cuda.stream(side):
            return next(batches).to(device, non_blocking=True)

    coming = copied()
    while True:
        torch.cuda.current_stream().wait_stream(side)
        batch = coming
        batch.record_stream(torch.cuda.current_stream())
        coming = copied()
        yield batch


def plain_network(width: int, depth: int) -> nn.Sequential:
    """Convolutions of one width, and a head."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4)]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.SiLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100))


def batch_copied_in_line(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width, depth = sizes.of((64, 384, 96, 8), (2, 16, 4, 2))
    model = seeded(lambda: plain_network(width, depth), sizes).to(memory_format=torch.channels_last)
    generator = torch.Generator().manual_seed(9)
    host = [torch.randn(batch, 3, side, side, generator=generator) for _ in range(4)]
    if not sizes.is_tiny:
        host = [each.pin_memory() for each in host]

    def forever() -> Iterator[Tensor]:
        while True:
            yield from host

    images = (in_line if flawed else ahead)(forever(), sizes.device)
    labels = torch.arange(batch, device=sizes.device) % 100

    def loss() -> Tensor:
        x = next(images).contiguous(memory_format=torch.channels_last)
        return F.cross_entropy(model(x), labels)

    return Step(training(loss, fused_adamw(model), sizes))
