"""Networks of dense layers that guides to speed take as their examples."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, compiled, fused_adamw, seeded, training

__all__ = [
    "contrast_queue_on_cpu",
    "radiance_field_without_tf32",
    "recipe_mlp_in_default_precision",
    "small_policy_limited_by_launches",
    "spectrum_mask_of_1025_bins",
]


class RadianceField(nn.Module):
    """Colour and density of points along rays, by a network of eight layers of one width."""

    bands: Tensor

    def __init__(self, width: int, frequencies: int) -> None:
        super().__init__()
        self.register_buffer("bands", 2.0 ** torch.arange(frequencies))
        encoded = 3 + 6 * frequencies
        self.before = nn.ModuleList(
            nn.Linear(encoded if layer == 0 else width, width) for layer in range(5)
        )
        self.after = nn.ModuleList(
            nn.Linear(width + encoded if layer == 0 else width, width) for layer in range(3)
        )
        self.out = nn.Linear(width, 4)

    def forward(self, points: Tensor) -> Tensor:
        angles = (points[..., None] * self.bands).flatten(-2)
        encoded = torch.cat([points, angles.sin(), angles.cos()], -1)
        x = encoded
        for layer in self.before:
            x = F.relu(layer(x))
        x = torch.cat([x, encoded], -1)
        for layer in self.after:
            x = F.relu(layer(x))
        return self.out(x)


def rendered(field: nn.Module, points: Tensor, spacing: float) -> Tensor:
    """Colours of rays: what their points emit, weighted by what reaches the eye."""
    values = field(points)
    density = F.softplus(values[..., 3])
    opacity = 1 - torch.exp(-density * spacing)
    passed = torch.cumprod(1 - opacity + 1e-6, -1)
    reaching = torch.cat([torch.ones_like(passed[..., :1]), passed[..., :-1]], -1)
    return ((opacity * reaching)[..., None] * values[..., :3].sigmoid()).sum(-2)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Products of float32 matrices are that precise."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def radiance_field_without_tf32(flawed: bool, sizes: Sizes) -> Step:
    """A radiance field that trains in float32 on rays through a scene."""
    rays, samples = sizes.of((4096, 64), (8, 4))
    field = seeded(lambda: RadianceField(sizes.of(256, 32), sizes.of(10, 3)), sizes)
    origins, directions, colours = seeded(
        lambda: (torch.rand(rays, 3), torch.randn(rays, 3), torch.rand(rays, 3)), sizes
    )
    depths = torch.linspace(0, 1, samples, device=sizes.device)[:, None]
    points = origins[:, None] + F.normalize(directions, dim=-1)[:, None] * depths
    step = training(
        lambda: F.mse_loss(rendered(field, points, 1 / samples), colours),
        fused_adamw(field),
        sizes,
        is_mixed=False,
    )
    return Step(step, within=lambda: matmul_precision("highest" if flawed else "high"))


def recipe_mlp_in_default_precision(flawed: bool, sizes: Sizes) -> Step:
    """Linear layers with ReLUs between that regress random vectors, as in the recipe."""
    width, batch, layers = sizes.of((4096, 4096, 4), (32, 8, 2))

    def made() -> tuple[nn.Module, list[Tensor], list[Tensor]]:
        hidden = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
        model = nn.Sequential(*hidden, nn.Linear(width, width))
        inputs = [torch.randn(batch, width) for _ in range(4)]
        return model, inputs, [torch.randn(batch, width) for _ in range(4)]

    model, inputs, targets = seeded(made, sizes)
    batches = itertools.cycle(zip(inputs, targets, strict=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, fused=True)

    def loss_of() -> Tensor:
        values, wanted = next(batches)
        return F.mse_loss(model(values), wanted)

    return Step(training(loss_of, optimizer, sizes, is_mixed=not flawed))


class MaskEstimator(nn.Module):
    """How much of each frequency of a noisy spectrum is speech, frame by frame."""

    def __init__(self, bins: int, width: int, layers: int) -> None:
        super().__init__()
        self.bins = bins
        self.enter = nn.Linear(bins, width)  # flaw: spectrum_mask_of_1025_bins
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.leave = nn.Linear(width, bins)  # flaw: spectrum_mask_of_1025_bins

    def forward(self, spectrum: Tensor) -> Tensor:
        x = self.enter(spectrum)  # flaw: spectrum_mask_of_1025_bins
        for layer, norm in zip(self.hidden, self.norms, strict=True):
            x = x + F.relu(layer(norm(x)))
        return self.leave(x)[..., : self.bins].sigmoid()  # flaw: spectrum_mask_of_1025_bins


def pad_bins(model: MaskEstimator, multiple: int) -> int:
    """Fill the layers that meet the spectrum with zeros up to a multiple; return by how many."""
    missing = -model.bins % multiple
    with torch.no_grad():
        model.enter.weight = nn.Parameter(F.pad(model.enter.weight, (0, missing)))
        model.leave.weight = nn.Parameter(F.pad(model.leave.weight, (0, 0, 0, missing)))
        model.leave.bias = nn.Parameter(F.pad(model.leave.bias, (0, missing)))
    return missing


def spectrum_mask_of_1025_bins(flawed: bool, sizes: Sizes) -> Step:
    """Speech enhancement on spectra of a window of 2048 samples."""
    bins = sizes.of(1025, 17)  # flaw: spectrum_mask_of_1025_bins
    batch, frames = sizes.of((64, 512), (2, 8))
    model = seeded(
        lambda: MaskEstimator(bins, sizes.of(2048, 32), 4),  # flaw: spectrum_mask_of_1025_bins
        sizes,
    )
    clean, noise = seeded(
        lambda: (torch.randn(batch, frames, bins).abs(), torch.randn(batch, frames, bins).abs()),
        sizes,
    )
    noisy = clean + noise
    padding = 0 if flawed else pad_bins(model, 8)
    inputs = F.pad(noisy.log1p(), (0, padding)).bfloat16()
    step = training(lambda: F.l1_loss(model(inputs) * noisy, clean), fused_adamw(model), sizes)
    return Step(step)


class PolicyBlock(nn.Module):
    """Causal attention and MLP over a short history."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        # flaw in the next line: small_policy_limited_by_launches
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        y = F.scaled_dot_product_attention(  # flaw: small_policy_limited_by_launches
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        # flaw in the next line: small_policy_limited_by_launches
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))  # flaw: small_policy_limited_by_launches


class HistoryPolicy(nn.Module):
    """Actions from returns, states and past actions, one token each."""

    def __init__(self, width: int, layers: int, history: int) -> None:
        super().__init__()
        self.of_return = nn.Linear(1, width)
        self.of_state = nn.Linear(17, width)
        self.of_action = nn.Linear(6, width)
        self.positions = nn.Parameter(0.02 * torch.randn(history, 1, width))
        self.blocks = nn.ModuleList(PolicyBlock(width, 4) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 6)

    def forward(self, returns: Tensor, states: Tensor, actions: Tensor) -> Tensor:
        # flaw in the next line: small_policy_limited_by_launches
        tokens = [self.of_return(returns), self.of_state(states), self.of_action(actions)]
        # flaw in the next line: small_policy_limited_by_launches
        x = (torch.stack(tokens, 2) + self.positions).flatten(1, 2)
        for block in self.blocks:
            x = block(x)  # flaw: small_policy_limited_by_launches
        # flaw in the next line: small_policy_limited_by_launches
        return self.head(self.norm(x[:, 1::3])).tanh()


def small_policy_limited_by_launches(flawed: bool, sizes: Sizes) -> Step:
    """A decision transformer that learns from recorded trajectories, a small batch a step."""
    width, layers, batch, history = sizes.of((128, 4, 64, 20), (16, 2, 2, 4))
    model = seeded(lambda: HistoryPolicy(width, layers, history), sizes)
    inputs = seeded(
        lambda: [torch.randn(batch, history, features) for features in (1, 17, 6)], sizes
    )
    optimizer = fused_adamw(model)
    policy: Callable[..., Tensor] = model  # flaw: small_policy_limited_by_launches
    if not flawed:
        policy = compiled(model, sizes, mode="reduce-overhead")
    # flaw in the next line: small_policy_limited_by_launches
    return Step(training(lambda: F.mse_loss(policy(*inputs), inputs[2]), optimizer, sizes))


class PatchEncoder(nn.Module):
    """A small vision transformer that maps an image to a direction."""

    def __init__(self, width: int, layers: int, patch: int, tokens: int, out: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.positions = nn.Parameter(0.02 * torch.randn(tokens, width))
        layer = nn.TransformerEncoderLayer(
            width, width // 64 or 1, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True
        )
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(layers))
        self.head = nn.Linear(width, out)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        for layer in self.layers:
            x = layer(x)
        return F.normalize(self.head(x.mean(1)).float(), dim=-1)


class MomentumContrast(nn.Module):
    """Two encoders, of which one follows the other, and a queue of its latest keys."""

    def __init__(self, encoder: nn.Module, queue: Tensor) -> None:
        super().__init__()
        self.query_encoder = encoder
        self.key_encoder = copy.deepcopy(encoder).requires_grad_(False)
        self.queue = queue
        self.place = 0

    @torch.no_grad()
    def keys(self, images: Tensor) -> Tensor:
        follower: list[Tensor] = list(self.key_encoder.parameters())
        leader: list[Tensor] = list(self.query_encoder.parameters())
        torch._foreach_lerp_(follower, leader, 0.001)
        return self.key_encoder(images)

    @torch.no_grad()
    def enqueue(self, keys: Tensor) -> None:
        # flaw in the next line: contrast_queue_on_cpu
        self.queue[self.place : self.place + len(keys)] = keys.to(self.queue.device)
        self.place = (self.place + len(keys)) % len(self.queue)

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        queries, keys = self.query_encoder(first), self.keys(second)
        negatives = self.queue.to(queries.device)  # flaw: contrast_queue_on_cpu
        own = (queries * keys).sum(-1, keepdim=True)
        logits = torch.cat([own, queries @ negatives.T], -1) / 0.2
        self.enqueue(keys)  # flaw: contrast_queue_on_cpu
        return F.cross_entropy(logits, torch.zeros_like(logits[:, 0], dtype=torch.long))


def contrast_queue_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    """Contrastive learning of images against a queue of 65536 keys."""
    width, layers, batch, side, patch = sizes.of((384, 8, 128, 224, 16), (32, 1, 4, 16, 8))
    keys, features = sizes.of((65536, 128), (32, 8))
    encoder, queue, first, second = seeded(
        lambda: (
            PatchEncoder(width, layers, patch, (side // patch) ** 2, features),
            F.normalize(torch.randn(keys, features), dim=-1),
            torch.randn(batch, 3, side, side),
            torch.randn(batch, 3, side, side),
        ),
        sizes,
    )
    if flawed:
        queue = queue.cpu()  # flaw: contrast_queue_on_cpu
    model = MomentumContrast(encoder, queue)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-4, fused=True)
    return Step(training(lambda: model.loss(first, second), optimizer, sizes))
