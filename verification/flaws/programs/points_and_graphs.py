"""Networks of points, skeletons, atoms and meshes."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from .program import Sizes, Step, compiled, fused_adamw, seeded, training
from .small_networks import fast_float32

__all__ = [
    "edge_list_neighbours",
    "lattice_sizes_vary",
    "mesh_attention_per_edge",
    "skeleton_files_read_each_time",
    "water_neighbours_every_step",
]


@contextmanager
def tuned_convolutions() -> Iterator[None]:
    """Convolutions whose algorithms cuDNN chooses by trying them."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


class LatticeConvolution(nn.Module):
    """A convolution over the neighbours of each point of a permutohedral lattice."""

    def __init__(self, inside: int, outside: int, neighbours: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(inside, outside, (neighbours, 1))

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        near = x.index_select(2, table.flatten()).unflatten(2, table.shape)
        return F.leaky_relu(self.mix(near).squeeze(2), 0.1)  # flaw: lattice_sizes_vary


class SceneFlow(nn.Module):
    """The motion of each lattice point."""

    def __init__(self, width: int, neighbours: int) -> None:
        super().__init__()
        self.enter = nn.Linear(6, width)
        self.first = LatticeConvolution(width, width, neighbours)
        self.second = LatticeConvolution(width, width, neighbours)
        self.hidden = nn.Linear(width, 4 * width)
        self.out = nn.Linear(4 * width, 3)

    def forward(self, points: Tensor, table: Tensor) -> Tensor:
        x = self.enter(points).transpose(1, 2)
        x = self.second(self.first(x, table), table).transpose(1, 2)
        return self.out(F.leaky_relu(self.hidden(x), 0.1))


def lattice_sizes_vary(flawed: bool, sizes: Sizes) -> Step:
    """Each pair of clouds fills another number of lattice points."""
    smallest, bucket, width, neighbours, batch = sizes.of((8192, 4096, 64, 15, 4), (16, 8, 8, 5, 2))
    model = seeded(lambda: SceneFlow(width, neighbours), sizes)
    optimizer = fused_adamw(model)
    largest = 2 * smallest
    points = seeded(lambda: torch.randn(batch, largest, 6), sizes)
    motion = seeded(lambda: torch.randn(batch, largest, 3), sizes)
    places = seeded(lambda: torch.rand(neighbours, largest), sizes)
    order = torch.randperm(smallest, generator=torch.Generator().manual_seed(3))
    filled = (order + smallest + 1).tolist()
    turns = count()

    def loss_of() -> Tensor:
        size = filled[next(turns) % len(filled)]
        cloud = points[:, :size]  # flaw: lattice_sizes_vary
        table = (places[:, :size] * size).long()  # flaw: lattice_sizes_vary
        if not flawed:
            more = -size % bucket
            cloud = F.pad(cloud, (0, 0, 0, more))
            table = F.pad(table, (0, more))
        flow = model(cloud, table)[:, :size]  # flaw: lattice_sizes_vary
        return (flow - motion[:, :size]).norm(dim=-1).mean()

    return Step(training(loss_of, optimizer, sizes), tuned_convolutions, warm_up=10)


class EdgeConvolution(nn.Module):
    """The largest message of each point's nearest neighbours, on edges or in a dense layout."""

    def __init__(self, width: int, neighbours: int, is_dense: bool) -> None:
        super().__init__()
        self.neighbours = neighbours
        self.is_dense = is_dense
        self.message = nn.Sequential(
            nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(x) if self.is_dense else self.sparse(x)

    @torch.no_grad()
    def nearest(self, x: Tensor) -> Tensor:
        """The rows of the neighbours of each point, among the points of all clouds."""
        near = torch.cdist(x.float(), x.float()).topk(self.neighbours, largest=False).indices
        first = torch.arange(x.shape[0], device=x.device) * x.shape[1]
        return near + first[:, None, None]

    def sparse(self, x: Tensor) -> Tensor:
        nodes = x.flatten(0, 1)
        source = self.nearest(x).flatten()
        target = torch.arange(len(nodes), device=x.device).repeat_interleave(
            self.neighbours, output_size=len(source)
        )
        here = nodes.index_select(0, target)  # flaw: edge_list_neighbours
        there = nodes.index_select(0, source)  # flaw: edge_list_neighbours
        messages = self.message(torch.cat([here, there - here], -1))  # flaw: edge_list_neighbours
        rows = target[:, None].expand_as(messages)  # flaw: edge_list_neighbours
        largest = torch.zeros_like(messages[: len(nodes)])
        # flaw in the next line: edge_list_neighbours
        largest = largest.scatter_reduce(0, rows, messages, "amax", include_self=False)
        return largest.unflatten(0, x.shape[:2])

    def dense(self, x: Tensor) -> Tensor:
        rows = self.nearest(x)
        there = x.flatten(0, 1).index_select(0, rows.flatten()).unflatten(0, rows.shape)
        here = x[:, :, None].expand_as(there)
        return self.message(torch.cat([here, there - here], -1)).amax(2)


class DeepPointNetwork(nn.Module):
    """A deep residual graph network that labels points."""

    def __init__(self, depth: int, width: int, neighbours: int, is_dense: bool) -> None:
        super().__init__()
        self.enter = nn.Linear(9, width)
        self.blocks = nn.ModuleList(
            EdgeConvolution(width, neighbours, is_dense) for _ in range(depth)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.out = nn.Linear(width, 13)

    def forward(self, points: Tensor) -> Tensor:
        x = self.enter(points)
        for norm, block in zip(self.norms, self.blocks, strict=True):
            x = x + block(norm(x))
        return self.out(x)


def edge_list_neighbours(flawed: bool, sizes: Sizes) -> Step:
    """Rooms of points, whose parts are labelled."""
    clouds, points, depth, width, neighbours = sizes.of((16, 1024, 7, 64, 16), (2, 24, 2, 8, 4))
    model = seeded(lambda: DeepPointNetwork(depth, width, neighbours, not flawed), sizes)
    rooms = seeded(lambda: torch.randn(clouds, points, 9), sizes)
    labels = seeded(lambda: torch.randint(13, (clouds * points,)), sizes)
    optimizer = fused_adamw(model)
    return Step(
        training(lambda: F.cross_entropy(model(rooms).flatten(0, 1), labels), optimizer, sizes)
    )


def attention_on_edges(
    query: Tensor, key: Tensor, value: Tensor, edge: Tensor, ends: tuple[Tensor, Tensor]
) -> Tensor:
    """Each node attends to the nodes that have an edge to it; tensors are [row, head, width]."""
    source, target = ends
    asked = query.index_select(0, target)  # flaw: mesh_attention_per_edge
    keys = key.index_select(0, source) + edge  # flaw: mesh_attention_per_edge
    values = value.index_select(0, source) + edge  # flaw: mesh_attention_per_edge
    scores = (asked * keys).sum(-1).float() / query.shape[
        -1
    ] ** 0.5  # flaw: mesh_attention_per_edge
    rows = target[:, None].expand_as(scores)
    nothing = scores.new_zeros(len(query), scores.shape[1])
    # flaw in the next line: mesh_attention_per_edge
    top = nothing.scatter_reduce(0, rows, scores.detach(), "amax", include_self=False)
    weights = (scores - top.index_select(0, target)).exp()  # flaw: mesh_attention_per_edge
    total = nothing.index_add(0, target, weights)  # flaw: mesh_attention_per_edge
    weights = weights / total.index_select(0, target)  # flaw: mesh_attention_per_edge
    messages = values.float() * weights[..., None]  # flaw: mesh_attention_per_edge
    result = messages.new_zeros(query.shape)
    return result.index_add(0, target, messages).flatten(1)  # flaw: mesh_attention_per_edge


class MeshBlock(nn.Module):
    """A block of a graph transformer on the hidden mesh."""

    def __init__(self, width: int, heads: int, attend: Any) -> None:
        super().__init__()
        self.heads = heads
        self.attend = attend
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.edge = nn.Linear(8, width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, edges: Tensor, ends: tuple[Tensor, Tensor]) -> Tensor:
        parts = [*self.qkv(self.norm_1(x)).chunk(3, -1), self.edge(edges)]
        query, key, value, edge = (part.unflatten(-1, (self.heads, -1)) for part in parts)
        # flaw in the next line: mesh_attention_per_edge
        x = x + self.out(self.attend(query, key, value, edge, ends))
        return x + self.mlp(self.norm_2(x))


class WeatherModel(nn.Module):
    """The change of the weather's state on a mesh."""

    def __init__(self, variables: int, depth: int, width: int, heads: int, attend: Any) -> None:
        super().__init__()
        self.enter = nn.Linear(variables, width)
        self.blocks = nn.ModuleList(MeshBlock(width, heads, attend) for _ in range(depth))
        self.out = nn.Linear(width, variables)

    def forward(self, state: Tensor, edges: Tensor, ends: tuple[Tensor, Tensor]) -> Tensor:
        x = self.enter(state)
        for block in self.blocks:
            x = block(x, edges, ends)
        return state + self.out(x)


def mesh_attention_per_edge(flawed: bool, sizes: Sizes) -> Step:
    """One forecast step of a graph transformer."""
    nodes, near, depth, width, heads = sizes.of((20000, 8, 4, 512, 8), (30, 3, 2, 16, 2))
    attend = attention_on_edges if flawed else compiled(attention_on_edges, sizes)
    model = seeded(lambda: WeatherModel(80, depth, width, heads, attend), sizes)
    state, after = seeded(lambda: torch.randn(2, nodes, 80), sizes).unbind()
    edges = seeded(lambda: torch.randn(nodes * near, 8), sizes)
    target = torch.arange(nodes, device=sizes.device).repeat_interleave(near)
    ends = (seeded(lambda: torch.randint(nodes, (nodes * near,)), sizes), target)
    optimizer = fused_adamw(model)
    return Step(training(lambda: F.mse_loss(model(state, edges, ends), after), optimizer, sizes))


class WaterPotential(nn.Module):
    """The energy of oxygens, by convolutions with filters of the distance."""

    def __init__(self, width: int, layers: int, cutoff: float) -> None:
        super().__init__()
        self.cutoff = cutoff
        self.kind = nn.Parameter(torch.randn(width))
        self.filters = nn.ModuleList(
            nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(layers)
        )
        self.updates = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(layers)
        )
        self.energy = nn.Linear(width, 1)
        self.register_buffer("centres", torch.linspace(0.0, cutoff, 32))

    def forward(self, positions: Tensor, box: float, pairs: Tensor) -> Tensor:
        here, there = pairs
        apart = positions.index_select(0, here) - positions.index_select(0, there)
        distance = (apart - box * (apart / box).round()).norm(dim=-1, keepdim=True)
        radial = torch.exp(-4.0 * (distance - self.centres) ** 2)
        inside = 0.5 * (torch.cos(distance.clamp(max=self.cutoff) * torch.pi / self.cutoff) + 1)
        x = self.kind.expand(len(positions), -1)
        for filter_of, update in zip(self.filters, self.updates, strict=True):
            messages = x.index_select(0, there) * filter_of(radial) * inside
            x = x + update(torch.zeros_like(x).index_add(0, here, messages))
        return 0.01 * self.energy(x).sum()


@torch.no_grad()
def neighbours_within(positions: Tensor, box: float, reach: float) -> Tensor:
    """All pairs of atoms that are nearer than a reach, across the walls of the box."""
    apart = positions[:, None] - positions[None]  # flaw: water_neighbours_every_step
    apart = apart - box * (apart / box).round()  # flaw: water_neighbours_every_step
    squares = (apart * apart).sum(-1)  # flaw: water_neighbours_every_step
    squares.fill_diagonal_(torch.inf)  # flaw: water_neighbours_every_step
    return (squares < reach * reach).nonzero().T.contiguous()  # flaw: water_neighbours_every_step


def water_neighbours_every_step(flawed: bool, sizes: Sizes) -> Step:
    """A step of molecular dynamics with a learned potential."""
    side, width, layers = sizes.of((18, 128, 3), (4, 8, 2))
    box, cutoff, time_step, often = 3.1 * side, 5.0, 0.002, 10
    model = seeded(lambda: WaterPotential(width, layers, cutoff), sizes).requires_grad_(False)
    line = torch.arange(side, device=sizes.device) * 3.1
    places = torch.cartesian_prod(line, line, line)
    positions = places + seeded(lambda: 0.3 * torch.randn(side**3, 3), sizes)
    velocities = seeded(lambda: torch.randn(side**3, 3), sizes)
    turns = count()
    kept: list[Tensor] = []

    def run() -> Tensor:
        nonlocal positions, velocities
        if flawed:
            # flaw in the next line: water_neighbours_every_step
            pairs = neighbours_within(positions, box, cutoff)
        else:
            if next(turns) % often == 0:
                kept[:] = [neighbours_within(positions, box, cutoff + 1.0)]
            pairs = kept[0]
        positions.requires_grad_()
        energy = model(positions, box, pairs)
        (slope,) = torch.autograd.grad(energy, positions)
        velocities = velocities - time_step * slope
        positions = positions.detach() + time_step * velocities
        return energy.detach() / len(positions)

    return Step(run, fast_float32, warm_up=often, cycle=often)


class Recordings(Dataset[tuple[np.ndarray, int]]):
    """Sequences of the joints of two hands, one compressed file each."""

    def __init__(self, files: int, frames: int, is_kept: bool) -> None:
        folder = Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        chance = np.random.default_rng(5)
        self.paths = [folder / f"{index}.npz" for index in range(files)]
        for path in self.paths:
            joints = chance.standard_normal((frames, 42, 3), dtype=np.float32)
            np.savez_compressed(path, joints=joints)
        self.kept = [self.read(path) for path in self.paths] if is_kept else None

    def read(self, path: Path) -> np.ndarray:
        with np.load(path) as file:  # flaw: skeleton_files_read_each_time
            joints: np.ndarray = file["joints"]  # flaw: skeleton_files_read_each_time
        return joints - joints[:, :1]

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        place = index % len(self.paths)
        if self.kept is not None:
            return self.kept[place], place % 24
        return self.read(self.paths[place]), place % 24  # flaw: skeleton_files_read_each_time


class HandActions(nn.Module):
    """A transformer over short pieces of the movement of two hands."""

    def __init__(self, width: int, layers: int, piece: int) -> None:
        super().__init__()
        self.piece = piece
        self.enter = nn.Linear(piece * 42 * 3, width)
        layer = nn.TransformerEncoderLayer(
            width, max(1, width // 64), 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, 24)

    def forward(self, joints: Tensor) -> Tensor:
        pieces = joints.unflatten(1, (-1, self.piece)).flatten(2)
        return self.out(self.body(self.enter(pieces)).mean(1))


def skeleton_files_read_each_time(flawed: bool, sizes: Sizes) -> Step:
    """Actions of hands are learned from files that are read while training goes on."""
    files, frames, batch, width, layers = sizes.of((256, 240, 64, 512, 8), (4, 8, 2, 16, 1))
    recordings = Recordings(files, frames, not flawed)
    # flaw in the next line: skeleton_files_read_each_time
    loader = DataLoader(recordings, batch, num_workers=2, pin_memory=sizes.device == "cuda")
    model = seeded(lambda: HandActions(width, layers, 2), sizes)
    optimizer = fused_adamw(model)
    batches = iter(loader)

    def loss_of() -> Tensor:
        joints, actions = next(batches)  # flaw: skeleton_files_read_each_time
        joints = joints.to(sizes.device, non_blocking=True)
        actions = actions.to(sizes.device, non_blocking=True)
        return F.cross_entropy(model(joints), actions)

    return Step(training(loss_of, optimizer, sizes))
