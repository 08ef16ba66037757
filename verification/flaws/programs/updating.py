"""Flaws of optimizers that users write, of meters, and of quantization."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.ao.quantization import (
    FakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
)

from . import gpt
from .gpt import Config
from .language import EncoderBlock
from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "channels_dequantized_in_loop",
    "meters_check_nan",
    "observers_apart",
    "orthogonal_by_alpha",
    "shampoo_roots_each_step",
]


class OrthoGrad:
    """Removes from each gradient its part along the weights, and keeps its length."""

    def __init__(self, parameters: Iterable[nn.Parameter], by_alpha: bool) -> None:
        self.parameters, self.by_alpha = list(parameters), by_alpha

    @torch.no_grad()
    def __call__(self) -> None:
        for p in self.parameters:
            w, g = p.view(-1), p.grad.view(-1)
            share = torch.dot(w, g) / torch.dot(w, w).add(1e-30)
            # flaw in the next line: orthogonal_by_alpha
            left = g.sub(w, alpha=share) if self.by_alpha else g.sub(w * share)
            left.mul_(g.norm() / left.norm().add(1e-30))
            p.grad.copy_(left.view_as(p))


def orthogonal_by_alpha(flawed: bool, sizes: Sizes) -> Step:
    config = sizes.of(Config(batch=4), gpt.TINY)
    model = seeded(lambda: gpt.GPT(config), sizes)
    tokens, targets = gpt.batch_of(config, sizes)
    project = OrthoGrad(model.parameters(), flawed)
    run = training(
        lambda: gpt.loss_of(model, tokens, targets),
        fused_adamw(model),
        sizes,
        after_backward=[project],
    )
    return Step(run)


def roots_of_eigenvalues(matrix: Tensor) -> Tensor:
    """The inverse fourth root of a symmetric matrix."""
    values, vectors = torch.linalg.eigh(matrix)  # flaw: shampoo_roots_each_step
    return (vectors * values.clamp(min=1e-12).pow(-0.25)) @ vectors.T


def roots_by_newton(matrices: Tensor, rounds: int = 24) -> Tensor:
    """The same of many matrices, by products alone (Newton's coupled iteration)."""
    eye = torch.eye(matrices.shape[-1], device=matrices.device)
    z = 2.5 / matrices.norm(dim=(-2, -1), keepdim=True)
    roots, left = eye * z**0.25, matrices * z
    for _ in range(rounds):
        mix = 1.25 * eye - 0.25 * left
        roots = roots @ mix
        squared = mix @ mix
        left = squared @ squared @ left
    return roots


class Shampoo(torch.optim.Optimizer):
    """Shampoo of matrices of the same size, as long as the gradient, and SGD for the rest."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, by_eigenvalues: bool) -> None:
        super().__init__(parameters, {"lr": lr})
        self.by_eigenvalues = by_eigenvalues

    def roots(self, sums: list[Tensor]) -> list[Tensor]:
        eye = torch.eye(len(sums[0]), device=sums[0].device)
        damped = [each + eye * (1e-2 * each.diagonal().mean() + 1e-12) for each in sums]
        if self.by_eigenvalues:
            return [roots_of_eigenvalues(each) for each in damped]  # flaw: shampoo_roots_each_step
        return list(roots_by_newton(torch.stack(damped)))

    @torch.no_grad()
    def step(self) -> None:
        (group,) = self.param_groups
        matrices = [p for p in group["params"] if p.ndim == 2 and p.shape[0] == p.shape[1]]
        sums = []
        for p in matrices:
            state = self.state[p]
            if not state:
                state["left"], state["right"] = torch.zeros_like(p), torch.zeros_like(p)
            state["left"].addmm_(p.grad, p.grad.T, beta=0.95)
            state["right"].addmm_(p.grad.T, p.grad, beta=0.95)
            sums += [state["left"], state["right"]]
        roots = self.roots(sums)  # flaw: shampoo_roots_each_step
        for p, left, right in zip(matrices, roots[::2], roots[1::2], strict=True):
            update = left @ p.grad @ right
            update.mul_(p.grad.norm() / (update.norm() + 1e-12))
            p.grad.copy_(update)
        torch._foreach_add_(group["params"], [p.grad for p in group["params"]], alpha=-group["lr"])


class Mixer(nn.Module):
    """Residual layers of one width, between an embedding and a head."""

    def __init__(self, features: int, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.into = nn.Linear(features, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + F.gelu(layer(norm(x)))
        return self.head(x)


def shampoo_roots_each_step(flawed: bool, sizes: Sizes) -> Step:
    features, width, depth, classes, batch = sizes.of((784, 256, 6, 100, 65536), (6, 8, 2, 3, 5))
    model = seeded(lambda: Mixer(features, width, depth, classes), sizes)
    data = seeded(lambda: torch.randn(batch, features), sizes)
    labels = torch.arange(batch, device=sizes.device) % classes
    optimizer = Shampoo(model.parameters(), 1e-2, flawed)
    run = training(lambda: F.cross_entropy(model(data).float(), labels), optimizer, sizes)
    return Step(run)


class MeanMeter(nn.Module):
    """A running mean, as torchmetrics has it."""

    def __init__(self, checks: bool) -> None:
        super().__init__()
        self.checks = checks
        self.register_buffer("total", torch.zeros(()))
        self.register_buffer("weight", torch.zeros(()))

    @torch.no_grad()
    def update(self, value: Tensor) -> None:
        value = value.float()
        if self.checks:
            nans = torch.isnan(value)  # flaw: meters_check_nan
            if nans.any():  # flaw: meters_check_nan
                raise RuntimeError("Encountered `nan` values in tensor")
        self.total += value.sum()
        self.weight += value.numel()


class Attributes(nn.Module):
    """A convolutional network with a head for each attribute of a face."""

    def __init__(self, width: int, depth: int, attributes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 8, 8)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(depth))
        self.heads = nn.ModuleList(nn.Linear(width, 2) for _ in range(attributes))

    def forward(self, images: Tensor) -> list[Tensor]:
        x = self.stem(images)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.relu(norm(conv(x)))
        x = x.mean((2, 3))
        return [head(x) for head in self.heads]


def meters_check_nan(flawed: bool, sizes: Sizes) -> Step:
    width, depth, attributes, batch, side = sizes.of((128, 12, 20, 48, 224), (4, 1, 3, 2, 16))
    model = seeded(lambda: Attributes(width, depth, attributes), sizes)
    model = model.to(memory_format=torch.channels_last)
    images, labels = seeded(
        lambda: (torch.randn(batch, 3, side, side), torch.randint(0, 2, (attributes, batch))), sizes
    )
    images = images.contiguous(memory_format=torch.channels_last)
    losses, accuracies = (
        seeded(lambda: nn.ModuleList(MeanMeter(flawed) for _ in range(attributes)), sizes)
        for _ in range(2)
    )

    def loss() -> Tensor:
        each = []
        for at, (logits, truth) in enumerate(zip(model(images), labels, strict=True)):
            each.append(F.cross_entropy(logits, truth))
            losses[at].update(each[-1])  # flaw: meters_check_nan
            accuracies[at].update(logits.argmax(1) == truth)  # flaw: meters_check_nan
        return torch.stack(each).mean()

    return Step(training(loss, fused_adamw(model), sizes))


def quantizers(is_apart: bool) -> tuple[nn.Module, nn.Module]:
    """What rounds activations, and what rounds each row of a weight, to 8 bits in training."""
    kind = FakeQuantize if is_apart else FusedMovingAvgObsFakeQuantize
    activations = kind(observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255)
    weights = kind(
        observer=MovingAveragePerChannelMinMaxObserver,
        quant_min=-128,
        quant_max=127,
        dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric,
        ch_axis=0,
    )
    return activations, weights


class QuantLinear(nn.Linear):
    """A layer whose input and weights are rounded as they will be in inference."""

    def __init__(self, wide: int, out: int, is_apart: bool) -> None:
        super().__init__(wide, out)
        self.activations, self.weights = quantizers(is_apart)

    def forward(self, x: Tensor) -> Tensor:
        x = self.activations(x)  # flaw: observers_apart
        weight = self.weights(self.weight)  # flaw: observers_apart
        return F.linear(x, weight, self.bias)


class QuantBlock(EncoderBlock):
    """A block of such layers."""

    def __init__(self, config: Config, is_apart: bool) -> None:
        super().__init__(config)
        width, inner = config.width, config.mlp_width
        self.qkv = QuantLinear(width, 3 * width, is_apart)
        self.out = QuantLinear(width, width, is_apart)
        self.up = QuantLinear(width, inner, is_apart)
        self.down = QuantLinear(inner, width, is_apart)


def observers_apart(flawed: bool, sizes: Sizes) -> Step:
    large = Config(layers=6, width=512, heads=8, mlp_width=2048, batch=16, context=128)
    config = sizes.of(large, gpt.TINY)
    model = seeded(
        lambda: nn.Sequential(*(QuantBlock(config, flawed) for _ in range(config.layers))), sizes
    )
    head = seeded(lambda: nn.Linear(config.width, 50), sizes)
    x, labels = seeded(
        lambda: (
            torch.randn(config.batch, config.context, config.width),
            torch.randint(0, 50, (config.batch,)),
        ),
        sizes,
    )

    def loss() -> Tensor:
        return F.cross_entropy(head(model(x).mean(1)), labels)

    optimizer = fused_adamw(nn.ModuleList((model, head)))
    return Step(training(loss, optimizer, sizes, is_mixed=False))


def restored_in_loop(weight: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    """Weights of 8 bits as numbers, channel by channel."""
    out = torch.empty(weight.shape, dtype=scales.dtype, device=weight.device)
    for at in range(len(weight)):
        # flaw in the next line: channels_dequantized_in_loop
        out[at] = (weight[at].float() - zeros[at]) * scales[at]
    return out


def restored(weight: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    """The same of all channels at once."""
    return (weight.float() - zeros[:, None]) * scales[:, None]


class Int8Linear(nn.Module):
    """A layer with weights of 8 bits, a scale and a zero for each channel."""

    def __init__(self, wide: int, out: int, in_loop: bool) -> None:
        super().__init__()
        self.restored = restored_in_loop if in_loop else restored
        self.register_buffer("weight", torch.randint(-128, 128, (out, wide), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(out) / (64 * wide**0.5))
        self.register_buffer("zeros", torch.randint(-8, 8, (out,)))

    def forward(self, x: Tensor) -> Tensor:
        # flaw in the next line: channels_dequantized_in_loop
        weight = self.restored(self.weight, self.scales, self.zeros)
        return F.linear(x, weight.to(x.dtype))


class Int8Encoder(nn.Module):
    """Residual layers of attention, and an MLP with weights of 8 bits behind each."""

    def __init__(self, config: Config, in_loop: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.layers))
        layer = partial(Int8Linear, config.width, config.width, in_loop)
        self.layers = nn.ModuleList(layer() for _ in range(config.layers))

    def forward(self, x: Tensor) -> Tensor:
        for block, layer in zip(self.blocks, self.layers, strict=True):
            x = block(x)
            x = x + F.gelu(layer(x))  # flaw: channels_dequantized_in_loop
        return x


def channels_dequantized_in_loop(flawed: bool, sizes: Sizes) -> Step:
    large = Config(layers=2, width=512, heads=8, mlp_width=2048, batch=64, context=512)
    config = sizes.of(large, gpt.TINY)
    model = seeded(lambda: Int8Encoder(config, flawed), sizes).eval()
    x = seeded(lambda: torch.randn(config.batch, config.context, config.width), sizes).bfloat16()
    for block in model.blocks:
        block.bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        return model(x).float().square().mean()

    return Step(step)
