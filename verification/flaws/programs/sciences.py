"""Flaws of models of atoms, meshes, graphs and tables, of a Gaussian process, and of a learner."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .control import captured
from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "adjacency_validated",
    "factor_inverted",
    "learner_in_small_kernels",
    "members_one_by_one",
    "pooled_by_cumsum",
    "scores_by_broadcast",
    "task_losses_counted",
]


class Mlp(nn.Module):
    """Linear layers with SiLU between them."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        for at, layer in enumerate(self.layers):
            x = layer(F.silu(x) if at else x)  # flaw: learner_in_small_kernels
        return x


class Messages(nn.Module):
    """Messages along edges, and their sums added to nodes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message, self.update = Mlp(width, width, width), Mlp(width, width)

    def forward(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        sent = self.message(x.index_select(0, sources) - x.index_select(0, targets))
        return x + self.update(torch.zeros_like(x).index_add(0, targets, sent.to(x.dtype)))


def loss_of_valid(errors: Tensor, mask: Tensor) -> Tensor:
    """The mean error of the atoms that a task knows, whose number is asked for."""
    valid = errors[mask]  # flaw: task_losses_counted
    count = torch.nonzero(mask).numel()  # flaw: task_losses_counted
    if not torch.isfinite(valid).all():  # flaw: task_losses_counted
        raise ValueError("a loss is not finite")
    return valid.sum() / max(count, 1)  # flaw: task_losses_counted


def loss_of_masked(errors: Tensor, mask: Tensor) -> Tensor:
    """The same, and the number stays on the device."""
    valid = torch.where(mask & torch.isfinite(errors), errors, 0.0)
    return valid.sum() / mask.sum().clamp(min=1)


def task_losses_counted(flawed: bool, sizes: Sizes) -> Step:
    atoms, edges, width, layers, tasks = sizes.of((8000, 64_000, 128, 4, 24), (12, 30, 8, 2, 3))
    table = seeded(lambda: nn.Embedding(100, width), sizes)
    blocks = seeded(lambda: nn.ModuleList(Messages(width) for _ in range(layers)), sizes)
    heads = seeded(lambda: nn.ModuleList(Mlp(width, width, 1) for _ in range(tasks)), sizes)
    numbers, ends, wanted, known = seeded(
        lambda: (
            torch.randint(0, 100, (atoms,)),
            torch.randint(0, atoms, (2, edges)),
            torch.randn(tasks, atoms),
            torch.rand(tasks, atoms) < 0.3,
        ),
        sizes,
    )
    reduced = loss_of_valid if flawed else loss_of_masked

    def loss() -> Tensor:
        x = table(numbers)
        for block in blocks:
            x = block(x, *ends)
        total = torch.zeros((), device=sizes.device)
        for head, values, mask in zip(heads, wanted, known, strict=True):
            errors = (head(x)[:, 0].float() - values).abs()
            total = total + reduced(errors, mask)  # flaw: task_losses_counted
        return total / tasks

    modules = nn.ModuleList((table, blocks, heads))
    return Step(training(loss, fused_adamw(modules), sizes))


@dataclass(frozen=True)
class Adjacency:
    """The neighbours of each point, as offsets into one list of them."""

    offsets: Tensor
    indices: Tensor

    def __post_init__(self) -> None:
        """Check that the offsets fit the list."""
        if self.offsets[0].item() != 0:  # flaw: adjacency_validated
            raise ValueError("offsets begin with 0")
        if self.offsets[-1].item() != len(self.indices):  # flaw: adjacency_validated
            raise ValueError("offsets end with the number of neighbours")

    def sums(self, x: Tensor) -> Tensor:
        """The sum over the neighbours of each point."""
        rows = x.index_select(0, self.indices)
        return torch.segment_reduce(rows, "sum", offsets=self.offsets, unsafe=True)


class Mesh:
    """Points of which each has six neighbours, and a cache of what was derived from them."""

    def __init__(self, offsets: Tensor, indices: Tensor, keeps_object: bool) -> None:
        self.cache = {"offsets": offsets, "indices": indices}
        self.kept = Adjacency(offsets, indices) if keeps_object else None

    def adjacency(self) -> Adjacency:
        if self.kept is not None:
            return self.kept
        return Adjacency(**self.cache)  # flaw: adjacency_validated


class MeshBlock(nn.Module):
    """A point and its neighbours make its new features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(2 * width), Mlp(2 * width, 2 * width, width)

    def forward(self, x: Tensor, mesh: Mesh) -> Tensor:
        around = mesh.adjacency().sums(x)  # flaw: adjacency_validated
        return x + self.mlp(self.norm(torch.cat((x, around / 6), 1)))


def adjacency_validated(flawed: bool, sizes: Sizes) -> Step:
    points, width, layers, smoothings = sizes.of((10_000, 128, 15, 20), (12, 8, 2, 2))
    into = seeded(lambda: nn.Linear(3, width), sizes)
    blocks = seeded(lambda: nn.ModuleList(MeshBlock(width) for _ in range(layers)), sizes)
    out = seeded(lambda: nn.Linear(width, 3), sizes)
    places, wanted = seeded(lambda: torch.randn(2, points, 3), sizes)
    at = torch.arange(points, device=sizes.device)
    shifts = torch.tensor([-2, -1, 1, 2, 3, -3], device=sizes.device)
    indices = ((at[:, None] + shifts) % points).flatten()
    offsets = torch.arange(points + 1, device=sizes.device) * 6
    mesh = Mesh(offsets, indices, not flawed)

    def loss() -> Tensor:
        x = into(places).float()
        for block in blocks:
            x = block(x, mesh)  # flaw: adjacency_validated
        moved = places + out(x).float()
        for _ in range(smoothings):
            around = mesh.adjacency().sums(moved) / 6  # flaw: adjacency_validated
            moved = torch.lerp(moved, around, 0.1)
        return F.mse_loss(moved, wanted)

    modules = nn.ModuleList((into, blocks, out))
    return Step(training(loss, fused_adamw(modules), sizes))


class ScoredLayer(nn.Module):
    """Nodes are mixed along edges, by scores of both ends."""

    def __init__(self, width: int, by_broadcast: bool) -> None:
        super().__init__()
        self.by_broadcast = by_broadcast
        self.linear = nn.Linear(width, width)
        self.left = nn.Parameter(torch.randn(1, width) * width**-0.5)
        self.right = nn.Parameter(torch.randn(1, width) * width**-0.5)

    def scores(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.by_broadcast:
            left = (x * self.left).sum(-1)  # flaw: scores_by_broadcast
            return left, (x * self.right).sum(-1)  # flaw: scores_by_broadcast
        both = x @ torch.cat((self.left, self.right)).T
        return both[:, 0], both[:, 1]

    def forward(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        x = F.relu(self.linear(x))
        left, right = self.scores(x)  # flaw: scores_by_broadcast
        weights = torch.tanh(left.index_select(0, targets) + right.index_select(0, sources))
        sent = x.index_select(0, sources) * weights[:, None]
        return x + 0.1 * torch.zeros_like(x).index_add(0, targets, sent)


def scores_by_broadcast(flawed: bool, sizes: Sizes) -> Step:
    nodes, edges, width, layers = sizes.of((200_000, 400_000, 256, 4), (12, 30, 8, 2))
    model = seeded(lambda: nn.ModuleList(ScoredLayer(width, flawed) for _ in range(layers)), sizes)
    head = seeded(lambda: nn.Linear(width, 40), sizes)
    features, sources, targets, labels = seeded(
        lambda: (
            torch.randn(nodes, width),
            torch.randint(0, nodes, (edges,)),
            torch.randint(0, nodes, (edges,)),
            torch.randint(0, 40, (nodes,)),
        ),
        sizes,
    )

    def loss() -> Tensor:
        x = features
        for layer in model:
            x = layer(x, sources, targets)  # flaw: scores_by_broadcast
        return F.cross_entropy(head(x), labels)

    modules = nn.ModuleList((model, head))
    return Step(training(loss, fused_adamw(modules), sizes, is_mixed=False))


def inverted(factor: Tensor) -> Tensor:
    """The inverse of the triangular factor, as of any matrix."""
    return factor.inverse()  # flaw: factor_inverted


def solved(factor: Tensor) -> Tensor:
    """The same by a solve that knows of the triangle."""
    eye = torch.eye(factor.shape[-1], device=factor.device).expand_as(factor)
    return torch.linalg.solve_triangular(factor, eye, upper=False)


def factor_inverted(flawed: bool, sizes: Sizes) -> Step:
    outputs, points, inputs, width, latent = sizes.of((4, 2048, 64, 1024, 8), (2, 10, 4, 8, 2))
    features = seeded(lambda: Mlp(inputs, width, width, latent), sizes)
    scales = seeded(lambda: nn.ParameterList([torch.zeros(outputs, 1, 1)]), sizes)
    x, y = seeded(lambda: (torch.randn(points, inputs), torch.randn(outputs, points, 1)), sizes)
    eye = torch.eye(points, device=sizes.device)
    inverse = inverted if flawed else solved

    def loss() -> Tensor:
        z = features(x)
        apart = (z[:, None] - z).square().sum(-1)
        kernel = torch.exp(-apart * scales[0].exp()) + 0.1 * eye
        factor = torch.linalg.cholesky_ex(kernel).L
        white = inverse(factor) @ y  # flaw: factor_inverted
        log_det = factor.diagonal(dim1=1, dim2=2).log().sum()
        return (0.5 * white.square().sum() + log_det) / (outputs * points)

    modules = nn.ModuleList((features, scales))
    return Step(training(loss, fused_adamw(modules), sizes, is_mixed=False))


class TableBlock(nn.Module):
    """A block in which each row sees all others."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.qkv(self.norm_1(x))  # flaw: members_one_by_one
        q, k, v = y.unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)  # flaw: members_one_by_one
        x = x + self.out(y.transpose(1, 2).flatten(2))  # flaw: members_one_by_one
        y = F.gelu(self.up(self.norm_2(x)))  # flaw: members_one_by_one
        return x + self.down(y)  # flaw: members_one_by_one


class TableModel(nn.Module):
    """Scores of the rows of a table, which see the rows whose class is given."""

    def __init__(self, width: int, heads: int, layers: int, columns: int, classes: int) -> None:
        super().__init__()
        self.into = nn.Linear(columns, width)
        self.label = nn.Embedding(classes + 1, width)
        self.blocks = nn.Sequential(*(TableBlock(width, heads) for _ in range(layers)))
        self.out = nn.Linear(width, classes)

    def forward(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Tables (n, rows, columns), and classes, where the last is unknown."""
        x = self.into(rows) + self.label(labels)  # flaw: members_one_by_one
        x = self.blocks(x)  # flaw: members_one_by_one
        return self.out(x)  # flaw: members_one_by_one


def members_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    width, heads, layers = sizes.of((192, 6, 12), (8, 2, 2))
    members, rows, known, columns, classes = sizes.of((16, 640, 512, 20, 10), (3, 8, 5, 4, 3))
    model = (
        seeded(lambda: TableModel(width, heads, layers, columns, classes), sizes).eval().bfloat16()
    )
    table, labels, orders = seeded(
        lambda: (
            torch.randn(rows, columns),
            torch.randint(0, classes, (rows,)),
            torch.rand(members, columns).argsort(1),
        ),
        sizes,
    )
    table = table.bfloat16()
    given = labels.clone()
    given[known:] = classes
    prepared = torch.stack([table[:, order] for order in orders])

    @torch.inference_mode()
    def step() -> Tensor:
        if flawed:
            outputs = [
                model(member[None], given[None])  # flaw: members_one_by_one
                for member in prepared
            ]
            scores = torch.cat(outputs)
        else:
            scores = model(prepared, given.expand(members, -1))
        chances = scores[:, known:].float().softmax(-1).mean(0)
        return F.nll_loss(chances.log(), labels[known:])

    return Step(step)


def cumsum_trick(x: Tensor, ranks: Tensor, cells: int) -> Tensor:
    """Sums of the rows of each cell, as Lift-Splat takes them: sort, sum up, and subtract."""
    order = ranks.argsort()  # flaw: pooled_by_cumsum
    x, ranks = x[order], ranks[order]  # flaw: pooled_by_cumsum
    x = x.cumsum(0)  # flaw: pooled_by_cumsum
    is_last = torch.ones(len(x), device=x.device, dtype=torch.bool)
    is_last[:-1] = ranks[1:] != ranks[:-1]  # flaw: pooled_by_cumsum
    x, ranks = x[is_last], ranks[is_last]  # flaw: pooled_by_cumsum
    x = torch.cat((x[:1], x[1:] - x[:-1]))  # flaw: pooled_by_cumsum
    final = x.new_zeros(cells, x.shape[1])
    final[ranks] = x  # flaw: pooled_by_cumsum
    return final


def scatter_sum(x: Tensor, ranks: Tensor, cells: int) -> Tensor:
    """The same by adding rows where they belong."""
    return x.new_zeros(cells, x.shape[1]).index_add(0, ranks, x)


class LiftSplat(nn.Module):
    """Features of cameras are lifted to depths, and put on a map seen from above."""

    def __init__(self, width: int, depths: int, context: int, side: int, by_cumsum: bool) -> None:
        super().__init__()
        self.depths, self.side = depths, side
        self.stem = nn.Conv2d(3, width, 16, 16)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.lift = nn.Conv2d(width, depths + context, 1)
        self.pool = cumsum_trick if by_cumsum else scatter_sum
        self.map = nn.ModuleList(nn.Conv2d(context, context, 3, padding=1) for _ in range(4))
        self.out = nn.Conv2d(context, 1, 1)

    def forward(self, images: Tensor, ranks: Tensor, samples: int) -> Tensor:
        x = self.stem(images)
        for conv in self.convs:
            x = x + F.relu(conv(x))
        x = self.lift(x).float()
        depth, context = x[:, : self.depths].softmax(1), x[:, self.depths :]
        lifted = (depth[:, :, None] * context[:, None]).permute(0, 1, 3, 4, 2).flatten(0, 3)
        cells = samples * self.side**2
        pooled = self.pool(lifted, ranks, cells)  # flaw: pooled_by_cumsum
        x = pooled.view(samples, self.side, self.side, -1).permute(0, 3, 1, 2)
        for conv in self.map:
            x = x + F.relu(conv(x))
        return self.out(x)


def pooled_by_cumsum(flawed: bool, sizes: Sizes) -> Step:
    samples, cameras, height, width = sizes.of((1, 6, 128, 352), (2, 2, 32, 32))
    channels, depths, context, side = sizes.of((256, 41, 64, 128), (8, 3, 4, 6))
    model = seeded(lambda: LiftSplat(channels, depths, context, side, flawed), sizes)
    each = cameras * depths * (height // 16) * (width // 16)
    images, cells, wanted = seeded(
        lambda: (
            torch.randn(samples * cameras, 3, height, width),
            torch.randint(0, side * side, (samples, each)),
            torch.rand(samples, 1, side, side).round(),
        ),
        sizes,
    )
    ranks = (cells + torch.arange(samples, device=sizes.device)[:, None] * side * side).flatten()

    def loss() -> Tensor:
        scores = model(images, ranks, samples)  # flaw: pooled_by_cumsum
        return F.binary_cross_entropy_with_logits(scores.float(), wanted)

    return Step(training(loss, fused_adamw(model), sizes))


class Learner:
    """The update of soft actor-critic, without what runs outside of it."""

    def __init__(self, seen: int, acts: int, width: int, batch: int) -> None:
        self.actor = Mlp(seen, width, width, 2 * acts)
        self.critics = nn.ModuleList(Mlp(seen + acts, width, width, 1) for _ in range(2))
        self.targets = copy.deepcopy(self.critics)
        self.alpha = nn.Parameter(torch.zeros(()))
        self.states, self.after = torch.randn(2, batch, seen).unbind(0)
        self.moves, self.noise = torch.randn(2, batch, acts).unbind(0)
        self.rewards = torch.randn(batch, 1)
        modules = nn.ModuleList((self.actor, self.critics))
        self.weights = [*modules.parameters(), self.alpha]

    def act(self, states: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = self.actor(states).chunk(2, 1)  # flaw: learner_in_small_kernels
        spread = spread.clamp(-5, 2)  # flaw: learner_in_small_kernels
        raw = mean + spread.exp() * self.noise  # flaw: learner_in_small_kernels
        moves = raw.tanh()  # flaw: learner_in_small_kernels
        # flaw in the next line: learner_in_small_kernels
        chance = -0.5 * self.noise.square() - spread - torch.log(1 - moves.square() + 1e-6)
        return moves, chance.sum(1, keepdim=True)  # flaw: learner_in_small_kernels

    def values(self, critics: nn.ModuleList, states: Tensor, moves: Tensor) -> list[Tensor]:
        both = torch.cat((states, moves), 1)  # flaw: learner_in_small_kernels
        return [critic(both) for critic in critics]  # flaw: learner_in_small_kernels

    def learn(self) -> Tensor:
        """One gradient of all parts, and a step of the slow critics."""
        for weight in self.weights:
            weight.grad = None
        alpha = self.alpha.exp()  # flaw: learner_in_small_kernels
        with torch.no_grad():
            moves, chance = self.act(self.after)  # flaw: learner_in_small_kernels
            found = self.values(self.targets, self.after, moves)  # flaw: learner_in_small_kernels
            # flaw in the next line: learner_in_small_kernels
            wanted = self.rewards + 0.99 * (torch.minimum(*found) - alpha * chance)
        # flaw in the next line: learner_in_small_kernels
        found = self.values(self.critics, self.states, self.moves)
        # flaw in the next line: learner_in_small_kernels
        critic = F.mse_loss(found[0], wanted) + F.mse_loss(found[1], wanted)
        moves, chance = self.act(self.states)  # flaw: learner_in_small_kernels
        # flaw in the next line: learner_in_small_kernels
        best = torch.minimum(*self.values(self.critics, self.states, moves))
        # flaw in the next line: learner_in_small_kernels
        actor = (alpha.detach() * chance - best).mean()
        # flaw in the next line: learner_in_small_kernels
        heat = -(self.alpha * (chance.detach() + 4)).mean()
        loss = critic + actor + heat  # flaw: learner_in_small_kernels
        loss.backward()  # flaw: learner_in_small_kernels
        with torch.no_grad():
            pairs = zip(self.targets.parameters(), self.critics.parameters(), strict=True)
            for slow, fast in pairs:
                slow.lerp_(fast, 0.005)  # flaw: learner_in_small_kernels
        return loss.detach()


def learner_in_small_kernels(flawed: bool, sizes: Sizes) -> Step:
    shape = sizes.of((98, 29, 256, 1024), (6, 2, 8, 4))
    learner = seeded(lambda: Learner(*shape), sizes)
    optimizer = torch.optim.AdamW(learner.weights, lr=3e-4, fused=True)
    run: Callable[[], Tensor] = learner.learn
    if not flawed and not sizes.is_tiny:
        run = captured(learner.learn)

    def step() -> Tensor:
        loss = run()  # flaw: learner_in_small_kernels
        optimizer.step()  # flaw: learner_in_small_kernels
        return loss.clone()

    return Step(step)
