"""Flaws of what runs after the backward: the optimizer, clipping, averages of weights, logging."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .convolutions import resnet
from .program import Sizes, Step, autocast, fused_adamw, training
from .vision import images_of, labels_of

__all__ = [
    "clipping_loop",
    "ema_loop",
    "ema_of_copies",
    "grad_norms_logged",
    "optimizer_per_parameter",
    "zeroed_gradients",
]

SMALL = {"batch": 4, "context": 512}


def _gpt(sizes: Sizes) -> tuple[gpt.GPT, Tensor, Tensor]:
    return gpt.made(sizes, **sizes.of(SMALL, {}))


def optimizer_per_parameter(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, targets = _gpt(sizes)
    options = {"foreach": False} if flawed else {"fused": True}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **options)

    def step() -> Tensor:
        optimizer.zero_grad()
        with autocast(sizes):
            loss = gpt.loss_of(model, tokens, targets)
        loss.backward()
        optimizer.step()  # flaw: optimizer_per_parameter
        return loss.detach()

    return Step(step)


def clip(model: nn.Module, most: float) -> None:
    """Clip gradients one by one."""
    total = 0
    for parameter in model.parameters():
        total = total + parameter.grad.norm(2) ** 2  # flaw: clipping_loop
    scale = (most / (total**0.5 + 1e-6)).clamp(max=1)
    for parameter in model.parameters():
        parameter.grad.mul_(scale)  # flaw: clipping_loop


def clipping_loop(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, targets = _gpt(sizes)

    def clip_gradients() -> None:
        if flawed:
            clip(model, 1.0)
        else:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)

    return Step(
        training(
            lambda: gpt.loss_of(model, tokens, targets),
            fused_adamw(model),
            sizes,
            after_backward=[clip_gradients],
        )
    )


def update_one_by_one(averages: list[Tensor], model: nn.Module) -> None:
    """Move each average towards its weight."""
    for average, weight in zip(averages, model.parameters(), strict=True):
        average.mul_(0.999).add_(weight.detach(), alpha=0.001)  # flaw: ema_loop


def update_together(averages: list[Tensor], model: nn.Module) -> None:
    """Move all averages towards the weights."""
    with torch.no_grad():
        torch._foreach_lerp_(averages, list(model.parameters()), 0.001)


def mix_copies(averages: dict[str, Tensor], model: nn.Module) -> None:
    """Mix a copy of the state into the averages."""
    state = copy.deepcopy(model.state_dict())  # flaw: ema_of_copies
    for name, value in state.items():
        if value.is_floating_point():
            averages[name] = averages[name] * 0.999 + value * 0.001  # flaw: ema_of_copies


def ema_loop(flawed: bool, sizes: Sizes) -> Step:
    model = resnet(sizes)
    averages = [parameter.detach().clone() for parameter in model.parameters()]
    update = update_one_by_one if flawed else update_together
    return _averaged(model, lambda: update(averages, model), sizes)


def ema_of_copies(flawed: bool, sizes: Sizes) -> Step:
    model = resnet(sizes)
    averages = [parameter.detach().clone() for parameter in model.parameters()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    if flawed:
        return _averaged(model, lambda: mix_copies(state, model), sizes)
    return _averaged(model, lambda: update_together(averages, model), sizes)


def _averaged(model: nn.Module, update: object, sizes: Sizes) -> Step:
    images = images_of(sizes, 32).to(memory_format=torch.channels_last)
    labels, optimizer = labels_of(images), fused_adamw(model)
    return Step(
        training(
            lambda: F.cross_entropy(model(images), labels), optimizer, sizes, after_step=[update]
        )
    )


def grad_norms_logged(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, targets = _gpt(sizes)
    log: dict[str, object] = {}

    def log_norms() -> None:
        if flawed:
            for name, parameter in model.named_parameters():
                log[name] = parameter.grad.norm().item()  # flaw: grad_norms_logged
        else:
            log["all"] = torch._foreach_norm([each.grad for each in model.parameters()])

    return Step(
        training(
            lambda: gpt.loss_of(model, tokens, targets),
            fused_adamw(model),
            sizes,
            after_backward=[log_norms],
        )
    )


def zeroed_gradients(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, targets = _gpt(sizes)
    optimizer = fused_adamw(model)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=not flawed)  # flaw: zeroed_gradients
        with autocast(sizes):
            loss = gpt.loss_of(model, tokens, targets)
        loss.backward()  # flaw: zeroed_gradients
        optimizer.step()
        return loss.detach()

    return Step(step)
