"""The small models of the comparison, with what is right of their nodes, written by hand.

Each op or constant that a rule names stands on one line of its model, so the line of a node of
the compiled graphs is known without asking torch or us.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch._dynamo.compiled_autograd
import torch.nn.functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

from benchmarks.naive_cases import Case, Rule


def _weight(*size: int) -> torch.Tensor:
    return torch.rand(*size, requires_grad=True)


def _fan_out(x: torch.Tensor) -> torch.Tensor:
    h = x * 2.5
    a = h * 3.5
    b = h.sin()
    return (a - b).sum()


_FAN_OUT = (
    Rule(r"aten\.add\.", (), "gradient_accumulation", backward=True),
    Rule(r"2\.5", ("h = x * 2.5",), "forward", backward=False),
    Rule(r"3\.5", ("a = h * 3.5",), "forward", backward=False),
    Rule(r"aten\.sin", ("b = h.sin()",), "forward", backward=False),
    Rule(r"3\.5", ("a = h * 3.5",), "backward", backward=True),
    Rule(r"aten\.cos", ("b = h.sin()",), "backward", backward=True),
)


def _also_fan_out(x: torch.Tensor) -> torch.Tensor:
    h = x * 2.5  # also
    a = h * 3.5  # also
    b = h.sin()  # also
    return (a - b).sum()


_ALSO_FAN_OUT = tuple(replace(r, lines=tuple(f"{x}  # also" for x in r.lines)) for r in _FAN_OUT)


class _Normed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(2, 4, 1), torch.nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        z = self.norm(y)
        return z.relu().sum()


_NORMED = (
    Rule(r"convolution\.", ("y = self.conv(x)",), "forward", backward=False),
    Rule(r"convolution_backward", ("y = self.conv(x)",), "backward", backward=True),
    Rule(r"aten\.(rsqrt|var_mean|copy_)", ("z = self.norm(y)",), "forward", backward=False),
    Rule(r"aten\.relu", ("return z.relu().sum()",), "forward", backward=False),
)


def _attention(q: torch.Tensor) -> torch.Tensor:
    scores = q @ q.transpose(-2, -1)
    scaled = scores / 4.0
    weights = scaled.softmax(-1)
    mixed = weights @ q
    return mixed.sum()


_MATCHED = ("scores = q", "scaled = ", "weights = ", "mixed = ")
_ATTENTION = (
    Rule(r"_scaled_dot_product.*backward", _MATCHED, "backward", backward=True),
    Rule(r"_scaled_dot_product", _MATCHED, "forward", backward=False),
)


def _added(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    product = x @ w
    y = product + b
    return y.sin().sum()


_MATRICES = (_weight(8, 8), _weight(8, 8), _weight(8))
_ADDED = (
    Rule(r"aten\.addmm", ("product = x @ w", "y = product + b"), "forward", backward=False),
    Rule(r"aten\.mm", ("product = x @ w",), "backward", backward=True),
)


def _dropped(x: torch.Tensor) -> torch.Tensor:
    y = F.dropout(x, 0.25)
    return (y * 3.5).sum()


_DROPPED = (
    Rule(r"inductor_(seeds|lookup_seed|random)", ("y = F.dropout(x, 0.25)",), "forward"),
    Rule(r"aten\.gt.*0\.25", ("y = F.dropout(x, 0.25)",), "forward"),
)


def _block(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return y.exp()


def _checkpointed(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(_block, x, use_reentrant=False).sum()


_CHECKPOINTED = (
    Rule(r"aten\.sin", ("y = x.sin()",), "recompute", backward=True),
    Rule(r"aten\.exp\.", ("return y.exp()",), "recompute", backward=True),
    Rule(r"aten\.cos", ("y = x.sin()",), "backward", backward=True),
    Rule(r"aten\.sin", ("y = x.sin()",), "forward", backward=False),
    Rule(r"aten\.exp\.", ("return y.exp()",), "forward", backward=False),
)


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.pow(3)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        slope = x.pow(2)
        return slope * 2.5 * grads[0]


def _cubed(x: torch.Tensor) -> torch.Tensor:
    return _Cube.apply(x * 3.5).sum()


_CUBED = (
    Rule(r"aten\.pow.* 3", ("return x.pow(3)",), "forward", backward=False),
    Rule(r"aten\.pow.* 2|2\.5", ("slope = x.pow(2)", "return slope * 2.5"), "backward"),
)


def _sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def _sigmoid(x: torch.Tensor) -> torch.Tensor:
    return x.sigmoid()


def _branched(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, _sine, _sigmoid, (x,)).sum()


_BRANCHED = (
    Rule(r"aten\.sin", ("return x.sin()",), "forward", backward=False),
    Rule(r"aten\.sigmoid", ("return x.sigmoid()",), "forward", backward=False),
    Rule(r"aten\.cos", ("return x.sin()",), "backward", backward=True),
)


def _viewed(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    first = y.view(-1)[:8]
    first.mul_(2.5)
    return (y * 3.5).sum()


_VIEWED = (
    Rule(r"2\.5", ("first.mul_(2.5)",), "forward", backward=False),
    Rule(r"2\.5", ("first.mul_(2.5)",), "backward", backward=True),
    Rule(r"aten\.sin", ("y = x.sin()",), "forward", backward=False),
    Rule(r"aten\.cos", ("y = x.sin()",), "backward", backward=True),
)


def _slope(w: torch.Tensor) -> torch.Tensor:
    return w.sin().sum()


def _updated(w: torch.Tensor) -> torch.Tensor:
    gradient = torch.func.grad(_slope)(w)
    return w - gradient * 0.125


_UPDATED = (
    Rule(r"aten\.cos", ("return w.sin().sum()",), "backward"),
    Rule(r"0\.125", ("return w - gradient * 0.125",), "other"),
)


def _counted(x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    seen.mul_(0.75)
    return (x * 3.5).sum()


_COUNTED = (Rule(r"0\.75|aten\.copy_", ("seen.mul_(0.75)",), "forward", backward=False),)


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        ctx.scale = scale
        return x * 3.5

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.scale.mul_(0.75)
        return grads[0] * 2.5, None


def _rescaled(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return _Scaled.apply(x, scale).sum()


_RESCALED = (
    Rule(r"0\.75|aten\.copy_", ("ctx.scale.mul_(0.75)",), "backward", backward=True),
    Rule(r"2\.5", ("return grads[0] * 2.5",), "backward", backward=True),
)


def _under_the_flag(x: torch.Tensor) -> None:
    loss = torch.compile(_fan_out)(x)
    with torch._dynamo.compiled_autograd._enable(torch.compile):
        loss.backward()


def _trained(function: Callable[..., Any], *inputs: torch.Tensor) -> Callable[[], object]:
    return lambda: torch.compile(function)(*inputs).backward()


def _without_aot_cache(function: Callable[..., Any], x: torch.Tensor) -> None:
    with torch._functorch.config.patch(enable_autograd_cache=False):
        torch.compile(function)(x).backward()


def _by_fx_cache(function: Callable[..., Any]) -> Callable[[], object]:
    return lambda: _without_aot_cache(function, _weight(64))


_FAN = _trained(_fan_out, _weight(64))
_ALSO = _trained(_also_fan_out, _weight(64))

CASES = (
    Case(1, "two uses of a tensor", _FAN, _FAN_OUT),
    Case(1, "SDPA pattern", _trained(_attention, _weight(1, 2, 8, 16)), _ATTENTION),
    Case(1, "addmm pattern", _trained(_added, *_MATRICES), _ADDED),
    Case(1, "dropout", _trained(_dropped, _weight(64)), _DROPPED),
    Case(1, "autograd.Function", _trained(_cubed, _weight(64)), _CUBED),
    Case(1, "cond", _trained(_branched, _weight(64)), _BRANCHED),
    Case(1, "mutated view", _trained(_viewed, _weight(64)), _VIEWED),
    Case(2, "checkpoint", _trained(_checkpointed, _weight(64)), _CHECKPOINTED),
    Case(2, "func.grad in the graph", lambda: torch.compile(_updated)(torch.rand(64)), _UPDATED),
    Case(3, "compiled autograd", lambda: _under_the_flag(_weight(64)), _FAN_OUT),
    Case(4, "batch norm's statistics", _trained(_Normed(), torch.rand(2, 2, 4, 4)), _NORMED),
    Case(4, "input mutated in forward", _trained(_counted, _weight(8), torch.ones(8)), _COUNTED),
    Case(4, "and in backward", _trained(_rescaled, _weight(8), torch.ones(8)), _RESCALED),
    Case(5, "AOTAutograd hit", _FAN, _FAN_OUT, cached=_FAN),
    Case(5, "AOT hit, equal function", _ALSO, _ALSO_FAN_OUT, cached=_FAN),
    Case(5, "FX hit alone", _by_fx_cache(_fan_out), _FAN_OUT, cached=_by_fx_cache(_fan_out)),
    Case(5, "FX hit, equal function", _by_fx_cache(_also_fan_out), _ALSO_FAN_OUT, cached=_FAN),
)
