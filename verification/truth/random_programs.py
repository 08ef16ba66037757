"""Random programs: modules that are written as source, so that each of their lines is known.

What no one thinks of by hand are the pairs: a view that is made anew beside a sum of gradients, a
no-op beside a product. Each line takes what some earlier ones made.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import torch

from verification.truth.models.making import Made, Make, leaf

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2.5

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 2.5 + x.tanh()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(3))
        self.weight = nn.Parameter(torch.randn(4, 8))
"""

OF_ONE = """\
{a}.sin()
F.gelu({a})
F.softmax({a}, dim=-1)
F.layer_norm({a}, (8,))
F.normalize({a}, dim=-1)
F.logsigmoid({a})
F.dropout({a}, 1e-9)
F.pad({a}, (1, 1))[:, 1:9]
F.conv1d({a}[:, None], torch.ones(1, 1, 1, device=x.device))[:, 0]
F.glu(torch.cat([{a}, {a}], -1))
Double.apply({a})
checkpoint(torch.sin, {a}, use_reentrant=False)
{a}.sign()
{a}.round()
({a} - {a}.detach()) + {a}.detach().round()
{a}.detach() + {a}
{a} * torch.ones(4, 8, device=x.device)
{a} + torch.zeros(4, 8, device=x.device)
{a} * 1
{a} + 0
{a}.clone()
{a}.contiguous()
{a}.expand(4, 8)
{a}.abs()
{a}.clamp(-1, 1)
{a}.to(torch.bfloat16).float()
{a}.double().float()
{a}.view(8, 4).t()
{a}.t().reshape(4, 8)
{a}.view(2, 2, 8).transpose(0, 1).reshape(4, 8)
{a}.unfold(1, 4, 4).reshape(4, 8)
{a}.unsqueeze(0).expand(3, 4, 8).mean(0)
torch.cat([{a}[:2], {a}[2:]])
torch.stack([{a}, {a}.cos()]).sum(0)
{a}.chunk(2, 1)[0].repeat(1, 2)
{a}.cumsum(0)
{a}.flip(0)
{a}.roll(1, 1)
{a}.tril()
{a}.sort(-1)[0]
{a}.topk(8, -1)[0]
{a}.gather(1, torch.arange(8, device=x.device).flip(0).expand(4, 8))
{a}.index_select(0, torch.tensor([3, 2, 1, 0], device=x.device))
{a}.index_add(0, torch.tensor([0, 1], device=x.device), {a}[2:])
{a}.masked_fill({a} > 0.5, 0.0)
torch.where({a} > 0, {a}, {a}.exp())
{a}.mean(-1, keepdim=True) + {a}
{a}.var(-1, keepdim=True) + {a}
{a}.logsumexp(-1, keepdim=True) + {a}
{a}.max(-1, keepdim=True)[0] + {a}
{a}.prod(-1, keepdim=True) * {a}
{a}.sum(0, keepdim=True) * {a}
{a}.diagonal().sum() + {a}
torch.einsum("ij,kj->ik", {a}, {a}) @ {a}
""".splitlines()

OF_TWO = """\
{a} + {b}
{a} * {b}
{a} - {b}
torch.maximum({a}, {b})
torch.lerp({a}, {b}, 0.3)
torch.addcmul({a}, {a}, {b})
torch.where(torch.gt({a}, {b}), {a}, {b})
torch.atan2({a}, {b})
torch.cat([{a}, {b}], 1)[:, 4:12]
torch.stack([{a}, {b}]).mean(0)
torch.einsum("ij,ij->ij", {a}, {b})
{a} @ {b}.t() @ {a}
torch.addmm({a}, {a} @ {b}.t(), {b})
torch.bmm({a}[None], {b}.t()[None])[0] @ {b}
F.mse_loss({a}, {b}) + {a}
F.smooth_l1_loss({a}, {b}, reduction="none")
""".splitlines()

OF_MODULES = """\
self.linears[{k}]({a})
self.norms[{k}]({a})
F.linear({a}, self.linears[{k}].weight)
checkpoint(self.linears[{k}], {a}, use_reentrant=False)
self.part_{k}({a})
checkpoint(self.part_{k}, {a}, use_reentrant=False)
""".splitlines()

MUTATING = """\
{a}.add_({b})
{a}.mul_(0.5)
{a}.relu_()
{a}.zero_()
{a}.copy_({b})
{a}[:2].mul_({b}[:2])
{a}[:, ::2].add_(1.0)
{a}.view(-1)[3:9].sin_()
{a}[0] = {b}[1]
{a}[1:3] = 0.0
{a}.masked_fill_({b} > 0, 0.1)
{a}.index_add_(0, torch.tensor([0, 2], device=x.device), {b}[:2])
""".splitlines()

_MOST_VALUES = 5


def program(seed: int) -> str:
    """Return the source of a model; one of an odd number has a part that is a nested region.

    Args:
        seed: its number.
    """
    drawn = random.Random(seed)
    has_region = bool(seed % 2)
    parts = [_part(drawn, number, has_region and number == 0) for number in range(3)]
    lines, values = _lines(drawn, ["x", "self.weight"], drawn.randint(6, 14), is_outer=True)
    returned = f"        return {' + '.join(values[-3:])}"
    return "\n".join([HEAD, *parts, "    def forward(self, x):", *lines, returned, ""])


def _part(drawn: random.Random, number: int, is_region: bool) -> str:
    lines, values = _lines(drawn, ["x"], drawn.randint(2, 4), is_outer=False, mutates=not is_region)
    decorator = ["    @torch.compiler.nested_compile_region"] if is_region else []
    begin = [*decorator, f"    def part_{number}(self, x):"]
    return "\n".join([*begin, *lines, f"        return {values[-1]} + x", ""])


def _lines(
    drawn: random.Random, values: list[str], count: int, *, is_outer: bool, mutates: bool = True
) -> tuple[list[str], list[str]]:
    """Return lines of code, and the last values that they make."""
    kinds = [OF_ONE] * 9 + [OF_TWO] * 6 + [OF_MODULES] * (4 * is_outer) + [MUTATING] * mutates
    lines: list[str] = []
    for number in range(count):
        kind = drawn.choice(kinds)
        call = drawn.choice(kind)
        a, b, made = drawn.choice(values), drawn.choice(values), f"v{number}"
        if kind is MUTATING:
            lines += [f"{made} = {a} * 0.9", call.format(a=made, b=b)]
        else:
            lines += [f"{made} = {call.format(a=a, b=b, k=drawn.randrange(3))}"]
        values = [*values, made]
        if len(values) > _MOST_VALUES:
            values.pop(drawn.randrange(_MOST_VALUES))
    return [f"        {line}" for line in lines], values


def running(numbers: Iterable[int], folder: Path) -> dict[str, Make]:
    """Return random models by name; a program that does not run eagerly is left out.

    Args:
        numbers: theirs; each always makes the same one.
        folder: where their source is written.
    """
    made = {f"random_{number}": _made(number, folder) for number in numbers}
    return {name: partial(_given, each) for name, each in made.items() if each is not None}


def _given(made: Made) -> Made:
    return made


def _made(number: int, folder: Path) -> Made | None:
    path = folder / f"random_{number}.py"
    path.write_text(program(number))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    model, x = module.Model(), leaf(4, 8)
    try:
        model(x).sum().backward()
    except RuntimeError:  # as where a value is mutated that the backward reads
        return None
    model.zero_grad()
    x.grad = None
    return model, (x,)
