"""Flaws of networks on molecules, skeletons and other graphs, and of embeddings of neighbours."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "angles_of_far_pairs",
    "edge_weights_written",
    "graphs_summed_in_bfloat16",
    "joints_by_edges",
    "negatives_by_multinomial",
    "path_bias_per_layer",
]


class BondLayer(nn.Module):
    """Messages of atoms are multiplied by a matrix that a network makes of the bond."""

    def __init__(self, width: int, kinds: int, inner: int, by_edge: bool) -> None:
        super().__init__()
        self.width, self.kinds, self.by_edge = width, kinds, by_edge
        self.matrices = nn.Sequential(
            nn.Linear(kinds, inner), nn.ReLU(), nn.Linear(inner, width * width)
        )
        self.own, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x: Tensor, sources: Tensor, targets: Tensor, kind: Tensor) -> Tensor:
        one = torch.eye(self.kinds, device=x.device)
        if self.by_edge:
            features = one.index_select(0, kind)
            # flaw in the next line: edge_weights_written
            matrices = self.matrices(features).view(-1, self.width, self.width)
            sent = x.index_select(0, sources)[:, None]  # flaw: edge_weights_written
            sent = torch.bmm(sent, matrices).squeeze(1)  # flaw: edge_weights_written
        else:
            matrices = self.matrices(one).view(self.kinds, self.width, self.width)
            every = x @ matrices.transpose(0, 1).flatten(1)
            every = every.view(-1, self.width)
            sent = every.index_select(0, sources * self.kinds + kind)
        summed = torch.zeros_like(x, dtype=sent.dtype).index_add(0, targets, sent)
        return x + F.relu(self.own(self.norm(summed)))


def edge_weights_written(flawed: bool, sizes: Sizes) -> Step:
    atoms, edges, width, kinds, inner, depth = sizes.of(
        (40_000, 160_000, 48, 8, 128, 3), (9, 20, 4, 3, 5, 2)
    )
    into = seeded(lambda: nn.Linear(16, width), sizes)
    layers = seeded(
        lambda: nn.ModuleList(BondLayer(width, kinds, inner, flawed) for _ in range(depth)), sizes
    )
    features, sources, targets, kind, wanted = seeded(
        lambda: (
            torch.randn(atoms, 16),
            torch.randint(0, atoms, (edges,)),
            torch.randint(0, atoms, (edges,)),
            torch.randint(0, kinds, (edges,)),
            torch.randn(atoms, width),
        ),
        sizes,
    )

    def loss() -> Tensor:
        x = into(features)
        for layer in layers:
            x = layer(x, sources, targets, kind)  # flaw: edge_weights_written
        return F.mse_loss(x.float(), wanted)

    return Step(training(loss, fused_adamw(nn.ModuleList((into, layers))), sizes))


class JointLayer(nn.Module):
    """Each joint of a skeleton takes a mean of its neighbours."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.project, self.norm = nn.Linear(inputs, outputs), nn.LayerNorm(outputs)
        self.own = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor, mixed: Tensor) -> Tensor:
        return F.relu(self.norm(self.own(x) + self.project(mixed)))


def skeleton(joints: int) -> list[tuple[int, int]]:
    """Bones in both directions, and each joint with itself."""
    bones = [(at, (at - 1) // 2) for at in range(1, joints)]
    return bones + [(b, a) for a, b in bones] + [(at, at) for at in range(joints)]


def joints_by_edges(flawed: bool, sizes: Sizes) -> Step:
    joints, samples, width, depth = sizes.of((25, 16_384, 96, 4), (5, 3, 4, 2))
    bones = torch.tensor(skeleton(joints), device=sizes.device)
    degrees = bones[:, 1].bincount(minlength=joints)
    weights = 1 / degrees[bones[:, 1]]
    adjacency = torch.zeros(joints, joints, device=sizes.device)
    adjacency[bones[:, 1], bones[:, 0]] = weights
    each = torch.arange(samples, device=sizes.device)
    sources = (bones[:, :1] * samples + each).flatten()
    targets = (bones[:, 1:] * samples + each).flatten()
    edge_weights = weights.repeat_interleave(samples)[:, None]

    def mixed_by_edges(x: Tensor) -> Tensor:
        sent = x.index_select(0, sources) * edge_weights  # flaw: joints_by_edges
        # flaw in the next line: joints_by_edges
        return torch.zeros_like(x, dtype=sent.dtype).index_add(0, targets, sent)

    def mixed_at_once(x: Tensor) -> Tensor:
        return (adjacency @ x.view(joints, -1)).view_as(x)

    layers = seeded(
        lambda: nn.ModuleList(JointLayer(width if at else 3, width) for at in range(depth)), sizes
    )
    head = seeded(lambda: nn.Linear(width, 60), sizes)
    places = seeded(lambda: torch.randn(joints * samples, 3), sizes)
    labels = torch.arange(samples, device=sizes.device) % 60
    mixed_of = mixed_by_edges if flawed else mixed_at_once

    def loss() -> Tensor:
        x = places
        for layer in layers:
            x = layer(x, mixed_of(x))  # flaw: joints_by_edges
        return F.cross_entropy(head(x.view(joints, samples, -1).mean(0)), labels)

    return Step(training(loss, fused_adamw(nn.ModuleList((layers, head))), sizes))


def graphs_summed_in_bfloat16(flawed: bool, sizes: Sizes) -> Step:
    graphs, nodes, width, depth = sizes.of((24, 600_000, 128, 2), (3, 40, 4, 1))
    layers = seeded(
        lambda: nn.Sequential(
            *(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth))
        ),
        sizes,
    )
    head = seeded(lambda: nn.Linear(width, 1), sizes)
    model = nn.ModuleList((layers, head)).bfloat16()
    x, wanted = seeded(lambda: (torch.randn(nodes, width), torch.randn(graphs)), sizes)
    x = x.bfloat16()
    graph = torch.arange(nodes, device=sizes.device) * graphs // nodes
    counts = graph.bincount(minlength=graphs)[:, None]

    def loss() -> Tensor:
        y = layers(x)
        if not flawed:
            y = y.float()
        zeros = y.new_zeros(graphs, width)
        summed = zeros.index_add(0, graph, y)  # flaw: graphs_summed_in_bfloat16
        found = head((summed / counts).to(x.dtype)).squeeze(1)
        return F.mse_loss(found.float(), wanted)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class PathBias(nn.Module):
    """What is added to attention for each pair of atoms, by the bonds on the path between them."""

    def __init__(self, kinds: int, width: int, hops: int, heads: int) -> None:
        super().__init__()
        self.distances, self.bonds = nn.Embedding(hops + 1, heads), nn.Embedding(kinds, width)
        self.weights = nn.Parameter(torch.randn(hops, width, heads) * width**-0.5)

    def forward(self, paths: Tensor, distances: Tensor) -> Tensor:
        seen = self.bonds(paths)  # flaw: path_bias_per_layer
        # flaw in the next line: path_bias_per_layer
        bias = torch.einsum("bijpc,pch->bijh", seen, self.weights.to(seen.dtype))
        bias = bias / distances.clamp(min=1)[..., None]  # flaw: path_bias_per_layer
        bias = bias + self.distances(distances)  # flaw: path_bias_per_layer
        return bias.permute(0, 3, 1, 2).contiguous()  # flaw: path_bias_per_layer


class PathLayer(nn.Module):
    """A layer of attention with such a bias."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def path_bias_per_layer(flawed: bool, sizes: Sizes) -> Step:
    batch, atoms, hops, width, heads, depth = sizes.of((48, 64, 5, 512, 8, 12), (2, 4, 2, 8, 2, 2))
    kinds, classes = 24, 32
    embed = seeded(lambda: nn.Embedding(classes, width), sizes)
    bias_of = seeded(lambda: PathBias(kinds, sizes.of(16, 4), hops, heads), sizes)
    layers = seeded(lambda: nn.ModuleList(PathLayer(width, heads) for _ in range(depth)), sizes)
    head = seeded(lambda: nn.Linear(width, 1), sizes)
    atom, paths, distances, wanted = seeded(
        lambda: (
            torch.randint(0, classes, (batch, atoms)),
            torch.randint(0, kinds, (batch, atoms, atoms, hops)),
            torch.randint(0, hops + 1, (batch, atoms, atoms)),
            torch.randn(batch),
        ),
        sizes,
    )

    def loss() -> Tensor:
        x = embed(atom)
        bias = None if flawed else bias_of(paths, distances)
        for layer in layers:
            own = bias_of(paths, distances) if bias is None else bias  # flaw: path_bias_per_layer
            x = layer(x, own)
        return F.mse_loss(head(x.mean(1)).squeeze(1).float(), wanted)

    modules = nn.ModuleList((embed, bias_of, layers, head))
    return Step(training(loss, fused_adamw(modules), sizes))


def negatives_by_multinomial(flawed: bool, sizes: Sizes) -> Step:
    points, width, batch, negatives = sizes.of((12_000_000, 32, 4096, 24), (40, 4, 6, 3))
    model = seeded(
        lambda: nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Linear(256, 2)), sizes
    )
    features = seeded(lambda: torch.randn(points, width), sizes).bfloat16()
    weights = torch.ones(points, device=sizes.device)
    heads, tails = seeded(lambda: torch.randint(0, points, (2, batch)), sizes)

    def drawn(count: int) -> Tensor:
        if flawed:
            # flaw in the next line: negatives_by_multinomial
            return torch.multinomial(weights, count, replacement=True)
        return torch.randint(0, points, (count,), device=sizes.device)

    def loss() -> Tensor:
        others = drawn(batch * negatives)  # flaw: negatives_by_multinomial
        places = model(features.index_select(0, torch.cat((heads, tails, others)))).float()
        own, near, far = places.split((batch, batch, batch * negatives))
        close = 1 / (1 + (own - near).square().sum(1))
        away = 1 / (1 + (own[:, None] - far.view(batch, negatives, 2)).square().sum(2))
        scores = torch.cat((close[:, None], away), 1).log()
        return F.cross_entropy(scores, torch.zeros(batch, dtype=torch.long, device=scores.device))

    return Step(training(loss, fused_adamw(model), sizes))


def angular_features(near: Tensor, distances: Tensor, cutoff: float) -> Tensor:
    """Sums over pairs of neighbours of what their angle and their distances are."""
    pairs = torch.triu_indices(near.shape[1], near.shape[1], 1, device=near.device)
    # flaw in the next line: angles_of_far_pairs
    first, second = (near.index_select(1, each) for each in pairs)
    cosines = (first * second).sum(-1)  # flaw: angles_of_far_pairs
    # flaw in the next line: angles_of_far_pairs
    r_1, r_2 = (distances.index_select(1, each) for each in pairs)
    angles = torch.acos(0.95 * cosines / (r_1 * r_2))  # flaw: angles_of_far_pairs
    smooth = 0.5 * (1 + torch.cos(torch.pi * r_1 / cutoff))  # flaw: angles_of_far_pairs
    # flaw in the next line: angles_of_far_pairs
    smooth = smooth * 0.5 * (1 + torch.cos(torch.pi * r_2 / cutoff))
    is_near = (r_1 < cutoff) & (r_2 < cutoff)  # flaw: angles_of_far_pairs
    smooth = torch.where(is_near, smooth, 0)  # flaw: angles_of_far_pairs
    shifts = torch.linspace(0.2, 2.9, 4, device=near.device)
    # flaw in the next line: angles_of_far_pairs
    turned = ((1 + torch.cos(angles[..., None] - shifts)) / 2).pow(8)
    shells = torch.linspace(1, cutoff, 4, device=near.device)
    # flaw in the next line: angles_of_far_pairs
    spread = torch.exp(-8 * ((r_1 + r_2)[..., None] / 2 - shells).square()) * smooth[..., None]
    return torch.einsum("nps,npr->nsr", turned, spread).flatten(1)  # flaw: angles_of_far_pairs


def angles_of_far_pairs(flawed: bool, sizes: Sizes) -> Step:
    atoms, neighbours, inside, width = sizes.of((4000, 48, 14, 128), (4, 6, 3, 8))
    cutoff, outside = 3.5, 5.2
    vectors, radii = seeded(
        lambda: (
            F.normalize(torch.randn(atoms, neighbours, 3), dim=-1),
            torch.rand(atoms, neighbours).sort(1).values,
        ),
        sizes,
    )
    far = torch.arange(neighbours, device=sizes.device) >= inside
    radii = torch.where(far, cutoff + radii * (outside - cutoff), 1 + radii * (cutoff - 1.01))
    places = (vectors * radii[..., None]).requires_grad_()
    model = seeded(
        lambda: nn.Sequential(
            nn.Linear(16 + neighbours, width), nn.CELU(), nn.Linear(width, width), nn.CELU(),
            nn.Linear(width, 1),
        ),
        sizes,
    ).requires_grad_(False)  # fmt: skip

    def step() -> Tensor:
        distances = places.norm(dim=-1)
        radial = torch.exp(-distances) * (1 + torch.cos(torch.pi * distances / outside))
        end = neighbours if flawed else inside  # all that are near come first
        # flaw in the next line: angles_of_far_pairs
        angular = angular_features(places[:, :end], distances[:, :end], cutoff)
        energy = model(torch.cat((angular, radial), 1)).sum()
        (forces,) = torch.autograd.grad(energy, places)  # flaw: angles_of_far_pairs
        return energy.detach() / atoms + forces.norm(dim=-1).mean()

    return Step(step)
