"""Flaws of what a training loop keeps: averages, moments, measures, sums over labels."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "adan_per_parameter",
    "auroc_by_sorting",
    "average_on_cpu",
    "concepts_in_loop",
    "groups_in_loop",
]


class Denoiser(nn.Module):
    """Residual convolutions with a norm and a level of noise."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.into, self.out = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.levels = nn.ModuleList(nn.Linear(1, width) for _ in range(depth))

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        x = self.into(x)
        for conv, add in zip(self.convs, self.levels, strict=True):
            x = x + conv(F.silu(x + add(level)[:, :, None, None]))
        return self.out(F.silu(x))


class CpuAverage:
    """The moving average of the weights, which lies where its model was made."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).cpu().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for mean, now in zip(self.model.parameters(), model.parameters(), strict=True):
            mean.lerp_(now.to(mean.device), 1 - self.decay)  # flaw: average_on_cpu


class Average:
    """The moving average of the weights, beside them."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.means = [each.detach().clone() for each in model.parameters()]

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        torch._foreach_lerp_(self.means, list(model.parameters()), 1 - self.decay)


def average_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, side = sizes.of((320, 16, 32, 32), (4, 1, 2, 8))
    model = seeded(lambda: Denoiser(width, depth), sizes).to(memory_format=torch.channels_last)
    latents, noise, levels = seeded(
        lambda: (*torch.randn(2, batch, 4, side, side), torch.rand(batch, 1)), sizes
    )
    average = (CpuAverage if flawed else Average)(model, 0.999)

    def loss() -> Tensor:
        share = levels[:, :, None, None]
        mixed = (latents + share * (noise - latents)).contiguous(memory_format=torch.channels_last)
        return F.mse_loss(model(mixed, levels).float(), noise - latents)

    def averaged() -> None:
        average.update(model)  # flaw: average_on_cpu

    return Step(training(loss, fused_adamw(model), sizes, after_step=[averaged]))


class Adan(torch.optim.Optimizer):
    """Adaptive Nesterov momentum, one parameter after the other."""

    betas = (0.02, 0.08, 0.01)

    def __init__(self, params: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    def prepared(self, weight: Tensor) -> dict[str, Tensor]:
        """The moments of a weight, and its gradient of the step before."""
        state: dict[str, Tensor] = self.state[weight]
        if not state:
            state.update((name, torch.zeros_like(weight)) for name in ("mean", "trend", "square"))
            state["before"] = weight.grad.clone()
        return state

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        first, second, third = self.betas
        for group in self.param_groups:
            for weight in group["params"]:
                state, grad = self.prepared(weight), weight.grad
                change = grad - state["before"]  # flaw: adan_per_parameter
                ahead = grad + (1 - second) * change  # flaw: adan_per_parameter
                state["mean"].lerp_(grad, first)  # flaw: adan_per_parameter
                state["trend"].lerp_(change, second)  # flaw: adan_per_parameter
                state["square"].lerp_(ahead * ahead, third)  # flaw: adan_per_parameter
                scale = state["square"].sqrt().add_(1e-8)  # flaw: adan_per_parameter
                # flaw in the next line: adan_per_parameter
                move = (state["mean"] + (1 - second) * state["trend"]) / scale
                weight.sub_(group["lr"] * move)  # flaw: adan_per_parameter
                state["before"].copy_(grad)  # flaw: adan_per_parameter


class ListAdan(Adan):
    """The same for all parameters at once."""

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        first, second, third = self.betas
        for group in self.param_groups:
            weights = group["params"]
            states = [self.prepared(each) for each in weights]
            means, trends, squares, before = (
                [state[name] for state in states] for name in ("mean", "trend", "square", "before")
            )
            grads = [each.grad for each in weights]
            change = torch._foreach_sub(grads, before)
            ahead = torch._foreach_add(grads, change, alpha=1 - second)
            torch._foreach_lerp_(means, grads, first)
            torch._foreach_lerp_(trends, change, second)
            torch._foreach_lerp_(squares, torch._foreach_mul(ahead, ahead), third)
            scales = torch._foreach_sqrt(squares)
            torch._foreach_add_(scales, 1e-8)
            moves = torch._foreach_add(means, trends, alpha=1 - second)
            torch._foreach_addcdiv_(weights, moves, scales, -group["lr"])
            torch._foreach_copy_(before, grads)


def adan_per_parameter(flawed: bool, sizes: Sizes) -> Step:
    width, heads, depth, batch, patches = sizes.of((384, 6, 12, 64, 196), (8, 2, 1, 2, 4))

    def make() -> nn.Sequential:
        kinds = {"batch_first": True, "norm_first": True, "activation": "gelu"}
        blocks = (
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, **kinds) for _ in range(depth)
        )
        return nn.Sequential(nn.Linear(768, width), *blocks, nn.Linear(width, 100))

    model = seeded(make, sizes)
    images = seeded(lambda: torch.randn(batch, patches, 768), sizes)
    labels = torch.arange(batch, device=sizes.device) % 100
    optimizer = (Adan if flawed else ListAdan)(model.parameters(), lr=1e-5)

    def loss() -> Tensor:
        return F.cross_entropy(model(images).mean(1).float(), labels)

    return Step(training(loss, optimizer, sizes))


class SortedArea:
    """The area under the ROC curve of the predictions of the last batches."""

    def __init__(self, scores: Tensor, labels: Tensor, batches: int) -> None:
        self.scores, self.labels = scores.repeat(batches), labels.repeat(batches)
        self.at = 0

    def update(self, scores: Tensor, labels: Tensor) -> Tensor:
        self.scores[self.at : self.at + len(scores)] = scores
        self.labels[self.at : self.at + len(labels)] = labels
        self.at = (self.at + len(scores)) % len(self.scores)
        order = self.scores.argsort(descending=True)  # flaw: auroc_by_sorting
        right = self.labels[order].double().cumsum(0)  # flaw: auroc_by_sorting
        wrong = (1 - self.labels[order]).double().cumsum(0)  # flaw: auroc_by_sorting
        return torch.trapezoid(right / right[-1], wrong / wrong[-1])  # flaw: auroc_by_sorting


class BinnedArea:
    """The same from counts of predictions between 200 thresholds, over all batches."""

    def __init__(self, scores: Tensor, labels: Tensor, batches: int) -> None:
        self.counts = torch.zeros(2, 200, device=scores.device)

    def update(self, scores: Tensor, labels: Tensor) -> Tensor:
        bins = (199 * (1 - scores)).long().clamp(0, 199)
        chosen = bins[None] == torch.arange(200, device=bins.device)[:, None]
        sides = torch.stack((labels, 1 - labels)).to(torch.bfloat16)
        self.counts += (sides @ chosen.T.to(torch.bfloat16)).float()
        right, wrong = self.counts.cumsum(1)
        return torch.trapezoid(right / right[-1], wrong / wrong[-1])


class ClickModel(nn.Module):
    """Embeddings of features, and an MLP over them."""

    def __init__(self, rows: int, features: int, width: int, hidden: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(rows, width)
        self.body = nn.Sequential(
            nn.Linear(features * width, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, features: Tensor) -> Tensor:
        return self.body(self.rows(features).flatten(1)).squeeze(1).float()


def auroc_by_sorting(flawed: bool, sizes: Sizes) -> Step:
    rows, features, width, hidden = sizes.of((200_000, 24, 32, 1024), (12, 3, 4, 8))
    batch, batches = sizes.of((32768, 256), (16, 4))
    model = seeded(lambda: ClickModel(rows, features, width, hidden), sizes)
    clicks = seeded(lambda: torch.randint(0, rows, (batch, features)), sizes)
    labels = seeded(lambda: (torch.rand(batch) < 0.3).float(), sizes)
    start = seeded(lambda: torch.rand(batch), sizes)
    area = (SortedArea if flawed else BinnedArea)(start, labels, batches)
    shown = torch.zeros((), device=sizes.device)

    def loss() -> Tensor:
        scores = model(clicks)
        found = area.update(scores.detach().sigmoid(), labels)  # flaw: auroc_by_sorting
        shown.copy_(found)
        return F.binary_cross_entropy_with_logits(scores, labels)

    return Step(training(loss, fused_adamw(model), sizes))


class ConceptNet(nn.Module):
    """Images to concepts, and concepts to classes."""

    def __init__(self, width: int, depth: int, concepts: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.concepts, self.head = nn.Linear(width, concepts), nn.Linear(concepts, classes)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(images)
        for conv in self.convs:
            x = x + F.relu(conv(x))
        concepts = self.concepts(x.mean((2, 3)))
        return concepts.float(), self.head(concepts.sigmoid()).float()


def concept_loss_in_loop(concepts: Tensor, truth: Tensor) -> Tensor:
    """The mean of the losses of all concepts, concept by concept."""
    total = concepts.new_zeros(())
    for at in range(concepts.shape[1]):
        # flaw in the next line: concepts_in_loop
        one = F.binary_cross_entropy_with_logits(concepts[:, at], truth[:, at])
        total = total + one  # flaw: concepts_in_loop
    return total / concepts.shape[1]


def concepts_in_loop(flawed: bool, sizes: Sizes) -> Step:
    width, depth, concepts, classes = sizes.of((128, 8, 112, 200), (4, 1, 5, 3))
    batch, side = sizes.of((64, 224), (2, 16))
    model = seeded(lambda: ConceptNet(width, depth, concepts, classes), sizes)
    model = model.to(memory_format=torch.channels_last)
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)
    images = images.to(memory_format=torch.channels_last)
    truth = seeded(lambda: (torch.rand(batch, concepts) < 0.2).float(), sizes)
    labels = seeded(lambda: torch.randint(0, classes, (batch,)), sizes)
    of_concepts = concept_loss_in_loop if flawed else F.binary_cross_entropy_with_logits

    def loss() -> Tensor:
        found, scores = model(images)
        # flaw in the next line: concepts_in_loop
        return F.cross_entropy(scores, labels) + of_concepts(found, truth)

    return Step(training(loss, fused_adamw(model), sizes))


def evidence_in_loop(
    means: Tensor, spreads: Tensor, labels: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """The product of the normal distributions of all samples of a label, sample by sample."""
    weights: dict[int, Tensor] = {}
    sums: dict[int, Tensor] = {}
    for at in range(len(means)):
        label = int(labels[at].item())  # flaw: groups_in_loop
        weight = 1 / spreads[at]  # flaw: groups_in_loop
        weights[label] = weights.get(label, 0) + weight  # flaw: groups_in_loop
        sums[label] = sums.get(label, 0) + means[at] * weight  # flaw: groups_in_loop
    own = [int(label) for label in labels]  # flaw: groups_in_loop
    total = torch.stack([weights[label] for label in own])  # flaw: groups_in_loop
    return torch.stack([sums[label] for label in own]) / total, 1 / total


def evidence(means: Tensor, spreads: Tensor, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The same at once."""
    empty = means.new_zeros(count, means.shape[1])
    total = empty.index_add(0, labels, 1 / spreads)[labels]
    return empty.index_add(0, labels, means / spreads)[labels] / total, 1 / total


class GroupedCoder(nn.Module):
    """A VAE with one code for the style of an image, and one for what its label has in common."""

    def __init__(self, pixels: int, width: int, codes: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(pixels, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        self.style, self.group = nn.Linear(width, 2 * codes), nn.Linear(width, 2 * codes)
        self.decoder = nn.Sequential(
            nn.Linear(2 * codes, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        self.out = nn.Linear(width, pixels)


def groups_in_loop(flawed: bool, sizes: Sizes) -> Step:
    pixels, width, codes, batch, count = sizes.of((12288, 4096, 64, 192, 24), (6, 8, 3, 6, 2))
    model = seeded(lambda: GroupedCoder(pixels, width, codes), sizes)
    images, noise = seeded(lambda: (torch.rand(batch, pixels), torch.randn(2, batch, codes)), sizes)
    labels = torch.arange(batch, device=sizes.device) % count
    gather = evidence_in_loop if flawed else evidence

    def loss() -> Tensor:
        x = model.encoder(images)
        style, style_log = model.style(x).float().chunk(2, 1)
        group, group_log = model.group(x).float().chunk(2, 1)
        group, spread = gather(group, group_log.exp(), labels, count)  # flaw: groups_in_loop
        drawn = (style + (style_log / 2).exp() * noise[0], group + spread.sqrt() * noise[1])
        made = model.out(model.decoder(torch.cat(drawn, 1))).float()
        divergence = (style.square() + style_log.exp() - style_log - 1).mean()
        divergence = divergence + (group.square() + spread - spread.log() - 1).mean()
        return F.mse_loss(made, images) + 0.01 * divergence

    return Step(training(loss, fused_adamw(model), sizes))
