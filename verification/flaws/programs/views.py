"""Flaws of models of rays, splats and points, of a tracker, and of a decoder of videos."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "camera_positions_indexed",
    "normals_by_svd",
    "padding_loses_layout",
    "pdf_intervals_compared",
    "tracks_one_by_one",
]


class Field(nn.Module):
    """Density and colour at points of rays, by an MLP of frequencies."""

    def __init__(self, width: int, depth: int, octaves: int) -> None:
        super().__init__()
        self.octaves = octaves
        widths = [6 * octaves, *([width] * depth)]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.out = nn.Linear(width, 4)

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        scales = 2.0 ** torch.arange(self.octaves, device=points.device)
        x = (points[..., None] * scales).flatten(-2)
        x = torch.cat((x.sin(), x.cos()), -1)
        for layer in self.layers:
            x = F.relu(layer(x))
        y = self.out(x).float()
        return F.softplus(y[..., 0]), y[..., 1:].sigmoid()


def weights_of(densities: Tensor, ends: Tensor) -> Tensor:
    """What each interval of a ray adds to its pixel."""
    optical = densities * (ends[:, 1:] - ends[:, :-1])
    passed = torch.cat((torch.zeros_like(optical[:, :1]), optical[:, :-1].cumsum(1)), 1)
    return (-passed).exp() * (1 - (-optical).exp())


def between(mask: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The value before and after each place, of values (rays, n) and a mask (rays, n, places)."""
    each = values[..., None]
    low = torch.where(mask, each, each[:, :1]).amax(1)  # flaw: pdf_intervals_compared
    high = torch.where(~mask, each, each[:, -1:]).amin(1)  # flaw: pdf_intervals_compared
    return low, high


def resampled_by_comparing(ends: Tensor, weights: Tensor, places: Tensor) -> Tensor:
    """The ends of new intervals where a ray has much weight, as mip-NeRF finds them."""
    cdf = cumulated(weights)
    u = places.expand(len(cdf), -1)
    mask = u[:, None, :] >= cdf[..., None]  # flaw: pdf_intervals_compared
    low, high = between(mask, ends)  # flaw: pdf_intervals_compared
    cdf_low, cdf_high = between(mask, cdf)  # flaw: pdf_intervals_compared
    return low + ((u - cdf_low) / (cdf_high - cdf_low)).nan_to_num().clamp(0, 1) * (high - low)


def resampled_by_searching(ends: Tensor, weights: Tensor, places: Tensor) -> Tensor:
    """The same by a search in the sorted values."""
    cdf = cumulated(weights)
    u = places.expand(len(cdf), -1).contiguous()
    above = torch.searchsorted(cdf, u, right=True)
    below, above = (above - 1).clamp(min=0), above.clamp(max=cdf.shape[1] - 1)
    low, high = ends.gather(1, below), ends.gather(1, above)
    cdf_low, cdf_high = cdf.gather(1, below), cdf.gather(1, above)
    return low + ((u - cdf_low) / (cdf_high - cdf_low)).nan_to_num().clamp(0, 1) * (high - low)


def cumulated(weights: Tensor) -> Tensor:
    """The share of the weight of a ray before each end."""
    weights = weights + 0.01 / weights.shape[1]
    cdf = (weights / weights.sum(1, keepdim=True)).cumsum(1).clamp(max=1)
    return torch.cat((torch.zeros_like(cdf[:, :1]), cdf), 1)


def pdf_intervals_compared(flawed: bool, sizes: Sizes) -> Step:
    rays, coarse, fine, width, depth = sizes.of((8192, 192, 64, 128, 4), (5, 6, 4, 8, 2))
    proposal = seeded(lambda: Field(width // 4, 2, 6), sizes)
    field = seeded(lambda: Field(width, depth, 10), sizes)
    starts, ways, colours = seeded(
        lambda: (
            torch.rand(rays, 1, 3),
            F.normalize(torch.randn(rays, 1, 3), dim=2),
            torch.rand(rays, 3),
        ),
        sizes,
    )
    ends = torch.linspace(0.1, 4, coarse + 1, device=sizes.device).expand(rays, -1)
    places = torch.linspace(0.001, 0.999, fine + 1, device=sizes.device)
    resampled = resampled_by_comparing if flawed else resampled_by_searching

    def rendered(model: Field, at: Tensor) -> tuple[Tensor, Tensor]:
        middles = (at[:, 1:] + at[:, :-1]) / 2
        densities, seen = model(starts + ways * middles[..., None])
        weights = weights_of(densities, at)
        return weights, (weights[..., None] * seen).sum(1)

    def loss() -> Tensor:
        weights, rough = rendered(proposal, ends)
        with torch.no_grad():
            found = resampled(ends, weights, places)  # flaw: pdf_intervals_compared
        _, sharp = rendered(field, found)
        return F.mse_loss(sharp, colours) + 0.1 * F.mse_loss(rough, colours)

    return Step(training(loss, fused_adamw(nn.ModuleList((proposal, field))), sizes))


class Splats(nn.Module):
    """Gaussians with colours that depend on the direction, and the poses of the cameras."""

    def __init__(self, count: int, cameras: int, pixels: int, by_index: bool) -> None:
        super().__init__()
        self.by_index, self.pixels = by_index, pixels
        self.means = nn.Parameter(torch.randn(count, 3))
        self.harmonics = nn.Parameter(torch.randn(count, 9, 3) * 0.1)
        self.opacities = nn.Parameter(torch.randn(count))
        self.positions = nn.Parameter(torch.randn(cameras, 3) * 4)

    def directions(self, splats: Tensor, cameras: Tensor, counts: list[int]) -> Tensor:
        means = self.means.index_select(0, splats)
        if self.by_index:
            return means - self.positions[cameras]  # flaw: camera_positions_indexed
        parts = zip(means.split(counts), self.positions, strict=True)
        return torch.cat([part - position for part, position in parts])

    def forward(self, splats: Tensor, cameras: Tensor, counts: list[int], pixels: Tensor) -> Tensor:
        """The pixels of all cameras, of pairs of a splat and a camera that sees it."""
        # flaw in the next line: camera_positions_indexed
        ways = F.normalize(self.directions(splats, cameras, counts), dim=1)
        x, y, z = ways.unbind(1)
        ones = torch.full_like(x, 0.5)
        basis = (ones, x, y, z, x * y, y * z, z * z - 0.3, x * z, x * x - y * y)
        basis = torch.stack(basis, 1)[..., None]
        colours = (self.harmonics.index_select(0, splats) * basis).sum(1) + 0.5
        lit = colours.clamp(min=0) * self.opacities.sigmoid().index_select(0, splats)[:, None]
        image = lit.new_zeros(self.pixels, 3)
        return image.index_add(0, pixels, lit)


def camera_positions_indexed(flawed: bool, sizes: Sizes) -> Step:
    count, cameras, side = sizes.of((80_000, 4, 400), (30, 2, 4))
    pixels = cameras * side * side
    model = seeded(lambda: Splats(count, cameras, pixels, flawed), sizes)
    counts = [count - at * count // 10 for at in range(cameras)]
    splats = torch.cat([torch.arange(each, device=sizes.device) for each in counts])
    which = torch.arange(cameras, device=sizes.device)
    repeats = torch.tensor(counts, device=sizes.device)
    which = which.repeat_interleave(repeats, output_size=sum(counts))
    places, truth = seeded(
        lambda: (torch.randint(0, side * side, (len(splats),)), torch.rand(pixels, 3)), sizes
    )
    places = places + which * side * side

    def loss() -> Tensor:
        return F.l1_loss(model(splats, which, counts, places), truth)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


def normals_of_svd(around: Tensor) -> Tensor:
    """The normal of the plane through each cloud of neighbours (clouds, points, 3)."""
    # flaw in the next line: normals_by_svd
    _, _, axes = torch.linalg.svd(around, full_matrices=False)
    return axes[:, -1]


def normals_of_products(around: Tensor) -> Tensor:
    """The same from the eigenvectors of 3 x 3 matrices."""
    with torch.autocast(around.device.type, enabled=False):
        _, axes = torch.linalg.eigh(around.mT @ around)
    return axes[:, :, 0]


class PatchNet(nn.Module):
    """A descriptor of each patch of a cloud, from its points and their heights over its plane."""

    def __init__(self, width: int, out: int, by_svd: bool) -> None:
        super().__init__()
        self.normals = normals_of_svd if by_svd else normals_of_products
        widths = [4, width, 2 * width, 4 * width, 16 * width]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.head = nn.Sequential(
            nn.Linear(16 * width, 4 * width), nn.ReLU(), nn.Linear(4 * width, out)
        )

    def forward(self, patches: Tensor) -> Tensor:
        around = patches - patches.mean(1, keepdim=True)
        with torch.no_grad():
            normals = self.normals(around)  # flaw: normals_by_svd
        heights = (around * normals[:, None]).sum(2, keepdim=True).abs()
        x = torch.cat((around, heights), 2)
        for layer in self.layers:
            x = F.relu(layer(x))
        return F.normalize(self.head(x.amax(1)).float(), dim=1)


def normals_by_svd(flawed: bool, sizes: Sizes) -> Step:
    patches, points, width, out = sizes.of((128, 128, 64, 32), (4, 40, 4, 3))
    model = seeded(lambda: PatchNet(width, out, flawed), sizes)
    first, second = seeded(lambda: torch.randn(2, patches, points, 3), sizes)
    flat = torch.tensor([1.0, 0.6, 0.1], device=sizes.device)
    first, second = first * flat, first * flat + 0.02 * second
    wanted = torch.arange(patches, device=sizes.device)

    def loss() -> Tensor:
        found = model(torch.cat((first, second)))  # flaw: normals_by_svd
        one, other = found.chunk(2)
        return F.cross_entropy(one @ other.T / 0.1, wanted)

    return Step(training(loss, fused_adamw(model), sizes))


class FrameDetector(nn.Module):
    """Boxes (x, y, aspect, height) in a frame, the same number in each."""

    def __init__(self, width: int, depth: int, tracks: int) -> None:
        super().__init__()
        self.tracks = tracks
        self.stem = nn.Conv2d(3, width, 8, 8)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.head = nn.Conv2d(width, 4, 1)

    def forward(self, frame: Tensor) -> Tensor:
        x = self.stem(frame)
        for conv in self.convs:
            x = x + F.silu(conv(x))
        return self.head(x).flatten(2)[0, :, : self.tracks].T.float().sigmoid()


class KalmanFilter:
    """Boxes with their velocities; means (..., 8) and covariances (..., 8, 8)."""

    def __init__(self, device: str) -> None:
        eye = torch.eye(8, device=device)
        self.motion = eye + eye.roll(4, 1) * (torch.arange(8, device=device)[:, None] < 4)
        self.seen = eye[:4]
        self.motion_noise, self.noise = eye * 1e-2, eye[:4, :4] * 1e-1

    def predict(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
        mean = (self.motion @ mean[..., None])[..., 0]  # flaw: tracks_one_by_one
        moved = self.motion @ covariance @ self.motion.T  # flaw: tracks_one_by_one
        return mean, moved + self.motion_noise  # flaw: tracks_one_by_one

    def update(self, mean: Tensor, covariance: Tensor, box: Tensor) -> tuple[Tensor, Tensor]:
        cross = covariance @ self.seen.T  # flaw: tracks_one_by_one
        spread = self.seen @ cross + self.noise  # flaw: tracks_one_by_one
        found = torch.linalg.solve_ex(spread, cross.mT)  # flaw: tracks_one_by_one
        gain = found.result.mT  # flaw: tracks_one_by_one
        missed = box - (self.seen @ mean[..., None])[..., 0]  # flaw: tracks_one_by_one
        mean = mean + (gain @ missed[..., None])[..., 0]  # flaw: tracks_one_by_one
        return mean, covariance - gain @ cross.mT  # flaw: tracks_one_by_one


def tracks_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    width, depth, tracks, side = sizes.of((128, 24, 100, 640), (8, 1, 5, 32))
    model = seeded(lambda: FrameDetector(width, depth, tracks), sizes).eval().bfloat16()
    model = model.to(memory_format=torch.channels_last)
    frame = seeded(lambda: torch.randn(1, 3, side, side), sizes).bfloat16()
    kalman = KalmanFilter(sizes.device)
    means = torch.zeros(tracks, 8, device=sizes.device)
    covariances = torch.eye(8, device=sizes.device).repeat(tracks, 1, 1)

    @torch.inference_mode()
    def step() -> Tensor:
        boxes = model(frame)
        if flawed:
            for at, box in enumerate(boxes):
                # flaw in the next line: tracks_one_by_one
                mean, covariance = kalman.predict(means[at], covariances[at])
                # flaw in the next line: tracks_one_by_one
                means[at], covariances[at] = kalman.update(mean, covariance, box)
        else:
            mean, covariance = kalman.predict(means, covariances)
            mean, covariance = kalman.update(mean, covariance, boxes)
            means.copy_(mean)
            covariances.copy_(covariance)
        return means.square().mean()

    return Step(step)


class CausalConv3d(nn.Module):
    """A convolution that sees the past, before which stand copies of the first frame."""

    def __init__(self, width: int, is_repeated: bool) -> None:
        super().__init__()
        self.is_repeated = is_repeated
        self.conv = nn.Conv3d(width, width, 3, padding=(0, 1, 1))

    def padded(self, x: Tensor) -> Tensor:
        if self.is_repeated:
            first = x[:, :, :1].repeat(1, 1, 2, 1, 1)  # flaw: padding_loses_layout
            return torch.cat((first, x), 2)  # flaw: padding_loses_layout
        batch, channels, frames, *sides = x.shape
        out = torch.empty(
            (batch, channels, frames + 2, *sides),
            dtype=x.dtype,
            device=x.device,
            memory_format=torch.channels_last_3d,
        )
        out[:, :, 2:] = x
        out[:, :, :2] = x[:, :, :1]
        return out

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.padded(x))  # flaw: padding_loses_layout


class VideoBlock(nn.Module):
    """Two causal convolutions, and a norm over channels before each."""

    def __init__(self, width: int, is_repeated: bool) -> None:
        super().__init__()
        self.conv_1 = CausalConv3d(width, is_repeated)
        self.conv_2 = CausalConv3d(width, is_repeated)

    @staticmethod
    def normed(x: Tensor) -> Tensor:
        return F.silu(x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv_1(self.normed(x))  # flaw: padding_loses_layout
        return x + self.conv_2(self.normed(y))  # flaw: padding_loses_layout


class VideoDecoder(nn.Module):
    """Blocks between two convolutions that see no other frame."""

    def __init__(self, width: int, depth: int, is_repeated: bool) -> None:
        super().__init__()
        self.into = nn.Conv3d(16, width, 1)
        self.blocks = nn.Sequential(*(VideoBlock(width, is_repeated) for _ in range(depth)))
        self.out = nn.Conv3d(width, 3, 1)

    def forward(self, latents: Tensor) -> Tensor:
        return self.out(self.blocks(self.into(latents)))


def padding_loses_layout(flawed: bool, sizes: Sizes) -> Step:
    width, depth, frames, side = sizes.of((128, 6, 17, 112), (4, 1, 3, 6))
    model = seeded(lambda: VideoDecoder(width, depth, flawed), sizes).eval().bfloat16()
    model = model.to(memory_format=torch.channels_last_3d)
    latents = seeded(lambda: torch.randn(1, 16, frames, side, side), sizes).bfloat16()
    latents = latents.contiguous(memory_format=torch.channels_last_3d)

    @torch.inference_mode()
    def step() -> Tensor:
        return model(latents).float().square().mean()

    return Step(step)
