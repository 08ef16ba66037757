"""Flaws of networks that make images: generators, their critics, and restoration."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "few_groups_norm",
    "modulated_by_groups",
    "penalty_each_step",
    "perceptual_with_gradients",
]


class ManualGroupNorm(nn.GroupNorm):
    """The same norm from a reduction that many blocks share, and one multiplication."""

    def forward(self, x: Tensor) -> Tensor:
        groups = x.unflatten(1, (self.num_groups, -1))
        var, mean = torch.var_mean(groups, (2, 3, 4), correction=0, keepdim=True)
        scale = (var.float() + self.eps).rsqrt().expand(-1, -1, groups.shape[2], 1, 1).flatten(1, 2)
        mean = mean.float().expand(-1, -1, groups.shape[2], 1, 1).flatten(1, 2)
        scale = scale * self.weight[:, None, None]
        shift = self.bias[:, None, None] - mean * scale
        return torch.addcmul(shift.to(x.dtype), x, scale.to(x.dtype))


class RestorationBlock(nn.Module):
    """Two convolutions and a norm of few groups, with a residual path."""

    def __init__(self, width: int, groups: int, norm: type[nn.GroupNorm]) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv_2 = nn.Conv2d(width, width, 3, padding=1)
        self.norm = norm(groups, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv_2(F.gelu(self.conv_1(x)))
        return x + self.norm(y)  # flaw: few_groups_norm


def few_groups_norm(flawed: bool, sizes: Sizes) -> Step:
    width, depth, groups, side = sizes.of((64, 12, 4, 720), (8, 2, 4, 12))
    norm = nn.GroupNorm if flawed else ManualGroupNorm
    model = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            *(RestorationBlock(width, groups, norm) for _ in range(depth)),
            nn.Conv2d(width, 12, 3, padding=1),
            nn.PixelShuffle(2),
        ),
        sizes,
    )
    model = model.eval().half().to(memory_format=torch.channels_last)
    image = seeded(lambda: torch.rand(1, 3, side, side), sizes).half()
    image = image.to(memory_format=torch.channels_last)

    @torch.inference_mode()
    def step() -> Tensor:
        return model(image).float().square().mean()

    return Step(step)


class ModulatedConv(nn.Module):
    """A convolution whose weights each image scales by a style of its own, as StyleGAN2 has it."""

    def __init__(self, style: int, inputs: int, outputs: int, by_groups: bool) -> None:
        super().__init__()
        self.by_groups = by_groups
        self.affine = nn.Linear(style, inputs)
        self.weight = nn.Parameter(torch.randn(outputs, inputs, 3, 3) * (9 * inputs) ** -0.5)

    def grouped(self, x: Tensor, style: Tensor) -> Tensor:
        """A group of a grouped convolution for each image."""
        weight = self.weight * style[:, None, :, None, None]
        norm = (weight.square().sum((2, 3, 4), keepdim=True) + 1e-8).rsqrt()
        weight = (weight * norm).flatten(0, 1)  # flaw: modulated_by_groups
        # flaw in the next line: modulated_by_groups
        y = F.conv2d(x.flatten(0, 1)[None], weight, padding=1, groups=len(x))
        return y.unflatten(1, (len(x), -1)).squeeze(0)

    def scaled(self, x: Tensor, style: Tensor) -> Tensor:
        """Scales of inputs and outputs around one convolution."""
        power = self.weight.square().sum((2, 3))
        norm = (style.square() @ power.T + 1e-8).rsqrt()
        y = F.conv2d(x * style[..., None, None].to(x.dtype), self.weight, padding=1)
        return y * norm[..., None, None].to(y.dtype)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        style = self.affine(style).float() + 1
        if self.by_groups:
            return self.grouped(x, style)  # flaw: modulated_by_groups
        return self.scaled(x, style)


class Synthesis(nn.Module):
    """Modulated convolutions from a constant to an image."""

    def __init__(self, style: int, width: int, depth: int, side: int, by_groups: bool) -> None:
        super().__init__()
        self.constant = nn.Parameter(torch.randn(1, width, side, side))
        self.convs = nn.ModuleList(
            ModulatedConv(style, width, width, by_groups) for _ in range(depth)
        )
        self.to_image = nn.Conv2d(width, 3, 1)

    def forward(self, style: Tensor) -> Tensor:
        x = self.constant.expand(len(style), -1, -1, -1)
        for conv in self.convs:
            x = F.leaky_relu(conv(x, style), 0.2) * 2**0.5
        return self.to_image(x)


def modulated_by_groups(flawed: bool, sizes: Sizes) -> Step:
    style, width, depth, side, batch = sizes.of((512, 256, 6, 64, 16), (8, 8, 2, 6, 2))
    model = seeded(lambda: Synthesis(style, width, depth, side, flawed), sizes)
    styles = seeded(lambda: torch.randn(batch, style), sizes)

    def loss() -> Tensor:
        return F.softplus(-model(styles).float()).mean()

    return Step(training(loss, fused_adamw(model), sizes))


class ImageCritic(nn.Module):
    """Strided convolutions, and a score of an image."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(3, width, 3, padding=1)])
        for level in range(levels):
            self.convs.append(nn.Conv2d(width << level, width << level + 1, 4, 2, 1))
        self.out = nn.Linear(width << levels, 1)

    def forward(self, images: Tensor) -> Tensor:
        x = images
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.2)  # flaw: penalty_each_step
        return self.out(x.mean((2, 3))).squeeze(1)


def penalty_each_step(flawed: bool, sizes: Sizes) -> Step:
    width, levels, batch, side = sizes.of((64, 3, 32, 64), (4, 2, 2, 16))
    critic = seeded(lambda: ImageCritic(width, levels), sizes)
    real, made = seeded(
        lambda: (torch.randn(batch, 3, side, side), torch.randn(batch, 3, side, side)), sizes
    )
    optimizer, interval, turn = fused_adamw(critic), 1 if flawed else 8, -1

    def penalty() -> Tensor:
        images = real.detach().requires_grad_()
        scores = critic(images)  # flaw: penalty_each_step
        # flaw in the next line: penalty_each_step
        (slopes,) = torch.autograd.grad(scores.sum(), images, create_graph=True)
        return slopes.square().sum((1, 2, 3)).mean()

    def step() -> Tensor:
        nonlocal turn
        turn += 1
        optimizer.zero_grad()
        loss = F.softplus(critic(made)).mean() + F.softplus(-critic(real)).mean()
        if turn % interval == 0:
            loss = loss + 5.0 * interval * penalty()
        loss.backward()  # flaw: penalty_each_step
        optimizer.step()
        return loss.detach()

    return Step(step, warm_up=8, cycle=8)


class Features(nn.Sequential):
    """The layers of VGG up to its third level."""

    def __init__(self, width: int) -> None:
        layers: list[nn.Module] = []
        inputs = 3
        for level, count in enumerate((2, 2, 3)):
            if level:
                layers.append(nn.MaxPool2d(2))
            for _ in range(count):
                layers += [nn.Conv2d(inputs, width << level, 3, padding=1), nn.ReLU()]
                inputs = width << level
        super().__init__(*layers)


class Deblurring(nn.Module):
    """A small residual network from image to image."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.into = nn.Conv2d(3, width, 5, 2, 2)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.out = nn.Conv2d(width, 12, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        x = self.into(images)
        for conv in self.convs:
            x = x + F.silu(conv(x))
        return images + F.pixel_shuffle(self.out(x), 2)


def perceptual_with_gradients(flawed: bool, sizes: Sizes) -> Step:
    width, depth, seen, batch, side = sizes.of((64, 8, 64, 16, 256), (4, 2, 4, 2, 16))
    model = seeded(lambda: Deblurring(width, depth), sizes).to(memory_format=torch.channels_last)
    features = seeded(lambda: Features(seen), sizes).to(memory_format=torch.channels_last).eval()
    blurred, sharp = (
        each.to(memory_format=torch.channels_last)
        for each in seeded(
            lambda: (torch.rand(batch, 3, side, side), torch.rand(batch, 3, side, side)), sizes
        )
    )
    features.requires_grad_(flawed)

    def loss() -> Tensor:
        made = model(blurred)
        seen_in_made = features(made)  # flaw: perceptual_with_gradients
        seen_in_sharp = features(sharp)  # flaw: perceptual_with_gradients
        return F.l1_loss(made, sharp) + F.mse_loss(seen_in_made, seen_in_sharp)

    optimizer = fused_adamw(model)
    run = training(loss, optimizer, sizes)

    def step() -> Tensor:
        features.zero_grad()
        return run()

    return Step(step)
