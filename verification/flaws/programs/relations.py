"""Flaws of models of graphs, points, proteins and causes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "edge_softmax_maxima",
    "effects_by_inverse",
    "relative_positions_one_hot",
    "voxels_by_rows",
]


def shares_by_maxima(scores: Tensor, targets: Tensor, nodes: int) -> Tensor:
    """Softmax of the scores of all edges (edges, heads) that end at the same node."""
    index = targets[:, None].expand_as(scores)
    lowest = scores.new_full((nodes, scores.shape[1]), -torch.inf)
    highest = lowest.scatter_reduce(0, index, scores, "amax")  # flaw: edge_softmax_maxima
    powers = (scores - highest[targets]).exp()  # flaw: edge_softmax_maxima
    total = scores.new_zeros(nodes, scores.shape[1]).index_add(0, targets, powers)
    return powers / (total.index_select(0, targets) + 1e-16)


def shares_by_highest(scores: Tensor, targets: Tensor, nodes: int) -> Tensor:
    """The same, from one maximum of all edges, which has no gradient."""
    powers = (scores - scores.detach().amax(0)).exp()
    total = scores.new_zeros(nodes, scores.shape[1]).index_add(0, targets, powers)
    return powers / (total.index_select(0, targets) + 1e-16)


class EdgeAttention(nn.Module):
    """A layer of a graph attention network."""

    def __init__(self, width: int, heads: int, by_maxima: bool) -> None:
        super().__init__()
        self.shares = shares_by_maxima if by_maxima else shares_by_highest
        self.heads = heads
        self.into, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.from_source, self.from_target = nn.Linear(width, heads), nn.Linear(width, heads)

    def forward(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        y = self.into(self.norm(x))
        scores = self.from_source(y).index_select(0, sources)
        scores = scores + self.from_target(y).index_select(0, targets)
        scores = F.leaky_relu(scores, 0.2)
        shares = self.shares(scores, targets, len(x))  # flaw: edge_softmax_maxima
        sent = y.unflatten(1, (self.heads, -1)).index_select(0, sources) * shares[..., None]
        return x + F.elu(torch.zeros_like(x).index_add(0, targets, sent.flatten(1)))


def edge_softmax_maxima(flawed: bool, sizes: Sizes) -> Step:
    nodes, edges, width, heads, depth = sizes.of((50_000, 800_000, 64, 8, 3), (6, 20, 8, 2, 2))
    model = seeded(
        lambda: nn.ModuleList(EdgeAttention(width, heads, flawed) for _ in range(depth)), sizes
    )
    head = seeded(lambda: nn.Linear(width, 40), sizes)
    features, ends, labels = seeded(
        lambda: (
            torch.randn(nodes, width),
            torch.randint(0, nodes, (2, edges)),
            torch.randint(0, 40, (nodes,)),
        ),
        sizes,
    )

    def loss() -> Tensor:
        x = features
        for layer in model:
            x = layer(x, *ends)
        return F.cross_entropy(head(x), labels)

    optimizer = fused_adamw(nn.ModuleList((model, head)))
    return Step(training(loss, optimizer, sizes, is_mixed=False))


def voxels_of_rows(places: Tensor, sides: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """The voxels (scene, z, y, x) with points, and the one of each point."""
    # flaw in the next line: voxels_by_rows
    found, inverse = places.unique(dim=0, return_inverse=True)
    return found, inverse


def voxels_of_keys(places: Tensor, sides: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """The same from one number for each point."""
    deep, high, wide = sides
    scene, z, y, x = places.unbind(1)
    keys, inverse = (((scene * deep + z) * high + y) * wide + x).unique(return_inverse=True)
    rows = (keys // (deep * high * wide), keys // (high * wide) % deep)
    return torch.stack((*rows, keys // wide % high, keys % wide), 1), inverse


class VoxelNet(nn.Module):
    """Points to voxels, voxels to a map from above, and convolutions over it."""

    def __init__(self, width: int, depth: int, sides: tuple[int, int, int], by_rows: bool) -> None:
        super().__init__()
        self.voxels = voxels_of_rows if by_rows else voxels_of_keys
        self.sides = sides
        self.points = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.head = nn.Conv2d(width, 8, 1)

    def forward(self, points: Tensor, scenes: Tensor, count: int) -> Tensor:
        deep, high, wide = self.sides
        size = torch.tensor([deep, high, wide], device=points.device)
        places = (points[:, :3] * size).long()
        places = torch.cat((scenes[:, None], places), 1)
        found, inverse = self.voxels(places, self.sides)  # flaw: voxels_by_rows
        x = self.points(points).float()
        sums = x.new_zeros(len(found), x.shape[1]).index_add(0, inverse, x)
        counts = x.new_zeros(len(found)).index_add(0, inverse, torch.ones_like(x[:, 0]))
        cells = (found[:, 0] * high + found[:, 2]) * wide + found[:, 3]
        above = x.new_zeros(count * high * wide, x.shape[1])
        above = above.index_add(0, cells, sums / counts[:, None])
        x = above.view(count, high, wide, -1).permute(0, 3, 1, 2)
        for conv in self.convs:
            x = x + F.relu(conv(x))
        return self.head(x)


def voxels_by_rows(flawed: bool, sizes: Sizes) -> Step:
    width, depth, count, points = sizes.of((64, 6, 4, 120_000), (4, 1, 2, 20))
    sides = sizes.of((16, 256, 256), (2, 4, 4))
    model = seeded(lambda: VoxelNet(width, depth, sides, flawed), sizes)
    model = model.to(memory_format=torch.channels_last)
    seen = seeded(lambda: torch.rand(count * points, 4), sizes)
    scenes = torch.arange(count, device=sizes.device).repeat_interleave(points)
    truth = seeded(lambda: torch.randn(count, 8, *sides[1:]), sizes)
    run = training(
        lambda: F.smooth_l1_loss(model(seen, scenes, count).float(), truth),
        fused_adamw(model),
        sizes,
    )
    return Step(run)


class RelativePositions(nn.Module):
    """How far residues are from each other, in their chain, their tokens, and by chain."""

    def __init__(self, width: int, most: int, by_one_hot: bool) -> None:
        super().__init__()
        self.by_one_hot, self.most = by_one_hot, most
        self.sizes = (2 * most + 2, 2 * most + 2, 6)
        self.out = nn.Linear(sum(self.sizes), width, bias=False)

    def forward(self, places: Tensor) -> Tensor:
        residues, tokens, chains = places
        same = chains[:, None] == chains
        last = 2 * self.most + 1
        offsets = [
            torch.where(same, (each[:, None] - each + self.most).clamp(0, last - 1), last)
            for each in (residues, tokens)
        ]
        offsets.append(torch.where(same, 5, (chains[:, None] - chains + 2).clamp(0, 4)))
        if self.by_one_hot:
            # flaw in the next line: relative_positions_one_hot
            hot = [F.one_hot(each, size) for each, size in zip(offsets, self.sizes, strict=True)]
            hot = torch.cat(hot, 2).to(self.out.weight.dtype)  # flaw: relative_positions_one_hot
            return self.out(hot)  # flaw: relative_positions_one_hot
        parts = self.out.weight.T.split(self.sizes)
        found = [F.embedding(each, part) for each, part in zip(offsets, parts, strict=True)]
        return found[0] + found[1] + found[2]


class PairBlock(nn.Module):
    """The multiplicative update of pairs around triangles, and an MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.sides, self.gate = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, pairs: Tensor) -> Tensor:
        x = self.norm_1(pairs)
        left, right = (each.permute(2, 0, 1) for each in self.sides(x).chunk(2, 2))
        met = (left @ right.transpose(1, 2)).permute(1, 2, 0) / len(pairs) ** 0.5
        pairs = pairs + self.out(met) * self.gate(x).sigmoid()
        return pairs + self.down(F.relu(self.up(self.norm_2(pairs))))


def relative_positions_one_hot(flawed: bool, sizes: Sizes) -> Step:
    width, depth, residues, most, chains = sizes.of((128, 2, 1024, 32, 4), (8, 1, 8, 2, 2))
    embed = seeded(lambda: RelativePositions(width, most, flawed), sizes).eval().bfloat16()
    blocks = seeded(lambda: nn.Sequential(*(PairBlock(width) for _ in range(depth))), sizes)
    blocks = blocks.eval().bfloat16()
    tokens = torch.arange(residues, device=sizes.device)
    each = residues // chains
    places = torch.stack((tokens % each, tokens, tokens // each))

    @torch.inference_mode()
    def step() -> Tensor:
        pairs = embed(places)  # flaw: relative_positions_one_hot
        return blocks(pairs).float().square().mean()

    return Step(step)


class Causes(nn.Module):
    """Which genes act on which, and what is done to them in each context."""

    def __init__(self, genes: int, contexts: int, width: int, noises: int) -> None:
        super().__init__()
        self.effects = nn.Parameter(torch.randn(genes, genes) * 0.2 / genes**0.5)
        self.contexts = nn.Parameter(torch.randn(contexts, genes))
        self.noise = nn.Sequential(
            nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, genes * noises)
        )

    def systems(self) -> Tensor:
        """One minus the effects that each context leaves."""
        left = self.effects * self.contexts.sigmoid()[:, None]
        return torch.eye(len(self.effects), device=left.device) - left


def effects_by_inverse(flawed: bool, sizes: Sizes) -> Step:
    genes, contexts, width, noises = sizes.of((256, 64, 128, 8), (5, 3, 4, 2))
    model = seeded(lambda: Causes(genes, contexts, width, noises), sizes)
    seen, truth = seeded(
        lambda: (torch.randn(contexts, width), torch.randn(contexts, genes, noises)), sizes
    )

    def loss() -> Tensor:
        systems = model.systems()
        noise = model.noise(seen).unflatten(1, (genes, noises))
        if flawed:
            inverse = torch.linalg.inv(systems)  # flaw: effects_by_inverse
            states = torch.bmm(inverse, noise)  # flaw: effects_by_inverse
        else:
            states = torch.linalg.solve(systems, noise)
        return F.mse_loss(states, truth) + 1e-3 * model.effects.abs().mean()

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))
