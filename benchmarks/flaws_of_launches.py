"""The steps of the trial of findings that launch more than they need, or wait for what they read.

Each loop is written as training scripts write it: over parameters, tensors, experts, time steps or
micro-batches. Sizes are such that the CPU is behind, or would be ahead if it did not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.cases import Case, Pair, Sizes
from benchmarks.flaws_eager import Loss, Trained, cross_entropy
from benchmarks.models import GPT, Block
from benchmarks.steps import Step

Optimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def adamw(sizes: Sizes, **options: Any) -> Optimizer:
    """Return what makes an AdamW, fused on a GPU where no options are given."""
    return partial(torch.optim.AdamW, lr=1e-5, **(options or {"fused": not sizes.is_tiny}))


def trained(
    model: nn.Module,
    make: Optimizer,
    loss: Callable[[], torch.Tensor],
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
) -> Step:
    """Return a step; what runs before and after the optimizer is the case's."""
    optimizer = make(model.parameters())

    def step() -> None:
        loss().backward()
        before()
        optimizer.step()
        after()
        optimizer.zero_grad(set_to_none=True)

    return step


def _gpt(sizes: Sizes, batch: int, layers: int = 12, width: int = 768) -> tuple[nn.Module, Any]:
    width = 64 if sizes.is_tiny else width
    model = GPT(width, 2 if sizes.is_tiny else layers).to(sizes.device, torch.bfloat16)
    ids = torch.randint(50304, (batch, sizes.tokens), device=sizes.device)
    return model, lambda: cross_entropy(model(ids), ids)


class Bottleneck(nn.Module):
    """A block of a ResNet-50."""

    def __init__(self, wide: int, inner: int, stride: int) -> None:
        super().__init__()
        shapes = ((wide, inner, 1, 1), (inner, inner, 3, stride), (inner, 4 * inner, 1, 1))
        self.layers = nn.ModuleList(_convolution(*shape) for shape in shapes)
        is_same = stride == 1 and wide == 4 * inner
        self.skip = nn.Identity() if is_same else _convolution(wide, 4 * inner, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the next block gets."""
        y = x
        for at, layer in enumerate(self.layers):
            y = functional.relu(layer(y)) if at < 2 else layer(y)
        return functional.relu(y + self.skip(x))


def _convolution(wide: int, out: int, side: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(wide, out, side, stride, side // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(out))


def resnet(depths: tuple[int, ...] = (3, 4, 6, 3)) -> nn.Sequential:
    """Return a ResNet of bottlenecks, with 50 layers if no depths are given."""
    blocks: list[nn.Module] = [_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    wide = 64
    for stage, depth in enumerate(depths):
        for at in range(depth):
            blocks.append(Bottleneck(wide, 64 << stage, 2 if stage and not at else 1))
            wide = 256 << stage
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 1000))


def _resnet(sizes: Sizes, batch: int) -> tuple[nn.Module, Any]:
    model = resnet((1, 1) if sizes.is_tiny else (3, 4, 6, 3)).to(sizes.device)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.randn(2 if sizes.is_tiny else batch, 3, 32 if sizes.is_tiny else 224, 224)
    images = images.to(sizes.device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(1000, (len(images),), device=sizes.device)

    def loss() -> torch.Tensor:
        with torch.autocast(sizes.device, torch.bfloat16):
            return functional.cross_entropy(model(images), labels)

    return model, loss


_MODELS = {"gpt": _gpt, "resnet": _resnet}


def per_parameter(
    sizes: Sizes, model: str, batch: int, make: Callable[..., torch.optim.Optimizer], **size: int
) -> Pair:
    """The optimizer updates one parameter after the other; fused, or foreach on the CPU."""

    def made(**options: Any) -> Step:
        own, loss = _MODELS[model](sizes, batch, **size)
        words: dict[str, Any] = {"momentum": 0.9} if make is torch.optim.SGD else {}
        return trained(own, partial(make, lr=1e-5, **words, **options), loss)

    remedy = {"foreach": True} if sizes.is_tiny else {"fused": True}
    return Pair(made(foreach=False), made(**remedy))


def _grads(model: nn.Module) -> list[torch.Tensor]:
    return [each.grad for each in model.parameters() if each.grad is not None]


def clipping(sizes: Sizes, batch: int, *, reads: bool, **size: int) -> Pair:
    """Each gradient's norm by itself, read at once or not, and each scaled; `clip_grad_norm_`."""

    def looped(model: nn.Module) -> None:
        if reads:
            total = sum(grad.norm().item() ** 2 for grad in _grads(model)) ** 0.5
            scale = min(1.0, 1.0 / (total + 1e-6))
        else:
            norms = [grad.norm() for grad in _grads(model)]
            scale = (1.0 / (torch.stack(norms).norm() + 1e-6)).clamp(max=1.0)
        for grad in _grads(model):
            grad.mul_(scale)

    def made(clip: Callable[[nn.Module], object]) -> Step:
        model, loss = _gpt(sizes, batch, **size)
        return trained(model, adamw(sizes), loss, before=lambda: clip(model))

    whole = partial(nn.utils.clip_grad_norm_, max_norm=1.0)
    return Pair(made(looped), made(lambda model: whole(model.parameters())))


def norms_logged(sizes: Sizes, batch: int, **size: int) -> Pair:
    """Each gradient's norm is read by itself; all stay on the device, by one `_foreach_norm`."""
    log: list[Any] = []

    def looped(model: nn.Module) -> None:
        log[:] = [grad.norm().item() for grad in _grads(model)]

    def at_once(model: nn.Module) -> None:
        log[:] = torch._foreach_norm(_grads(model))

    def made(look: Callable[[nn.Module], object]) -> Step:
        model, loss = _gpt(sizes, batch, **size)
        return trained(model, adamw(sizes), loss, before=lambda: look(model))

    return Pair(made(looped), made(at_once))


@torch.no_grad()
def _average(kept: list[torch.Tensor], new: list[torch.Tensor]) -> None:
    for own, value in zip(kept, new, strict=True):
        own.mul_(0.999).add_(value, alpha=0.001)


@torch.no_grad()
def _average_at_once(kept: list[torch.Tensor], new: list[torch.Tensor]) -> None:
    torch._foreach_mul_(kept, 0.999)
    torch._foreach_add_(kept, new, alpha=0.001)


def averaging(sizes: Sizes, model: str, batch: int, **size: int) -> Pair:
    """A moving average of each parameter by itself; of all at once."""

    def made(average: Callable[[list[torch.Tensor], list[torch.Tensor]], None]) -> Step:
        own, loss = _MODELS[model](sizes, batch, **size)
        new: list[torch.Tensor] = list(own.parameters())
        kept = [each.detach().clone() for each in new]
        return trained(own, adamw(sizes), loss, after=lambda: average(kept, new))

    return Pair(made(_average), made(_average_at_once))


def micro_steps(sizes: Sizes, count: int, batch: int, **size: int) -> Pair:
    """The loss of each of some micro-batches is read; added up on the device."""

    def made(reads: bool) -> Step:
        model, loss = _gpt(sizes, batch, **size)
        optimizer = adamw(sizes)(model.parameters())
        log: list[Any] = []

        def step() -> None:
            total: Any = 0.0
            for _ in range(count):
                part = loss() / count
                part.backward()
                total = total + (part.item() if reads else part.detach())
            log[:] = [total]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return step

    return Pair(made(True), made(False))


def printing(sizes: Sizes, batch: int, **size: int) -> Pair:
    """The loss is printed in each step; kept on the device."""

    def made(prints: bool) -> Step:
        model, loss = _gpt(sizes, batch, **size)
        optimizer = adamw(sizes)(model.parameters())
        log: list[torch.Tensor] = []

        def step() -> None:
            value = loss()
            if prints:
                print("loss", value)
            log[:] = [value.detach()]
            value.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return step

    return Pair(made(True), made(False))


class Experts(nn.Module):
    """Experts of equally many tokens, one after the other or all at once."""

    def __init__(self, count: int, width: int, is_looped: bool) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(count, width, 2 * width) / width**0.5)
        self.down = nn.Parameter(torch.randn(count, 2 * width, width) / width**0.5)
        self.is_looped = is_looped

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the experts make of their tokens."""
        rows = x.reshape(len(self.up), -1, x.shape[-1])
        if self.is_looped:
            results = []
            for at in range(len(self.up)):
                results.append(functional.gelu(rows[at] @ self.up[at]) @ self.down[at])
            made = torch.stack(results)
        else:
            made = torch.bmm(functional.gelu(torch.bmm(rows, self.up)), self.down)
        return made.reshape(x.shape)


def experts(sizes: Sizes, count: int, layers: int, tokens: int) -> Pair:
    """Experts in a Python loop; in batched products."""
    width, count = (32, 2) if sizes.is_tiny else (512, count)

    def made(is_looped: bool) -> Step:
        parts = (Experts(count, width, is_looped) for _ in range(layers))
        model = nn.Sequential(*parts).to(sizes.device, torch.bfloat16)
        x = torch.randn(count, tokens, width, device=sizes.device, dtype=torch.bfloat16)
        return trained(model, adamw(sizes), lambda: model(x).float().square().mean())

    return Pair(made(True), made(False))


class Recurrent(nn.Module):
    """A cell, called for one time step after the other."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the states of all time steps."""
        state, states = None, []
        for row in x.unbind(0):
            state = self.cell(row, state)
            states.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(states)


def recurrent(sizes: Sizes, kind: str, time_steps: int, width: int) -> Pair:
    """A cell called for each time step; the whole sequence by cuDNN."""
    width, time_steps = (32, 4) if sizes.is_tiny else (width, time_steps)
    x = torch.randn(time_steps, 64, width, device=sizes.device)
    cell = Recurrent(getattr(nn, f"{kind}Cell")(width, width)).to(sizes.device)
    whole = getattr(nn, kind)(width, width).to(sizes.device)
    return Pair(
        trained(cell, adamw(sizes), lambda: cell(x).square().mean()),
        trained(whole, adamw(sizes), lambda: whole(x)[0].square().mean()),
    )


def small_eager_loss(sizes: Sizes, loss: Loss, batch: int, width: int, layers: int) -> Pair:
    """A small model is compiled under CUDA graphs, its loss is eager; both as one."""
    words = 4096
    ids = torch.randint(words, (batch, sizes.tokens), device=sizes.device)

    def made(is_whole: bool) -> Step:
        torch._dynamo.reset()
        blocks = (Block(width, width // 64) for _ in range(layers))
        parts = (nn.Embedding(words, width), *blocks, nn.Linear(width, words))
        model = nn.Sequential(*parts).to(sizes.device, torch.bfloat16)
        whole = Trained(model if is_whole else torch.compile(model, dynamic=False), loss)
        run = torch.compile(whole, dynamic=False) if is_whole else whole
        return trained(model, adamw(sizes), lambda: run(ids, ids))

    return Pair(made(False), made(True))


def many_terms(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return a loss of several terms, as detection and distillation have them."""
    rows = logits.flatten(0, 1).float()
    terms = [functional.cross_entropy(rows, ids.flatten())]
    for at in range(8):
        near = rows[:, at::8]
        terms.append((near - near.mean(-1, keepdim=True)).abs().clamp(max=3.0).square().mean())
    return torch.stack(terms).sum()


_OPTIMIZER, _LOOP, _WAIT = "per_parameter_optimizer", "python_loop", "synchronisation"
_ADAMW, _SGD = torch.optim.AdamW, torch.optim.SGD
LAUNCHES = (
    Case(
        _OPTIMIZER,
        "GPT, 8 x 512 tokens, AdamW parameter by parameter; fused",
        partial(per_parameter, model="gpt", batch=8, make=_ADAMW),
    ),
    Case(
        _OPTIMIZER,
        "ResNet-50, 64 images, AdamW parameter by parameter; fused",
        partial(per_parameter, model="resnet", batch=64, make=_ADAMW),
    ),
    Case(
        _LOOP,
        "GPT, each gradient clipped by itself; `clip_grad_norm_`",
        partial(clipping, batch=8, reads=False),
    ),
    Case(
        _LOOP,
        "GPT, a moving average of each parameter; `_foreach_mul_`, `_foreach_add_`",
        partial(averaging, model="gpt", batch=8),
    ),
    Case(
        _LOOP,
        "16 experts one by one in 6 layers; `bmm`",
        partial(experts, count=16, layers=6, tokens=128),
    ),
    Case(
        _LOOP,
        "`LSTMCell` in a loop over 128 time steps; `LSTM`",
        partial(recurrent, kind="LSTM", time_steps=128, width=512),
    ),
    Case(
        _WAIT,
        "GPT, each gradient's norm read, then clipped; `clip_grad_norm_`",
        partial(clipping, batch=16, reads=True),
    ),
    Case(
        _WAIT,
        "GPT, each gradient's norm read for a log; `_foreach_norm`, not read",
        partial(norms_logged, batch=16),
    ),
    Case(
        _WAIT,
        "GPT, 4 micro-batches of 16 x 512 tokens, each loss read; added up",
        partial(micro_steps, count=4, batch=16),
    ),
    Case(_WAIT, "GPT, 16 x 512 tokens, the loss printed; kept", partial(printing, batch=16)),
    Case(
        "eager_beside_compiled",
        "small GPT, a loss of nine terms eager; compiled",
        partial(small_eager_loss, loss=many_terms, batch=8, width=256, layers=4),
    ),
)
LAUNCHES_UNSEEN = (
    Case(
        _OPTIMIZER,
        "GPT, 24 layers of 1024, 4 x 512 tokens, AdamW parameter by parameter; fused",
        partial(per_parameter, model="gpt", batch=4, make=_ADAMW, layers=24, width=1024),
    ),
    Case(
        _OPTIMIZER,
        "ResNet-50, 128 images, SGD parameter by parameter; fused",
        partial(per_parameter, model="resnet", batch=128, make=_SGD),
    ),
    Case(
        _LOOP,
        "GPT, 24 layers of 512, each gradient clipped by itself; `clip_grad_norm_`",
        partial(clipping, batch=8, reads=False, layers=24, width=512),
    ),
    Case(
        _LOOP,
        "ResNet-50, a moving average of each parameter; `_foreach_mul_`, `_foreach_add_`",
        partial(averaging, model="resnet", batch=32),
    ),
    Case(
        _LOOP,
        "32 experts one by one in 3 layers; `bmm`",
        partial(experts, count=32, layers=3, tokens=64),
    ),
    Case(
        _LOOP,
        "`GRUCell` in a loop over 200 time steps; `GRU`",
        partial(recurrent, kind="GRU", time_steps=200, width=256),
    ),
    Case(
        _WAIT,
        "GPT, 24 layers of 512, each gradient's norm read, then clipped; `clip_grad_norm_`",
        partial(clipping, batch=16, reads=True, layers=24, width=512),
    ),
    Case(
        _WAIT,
        "GPT, 8 micro-batches of 12 x 512 tokens, each loss read; added up",
        partial(micro_steps, count=8, batch=12, layers=8, width=1024),
    ),
    Case(
        _WAIT,
        "GPT, 6 layers of 1024, 16 x 512 tokens, the loss printed; kept",
        partial(printing, batch=16, layers=6, width=1024),
    ),
)
