"""Cells, splats, forecasts, molecules and clouds of points, as public threads describe them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "informer_masks_from_host",
    "lcm_merges_by_pair",
    "pointnet_furthest_point_loop",
    "scvi_latents_no_grad",
    "splats_loss_read_twice",
]


QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


class CellEncoder(nn.Module):
    """The encoder of scVI: counts of genes to mean and variance of a latent."""

    def __init__(self, genes: int, hidden: int, latent: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for into in (genes, hidden):
            layers += [nn.Linear(into, hidden), nn.BatchNorm1d(hidden, eps=1e-3), nn.ReLU()]
            layers.append(nn.Dropout(0.1))
        self.layers = nn.Sequential(*layers)
        self.mean, self.variance = nn.Linear(hidden, latent), nn.Linear(hidden, latent)

    def forward(self, counts: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.layers(torch.log1p(counts))
        return self.mean(hidden), self.variance(hidden).exp() + 1e-4


def scvi_latents_no_grad(flawed: bool, sizes: Sizes) -> Step:
    cells, genes = sizes.of(32_768, 64), sizes.of(2000, 20)
    model = seeded(lambda: CellEncoder(genes, sizes.of(128, 8), 10), sizes).eval()
    counts = seeded(lambda: torch.randint(0, 20, (cells, genes)).float(), sizes)
    mode = torch.no_grad if flawed else torch.inference_mode

    def step() -> Tensor:
        with mode():  # flaw: scvi_latents_no_grad
            # flaw in the next line: scvi_latents_no_grad
            latents = [model(batch)[0] for batch in counts.split(sizes.of(128, 16))]
            return torch.cat(latents).square().mean()

    return Step(step)


class Splats(nn.Module):
    """Gaussians in the image plane, listed for each tile from front to back."""

    def __init__(self, count: int, tiles: tuple[int, int], tile: int, listed: int) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.rand(count, 2))
        self.scale = nn.Parameter(torch.randn(count, 2) * 0.2 - 3)
        self.angle = nn.Parameter(torch.randn(count))
        self.opacity = nn.Parameter(torch.randn(count))
        self.colour = nn.Parameter(torch.randn(count, 3))
        self.listed = listed
        lists = torch.randint(0, count, (tiles[0] * tiles[1] * listed,))
        self.register_buffer("lists", lists)
        rows, columns = tiles[0] * tile, tiles[1] * tile
        grid = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        pixels = torch.stack(grid, -1) / max(rows, columns)
        pixels = pixels.view(tiles[0], tile, tiles[1], tile, 2).transpose(1, 2)
        self.register_buffer("pixels", pixels.reshape(-1, tile * tile, 1, 2))
        self.shape = (*tiles, tile, tile, 3)

    def forward(self) -> Tensor:
        """The image, (1, 3, rows, columns)."""
        place, scale, angle, opacity, colour = (
            each.index_select(0, self.lists).unflatten(0, (-1, self.listed)).unsqueeze(1)
            for each in (self.place, self.scale, self.angle, self.opacity, self.colour)
        )
        off = self.pixels - place
        cosine, sine = angle.cos(), angle.sin()
        u = (off[..., 0] * cosine + off[..., 1] * sine) * (-scale[..., 0]).exp()
        v = (off[..., 1] * cosine - off[..., 0] * sine) * (-scale[..., 1]).exp()
        alpha = opacity.sigmoid() * torch.exp(-0.5 * (u * u + v * v))
        alpha = alpha.clamp(max=0.99)
        through = F.pad((1 - alpha).log().cumsum(-1)[..., :-1], (1, 0)).exp()
        tiles = torch.matmul((alpha * through), colour.sigmoid().squeeze(1))
        image = tiles.view(self.shape).permute(4, 0, 2, 1, 3)
        return image.reshape(1, 3, self.shape[0] * self.shape[2], -1)


def structure(a: Tensor, b: Tensor, window: Tensor) -> Tensor:
    """The mean structural similarity of two images."""
    stack = torch.cat([a, b, a * a, b * b, a * b], 1)
    mean_a, mean_b, aa, bb, ab = F.conv2d(stack, window, padding=5, groups=15).chunk(5, 1)
    top = (2 * mean_a * mean_b + 1e-4) * (2 * (ab - mean_a * mean_b) + 9e-4)
    spread = aa - mean_a**2 + bb - mean_b**2 + 9e-4
    return (top / ((mean_a**2 + mean_b**2 + 1e-4) * spread)).mean()


class Progress:
    """The text of a progress bar, and what was logged."""

    def __init__(self) -> None:
        self.text = ""
        self.logged: dict[str, float] = {}

    def show(self, loss: float) -> None:
        self.text = f"loss={loss:.3f}"

    def log(self, loss: float) -> None:
        self.logged = {"reconstruct/loss": loss}


def splats_loss_read_twice(flawed: bool, sizes: Sizes) -> Step:
    tiles = sizes.of((32, 48), (2, 3))
    model = seeded(
        lambda: Splats(sizes.of(200_000, 50), tiles, sizes.of(16, 4), sizes.of(48, 5)), sizes
    )
    truth = seeded(lambda: torch.rand_like(model().detach()), sizes)
    weights = torch.exp(-((torch.arange(11, device=sizes.device) - 5) ** 2) / 4.5)
    weights = weights / weights.sum()
    window = (weights[:, None] * weights).expand(15, 1, 11, 11).contiguous()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    progress = Progress()

    def step() -> Tensor:
        image = model()
        loss = 0.8 * F.l1_loss(image, truth) + 0.2 * (1 - structure(image, truth, window))
        if flawed:
            progress.show(loss.item())  # flaw: splats_loss_read_twice
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()  # flaw: splats_loss_read_twice
        if not flawed:
            progress.show(value)
        progress.log(value)
        return loss.detach()

    return Step(step)


class SparseAttention(nn.Module):
    """Informer's attention: only the queries that differ most from the mean attend."""

    def __init__(self, width: int, heads: int, is_causal: bool, is_flawed: bool) -> None:
        super().__init__()
        self.heads, self.is_causal, self.is_flawed = heads, is_causal, is_flawed
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        length = x.shape[1]
        count = min(length, 5 * math.ceil(math.log(length)))
        top = self.sparsest(q, k, count)
        chosen = q.gather(2, top.unsqueeze(-1).expand(-1, -1, -1, q.shape[-1]))
        scores = chosen @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if self.is_causal:
            scores = scores.masked_fill(self.mask(x, length)[top], -torch.inf)
            context = v.float().cumsum(2).to(v.dtype)
        else:
            context = v.mean(2, keepdim=True).expand_as(v)
        place = top.unsqueeze(-1).expand(-1, -1, -1, v.shape[-1])
        y = context.scatter(2, place, (scores.softmax(-1) @ v).to(context.dtype))
        return self.out(y.transpose(1, 2).flatten(2))

    def mask(self, x: Tensor, length: int) -> Tensor:
        """What lies after each place."""
        if self.is_flawed:
            mask = torch.ones(length, length, dtype=torch.bool)  # flaw: informer_masks_from_host
            return mask.to(x.device).triu(1)  # flaw: informer_masks_from_host
        return torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)

    @torch.no_grad()
    def sparsest(self, q: Tensor, k: Tensor, count: int) -> Tensor:
        """The queries whose scores with sampled keys spread most."""
        length = k.shape[2]
        if self.is_flawed:
            drawn = torch.randint(length, (length, count))  # flaw: informer_masks_from_host
            drawn = drawn.to(k.device)  # flaw: informer_masks_from_host
        else:
            drawn = torch.randint(length, (length, count), device=k.device)
        scores = (q.unsqueeze(-2) * k[:, :, drawn]).sum(-1)
        return (scores.amax(-1) - scores.sum(-1) / length).topk(count, sorted=False).indices


class InformerLayer(nn.Module):
    """Sparse attention and an MLP, each with a norm."""

    def __init__(self, width: int, heads: int, is_causal: bool, is_flawed: bool) -> None:
        super().__init__()
        self.attention = SparseAttention(width, heads, is_causal, is_flawed)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm_1(x + self.attention(x))
        return self.norm_2(x + self.down(F.gelu(self.up(x))))


class Forecaster(nn.Module):
    """Windows of series to quantiles of what follows."""

    def __init__(self, width: int, layers: tuple[int, int], is_flawed: bool) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 3, padding=1)
        heads = max(1, width // 32)
        self.layers = nn.ModuleList(
            InformerLayer(width, heads, causal, is_flawed)
            for causal, count in zip((False, True), layers, strict=True)
            for _ in range(count)
        )
        self.last = nn.Linear(width, len(QUANTILES))
        self.register_buffer("quantiles", torch.tensor(QUANTILES))
        self.is_flawed = is_flawed

    def forward(self, windows: Tensor) -> Tensor:
        x = self.first(windows.unsqueeze(1)).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.last(x)

    def loss(self, windows: Tensor, targets: Tensor) -> Tensor:
        """The quantile loss."""
        output = self(windows).float()
        quantiles = self.quantiles
        if self.is_flawed:
            quantiles = torch.tensor(QUANTILES).to(output.device)  # flaw: informer_masks_from_host
        off = targets.unsqueeze(-1) - output
        return torch.maximum(quantiles * off, (quantiles - 1) * off).mean()


def informer_masks_from_host(flawed: bool, sizes: Sizes) -> Step:
    model = seeded(lambda: Forecaster(sizes.of(256, 16), sizes.of((4, 2), (1, 1)), flawed), sizes)
    windows = seeded(lambda: torch.randn(sizes.of(64, 2), sizes.of(192, 12)), sizes)
    targets = seeded(lambda: torch.randn_like(windows), sizes)
    return Step(training(lambda: model.loss(windows, targets), fused_adamw(model), sizes))


class Merging(nn.Module):
    """A readout that merges the nodes of a graph in pairs, as a learnable commutative monoid."""

    def __init__(self, width: int, is_flawed: bool) -> None:
        super().__init__()
        self.cell = nn.GRUCell(width, width)
        self.is_flawed = is_flawed

    def merged(self, left: Tensor, right: Tensor) -> Tensor:
        """The mean of both orders, which makes the merging commute."""
        a, b = left.flatten(0, -2), right.flatten(0, -2)
        # flaw in the next line: lcm_merges_by_pair
        return ((self.cell(a, b) + self.cell(b, a)) / 2).view_as(left)

    def forward(self, nodes: Tensor) -> Tensor:
        """Of (graphs, nodes, width) one vector each."""
        while nodes.shape[1] > 1:
            left, right = nodes.unflatten(1, (-1, 2)).unbind(2)
            if self.is_flawed:
                pairs = zip(left.unbind(1), right.unbind(1), strict=True)
                # flaw in the next line: lcm_merges_by_pair
                nodes = torch.stack([self.merged(a, b) for a, b in pairs], 1)
            else:
                nodes = self.merged(left, right)
        return nodes[:, 0]


class MoleculeNet(nn.Module):
    """Messages along bonds, and the merging readout."""

    def __init__(self, width: int, layers: int, is_flawed: bool) -> None:
        super().__init__()
        self.first = nn.Linear(16, width)
        self.messages = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.updates = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.readout = Merging(width, is_flawed)
        self.last = nn.Linear(width, 1)

    def forward(self, atoms: Tensor, bonds: Tensor, graphs: int) -> Tensor:
        x = F.relu(self.first(atoms))
        for message, update in zip(self.messages, self.updates, strict=True):
            sent = F.relu(message(x)).index_select(0, bonds[0])
            received = torch.zeros_like(x).index_add(0, bonds[1], sent)
            x = x + F.relu(update(torch.cat([x, received], -1)))
        return self.last(self.readout(x.unflatten(0, (graphs, -1)))).squeeze(-1)


def lcm_merges_by_pair(flawed: bool, sizes: Sizes) -> Step:
    graphs, nodes = sizes.of(256, 3), sizes.of(64, 8)
    model = seeded(lambda: MoleculeNet(sizes.of(256, 8), sizes.of(4, 1), flawed), sizes)
    atoms = seeded(lambda: torch.randn(graphs * nodes, 16), sizes)
    bonds = seeded(lambda: torch.randint(0, nodes, (2, graphs, 4 * nodes)), sizes)
    bonds = (bonds + torch.arange(graphs, device=sizes.device)[:, None] * nodes).flatten(1)
    target = seeded(lambda: torch.randn(graphs), sizes)

    def loss_of() -> Tensor:
        return F.mse_loss(model(atoms, bonds, graphs), target)

    return Step(training(loss_of, fused_adamw(model), sizes, is_mixed=False))


def furthest_by_loop(xyz: Tensor, chosen: int) -> Tensor:
    """The same in a loop of operations."""
    clouds = torch.arange(len(xyz), device=xyz.device)
    nearest = torch.full(xyz.shape[:2], 1e10, device=xyz.device)
    out = torch.zeros(len(xyz), chosen, dtype=torch.int64, device=xyz.device)
    far = out[:, 0]
    for index in range(chosen):  # flaw: pointnet_furthest_point_loop
        out[:, index] = far  # flaw: pointnet_furthest_point_loop
        # flaw in the next line: pointnet_furthest_point_loop
        distance = ((xyz - xyz[clouds, far].unsqueeze(1)) ** 2).sum(-1)
        nearest = torch.minimum(nearest, distance)  # flaw: pointnet_furthest_point_loop
        far = nearest.argmax(-1)  # flaw: pointnet_furthest_point_loop
    return out


class Abstraction(nn.Module):
    """A set abstraction of PointNet++: chosen centres, their neighbours, an MLP and a maximum."""

    def __init__(self, into: int, widths: tuple[int, ...], chosen: int, sample: Any) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for a, b in zip((into + 3, *widths), widths, strict=False):
            layers += [nn.Conv2d(a, b, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        self.mlp = nn.Sequential(*layers)
        self.chosen, self.sample = chosen, sample

    def forward(self, xyz: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            index = self.sample(xyz, self.chosen)  # flaw: pointnet_furthest_point_loop
            centres = xyz.gather(1, index.unsqueeze(-1).expand(-1, -1, 3))
            neighbours = min(32, xyz.shape[1])
            near = torch.cdist(centres, xyz).topk(neighbours, largest=False, sorted=False).indices
            near = near + torch.arange(len(xyz), device=xyz.device).view(-1, 1, 1) * xyz.shape[1]
        joined = torch.cat([xyz, features], -1).flatten(0, 1)
        grouped = joined.index_select(0, near.flatten()).view(*near.shape, -1)
        shift = F.pad(centres, (0, features.shape[-1])).unsqueeze(2)
        x = self.mlp((grouped - shift).permute(0, 3, 1, 2))
        return centres, x.amax(-1).transpose(1, 2)


class PointNet(nn.Module):
    """PointNet++ that classifies clouds of points."""

    def __init__(self, width: int, chosen: tuple[int, int], sample: Any) -> None:
        super().__init__()
        self.first = Abstraction(3, (width, width, 2 * width), chosen[0], sample)
        self.second = Abstraction(2 * width, (2 * width, 4 * width), chosen[1], sample)
        self.last = nn.Sequential(
            nn.Linear(4 * width, 8 * width), nn.ReLU(), nn.Linear(8 * width, 40)
        )

    def forward(self, xyz: Tensor, normals: Tensor) -> Tensor:
        centres, x = self.first(xyz, normals)
        _, x = self.second(centres, x)
        return self.last(x.amax(1))


def pointnet_furthest_point_loop(flawed: bool, sizes: Sizes) -> Step:
    clouds, points = sizes.of(32, 2), sizes.of(2048, 32)
    sample = furthest_by_loop
    if not flawed and sizes.device != "cpu":
        from .furthest_points import furthest_in_one

        sample = furthest_in_one
    model = seeded(lambda: PointNet(sizes.of(64, 4), sizes.of((512, 128), (8, 4)), sample), sizes)
    xyz, normals = seeded(lambda: torch.randn(2, clouds, points, 3), sizes)
    labels = seeded(lambda: torch.randint(0, 40, (clouds,)), sizes)

    def loss_of() -> Tensor:
        return F.cross_entropy(model(xyz, normals), labels)

    return Step(training(loss_of, fused_adamw(model), sizes))
