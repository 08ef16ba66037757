"""Flaws of point clouds, projections, holograms and deformed bodies."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "norms_as_diagonals",
    "projections_by_angle",
    "spectra_shifted",
    "stretches_by_eigvalsh",
    "views_blurred_whole",
    "windows_padded_per_block",
]


def stretches_by_closed_form(strain: Tensor) -> Tensor:
    """The eigenvalues of symmetric 3 x 3 matrices, by the angles of a cubic equation."""
    middle = strain.diagonal(dim1=1, dim2=2).mean(1)
    one = torch.eye(3, device=strain.device)
    rest = strain - middle[:, None, None] * one
    size = (rest.square().sum((1, 2)) / 6).sqrt()
    a, b, c = rest.unbind(1)
    volume = (a * torch.linalg.cross(b, c)).sum(1)
    angle = torch.acos((volume / (2 * size**3)).clamp(-0.999999, 0.999999)) / 3
    turns = torch.arange(3, device=strain.device) * (2 * math.pi / 3)
    values = middle[:, None] + 2 * size[:, None] * torch.cos(angle[:, None] + turns)
    return values.roll(-1, 1)


def stretches_by_eigvalsh(flawed: bool, sizes: Sizes) -> Step:
    bodies, width, modes = sizes.of((112, 512, 24), (4, 8, 3))
    model = seeded(
        lambda: nn.Sequential(
            nn.Linear(modes, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
            nn.Linear(width, 9),
        ),
        sizes,
    )  # fmt: skip
    loads, wanted = seeded(
        lambda: (torch.randn(bodies, modes), 1 + 0.2 * torch.rand(bodies, 3)), sizes
    )
    stretched = torch.diag(torch.tensor([0.8, 1.0, 1.3], device=sizes.device))
    values_of = torch.linalg.eigvalsh if flawed else stretches_by_closed_form

    def loss() -> Tensor:
        gradient = stretched + 0.1 * model(loads).view(-1, 3, 3)
        strain = gradient.mT @ gradient
        values = values_of(strain)  # flaw: stretches_by_eigvalsh
        return F.mse_loss(values.sqrt(), wanted)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


def spectra_shifted(flawed: bool, sizes: Sizes) -> Step:
    planes, colours, side = sizes.of((4, 3, 1024), (2, 1, 8))
    places = torch.fft.fftfreq(2 * side, device=sizes.device)
    squares = places[:, None].square() + places.square()
    depths = torch.linspace(50, 90, planes, device=sizes.device)[:, None, None, None]
    waves = torch.linspace(0.9, 1.1, colours, device=sizes.device)[:, None, None]
    transfer = torch.exp(-1j * math.pi * depths * waves * squares)
    centred = torch.fft.fftshift(transfer, (-2, -1))
    phases = nn.Parameter(seeded(lambda: torch.rand(colours, side, side), sizes))
    wanted = seeded(lambda: torch.rand(planes, colours, side, side), sizes)
    optimizer = torch.optim.Adam([phases], lr=1e-3, fused=True)
    half, dims = side // 2, (-2, -1)

    def propagated(field: Tensor) -> Tensor:
        """What the field is some way behind, for each plane."""
        if not flawed:
            return torch.fft.ifft2(transfer * torch.fft.fft2(field))
        field = torch.fft.fftshift(field, dims)  # flaw: spectra_shifted
        spectrum = torch.fft.fftshift(torch.fft.fft2(field), dims)  # flaw: spectra_shifted
        spectrum = torch.fft.ifftshift(centred * spectrum, dims)  # flaw: spectra_shifted
        return torch.fft.ifftshift(torch.fft.ifft2(spectrum), dims)  # flaw: spectra_shifted

    def step() -> Tensor:
        optimizer.zero_grad()
        field = F.pad(torch.polar(torch.ones_like(phases), 6.28 * phases), (half,) * 4)
        seen = propagated(field)[..., half:-half, half:-half]  # flaw: spectra_shifted
        loss = F.mse_loss(seen.abs().square(), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Step(step)


class Restored(nn.Module):
    """A few convolutions that restore an image."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.into = nn.Conv2d(1, width, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.into(x)
        for conv in self.convs:
            y = y + F.silu(conv(y))
        return x + self.out(y)


def turned_grids(angles: Tensor, side: int) -> Tensor:
    """The places at which a turned image is read, for each angle."""
    cosines, sines = angles.cos(), angles.sin()
    zeros = torch.zeros_like(angles)
    turns = torch.stack((cosines, sines, zeros, -sines, cosines, zeros), 1).view(-1, 2, 3)
    return F.affine_grid(turns, [len(angles), 1, side, side], align_corners=False)


def sinogram_by_angle(images: Tensor, grids: Tensor) -> Tensor:
    """The sums along lines of images (batch, 1, side, side), angle by angle."""
    lines = []
    for grid in grids:
        every = grid.expand(len(images), -1, -1, -1)  # flaw: projections_by_angle
        # flaw in the next line: projections_by_angle
        turned = F.grid_sample(images, every, align_corners=False)
        lines.append(turned.sum(2))  # flaw: projections_by_angle
    return torch.stack(lines, 2)  # flaw: projections_by_angle


def sinogram_at_once(images: Tensor, grids: Tensor) -> Tensor:
    """The same for all angles, with images as channels."""
    angles, side = grids.shape[:2]
    tall = grids.reshape(1, angles * side, side, 2)
    turned = F.grid_sample(images.transpose(0, 1), tall, align_corners=False)
    return turned.unflatten(2, (angles, side)).sum(3).transpose(0, 1)


def projections_by_angle(flawed: bool, sizes: Sizes) -> Step:
    batch, side, angles, width, depth = sizes.of((4, 256, 180, 32, 4), (2, 8, 5, 4, 1))
    model = seeded(lambda: Restored(width, depth), sizes)
    images = seeded(lambda: torch.rand(batch, 1, side, side), sizes)
    turns = torch.arange(angles, device=sizes.device) * (math.pi / angles)
    grids = turned_grids(turns, side)
    measured = sinogram_at_once(images.roll(3, 3), grids)
    sinogram_of = sinogram_by_angle if flawed else sinogram_at_once

    def loss() -> Tensor:
        found = model(images).float()
        lines = sinogram_of(found, grids)  # flaw: projections_by_angle
        return F.mse_loss(lines / side, measured / side)

    return Step(training(loss, fused_adamw(model), sizes))


def blurred(volume: Tensor, kernels: Tensor, margin: int) -> Tensor:
    """Slices of each depth are blurred by a kernel of their own, along rows and columns."""
    depth = len(kernels)
    # flaw in the next line: views_blurred_whole
    rows = F.conv2d(volume, kernels[:, None, :, None], padding=(margin, 0), groups=depth)
    # flaw in the next line: views_blurred_whole
    return F.conv2d(rows, kernels[:, None, None], groups=depth)


def views_blurred_whole(flawed: bool, sizes: Sizes) -> Step:
    batch, depth, rows, columns, views = sizes.of((2, 128, 112, 192, 24), (2, 4, 5, 16, 3))
    margin, shown = sizes.of((8, 16), (1, 4))
    taps = torch.arange(-margin, margin + 1, device=sizes.device)
    widths = torch.linspace(1, margin / 2 + 1, depth, device=sizes.device)[:, None]
    kernels = F.normalize(torch.exp(-(taps**2) / (2 * widths**2)), p=1, dim=1)
    body = seeded(lambda: torch.rand(batch, depth, rows, columns), sizes)
    wanted = seeded(lambda: torch.rand(views, batch, rows, shown), sizes)
    body = nn.Parameter(body)
    optimizer = torch.optim.SGD([body], lr=1e-2, fused=True)
    firsts = [view * (columns - shown) // (views - 1) for view in range(views)]

    def view_of(padded: Tensor, first: int) -> Tensor:
        """What a detector sees that is as wide as some columns."""
        if flawed:
            whole = blurred(padded, kernels, margin)  # flaw: views_blurred_whole
            return whole[..., first : first + shown].sum(1)  # flaw: views_blurred_whole
        slab = padded[..., first : first + shown + 2 * margin]
        return blurred(slab, kernels, margin).sum(1)

    def step() -> Tensor:
        optimizer.zero_grad()
        padded = F.pad(body, (margin, margin))
        seen = [view_of(padded, first) for first in firsts]  # flaw: views_blurred_whole
        loss = F.mse_loss(torch.stack(seen) / depth, wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Step(step)


class CloudCoder(nn.Module):
    """A cloud of points as one vector, and a cloud that is made of it."""

    def __init__(self, width: int, points: int) -> None:
        super().__init__()
        self.points = points
        self.into = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width))
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3 * points))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.into(x).amax(1)).unflatten(1, (self.points, 3))


def squared_lengths(x: Tensor, by_product: bool) -> Tensor:
    """The squared lengths of points."""
    if not by_product:
        return x.square().sum(2)
    at = torch.arange(x.shape[1], device=x.device)
    every = torch.bmm(x, x.mT)  # flaw: norms_as_diagonals
    return every[:, at, at]  # flaw: norms_as_diagonals


def norms_as_diagonals(flawed: bool, sizes: Sizes) -> Step:
    batch, points, width = sizes.of((24, 3072, 512), (2, 7, 8))
    model = seeded(lambda: CloudCoder(width, points), sizes)
    cloud = seeded(lambda: torch.randn(batch, points, 3), sizes)

    def loss() -> Tensor:
        found = model(cloud)
        own = squared_lengths(found, flawed)[:, :, None]  # flaw: norms_as_diagonals
        others = squared_lengths(cloud, flawed)[:, None]  # flaw: norms_as_diagonals
        distances = own + others - 2 * torch.bmm(found, cloud.mT)
        return distances.amin(1).mean() + distances.amin(2).mean()

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


def padding_in_loop(offsets: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Places of points in whole windows and back, scan by scan; offsets are on the device."""
    counts = offsets.diff()
    filled = (counts + window - 1) // window * window
    padded = F.pad(filled.cumsum(0), (1, 0))
    # flaw in the next line: windows_padded_per_block
    pad = torch.arange(padded[-1], device=offsets.device)
    # flaw in the next line: windows_padded_per_block
    back = torch.arange(offsets[-1], device=offsets.device)
    for scan in range(len(counts)):
        first, last = padded[scan], padded[scan + 1]
        # flaw in the next line: windows_padded_per_block
        back[offsets[scan] : offsets[scan + 1]] += first - offsets[scan]
        rest = counts[scan] % window
        if counts[scan] != filled[scan]:  # flaw: windows_padded_per_block
            # flaw in the next line: windows_padded_per_block
            borrowed = pad[last - 2 * window + rest : last - window].clone()
            pad[last - window + rest : last] = borrowed  # flaw: windows_padded_per_block
        pad[first:last] -= first - offsets[scan]  # flaw: windows_padded_per_block
    return pad, back


def padding_at_once(
    offsets: Tensor, window: int, points: int, places: int
) -> tuple[Tensor, Tensor]:
    """The same for all scans, of which it is known how many points and places they have."""
    counts = offsets.diff()
    ends = ((counts + window - 1) // window * window).cumsum(0)
    starts = F.pad(ends[:-1], (1, 0))
    place, point = (torch.arange(each, device=offsets.device) for each in (places, points))
    scan = torch.searchsorted(ends, place, right=True)
    within = place - starts.index_select(0, scan)
    within = torch.where(within < counts.index_select(0, scan), within, within - window)
    own = torch.searchsorted(offsets[1:], point, right=True)
    back = point + (starts - offsets[:-1]).index_select(0, own)
    return offsets.index_select(0, scan) + within, back


class WindowBlock(nn.Module):
    """Attention of points within windows of their order along a curve."""

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, pad: Tensor, back: Tensor) -> Tensor:
        y = self.qkv(self.norm_1(x)).index_select(0, pad)
        q, k, v = y.view(-1, self.window, 3, self.heads, x.shape[1] // self.heads).unbind(2)
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(0, 1).flatten(1)
        x = x + self.out(y.index_select(0, back))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def windows_padded_per_block(flawed: bool, sizes: Sizes) -> Step:
    scans, window, width, heads, depth = sizes.of((12, 128, 256, 8, 8), (3, 4, 8, 2, 2))
    chance = torch.Generator().manual_seed(13)
    low, high = sizes.of((1500, 3000), (9, 15))
    counts = torch.randint(low, high, (scans,), generator=chance)
    points = int(counts.sum())
    places = int(((counts + window - 1) // window * window).sum())
    offsets = F.pad(counts.cumsum(0), (1, 0)).to(sizes.device)
    into = seeded(lambda: nn.Linear(6, width), sizes)
    blocks = seeded(
        lambda: nn.ModuleList(WindowBlock(width, heads, window) for _ in range(depth)), sizes
    )
    head = seeded(lambda: nn.Linear(width, 20), sizes)
    features = seeded(lambda: torch.randn(points, 6), sizes)
    labels = torch.arange(points, device=sizes.device) % 20

    def loss() -> Tensor:
        x = into(features)
        once = None if flawed else padding_at_once(offsets, window, points, places)
        for block in blocks:
            # flaw in the next line: windows_padded_per_block
            pad, back = padding_in_loop(offsets, window) if once is None else once
            x = block(x, pad, back)
        return F.cross_entropy(head(x), labels)

    return Step(training(loss, fused_adamw(nn.ModuleList((into, blocks, head))), sizes))
