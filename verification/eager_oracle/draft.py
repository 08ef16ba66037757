"""A program while it is written: its functions, classes, weights, and lines with numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MARK = "#@"
"""Stands before a line's numbers: that of its results, and that of what it has meanwhile."""
PASSES = "#~"
"""Stands before the ops that a line without numbers has done to a value that it passes on."""
TWICE = {"gradient_within", "gradients_of_gradients", "vjp", "jvp"}
"""Blocks that differentiate twice, or forward, which not every op can. The second gradient of a
value alone is of the line that used it."""
HEADER = """\
import asyncio
import contextlib
import functools
import threading

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
"""
_TAKES = (
    "{x} * {w}",
    "{x} + {w}",
    "torch.mul({x}, {w})",
    "({x} - {w})",
    "torch.maximum({x}, {w})",
    "torch.lerp({w}, {x}, 0.3)",
    "torch.where({m}, {x}, {w})",
    "{x} / (2 + {w})",
)
_WORKS = (
    "torch.relu({y})",
    "F.gelu({y})",
    "torch.tanh({y}).clone()",
    "torch.softmax({y}, 1)",
    "F.layer_norm({y}, ({q},))",
    "F.rms_norm({y}, ({q},))",
    "F.linear({y}, {ww}, {b})",
    "({y} @ {ww})",
    "F.dropout({y}, 0.1)",
    "torch.cat([{y}, {w}]).sum(0, keepdim=True)",
    "torch.stack([{y}, {w}]).sum(0)",
    "F.conv1d({y}.view(1, {q}, 1), {k}, groups={q}).view(1, {q})",
    "{y}.cumsum(1)",
    "{y}.masked_fill({m}, 0.5)",
    "{y}.sort(1).values",
    "{y}.double().float()",
    "({y} + F.embedding({i}, {ww}).sum(0))",
    "torch.einsum('ij,kj->ik', {y}, {ww})",
    "F.scaled_dot_product_attention({y}.view(1, 1, 1, {q}), {h}, {h}).view(1, {q})",
    "{y}.sigmoid().mul(1.5)",
    "{y}.clone().mul_({w})",
    "{y}.index_select(1, {i})",
)
_GIVES = (
    "({v} * {y}).sum(1, keepdim=True)",
    "({v} @ ({y}).t())",
    "F.linear({v}, {y})",
)


@dataclass(frozen=True, slots=True)
class Program:
    """A random program.

    Attributes:
        seed: draws it again.
        blocks: names of the blocks that it is made of.
        text: its source; ``prepare(device)`` makes its tensors, ``step()`` is what is recorded.
        modules: path of each module by the number that only its tensors have.
    """

    seed: int
    blocks: tuple[str, ...]
    text: str
    modules: dict[int, str]


Weights = Callable[[str], str]
"""Takes the expression that makes a tensor, and returns how the line is to call it."""


class Draft:
    """A program under way."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.modules: dict[int, str] = {}
        self._works = _WORKS
        self._primes = _shuffled_primes(rng)
        self._names = 0
        self._functions: list[str] = []
        self._prepared: list[tuple[str, str]] = []
        self._members: list[tuple[str, str]] = []

    @contextmanager
    def without(self, word: str) -> Iterator[None]:
        """Draw lines that do without what has a word in it."""
        before, self._works = self._works, tuple(work for work in _WORKS if word not in work)
        yield
        self._works = before

    def number(self) -> int:
        """Return a number that stands for nothing else."""
        return next(self._primes)

    def name(self, prefix: str) -> str:
        """Return a new name."""
        self._names += 1
        return f"{prefix}{self._names}"

    def weight(self, made: str) -> str:
        """Return a new tensor of the program."""
        name = self.name("W")
        self._prepared.append((name, made))
        return name

    def next_member(self) -> str:
        """Return the path of the module that is declared next."""
        return f"part{len(self._members)}"

    def member(self, made: str) -> str:
        """Declare a module of the program's model; return how it is called."""
        name = self.next_member()
        self._members.append((name, made))
        return f"MODEL.{name}"

    def work(
        self, x: str, weights: Weights | None = None, more: Callable[[int], str] | None = None
    ) -> tuple[str, str]:
        """Draw what a line does to a value.

        Args:
            x: the value.
            weights: makes its tensors; by default they are the program's own.
            more: given the line's number, returns what else is added meanwhile.

        Returns:
            The expression, and the mark of its line.
        """
        make, made, own = weights or self.weight, self.number(), self.number()
        tensors = _Tensors(make, made, own)
        taken = tensors.fill(self.rng.choice(_TAKES), x=x)
        inner = f"({taken}).sum(0, keepdim=True)"
        for _ in range(self.rng.randint(0, 2)):
            inner = tensors.fill(self.rng.choice(self._works), y=inner)
        if more is not None:
            inner = f"({inner} + {more(own)})"
        given = tensors.fill(self.rng.choice(_GIVES), y=inner)
        return given, f"  {MARK} {made} {own}"

    def line(self, x: str = "x", weights: Weights | None = None, to: str = "x") -> str:
        """Return a line that works on a value and keeps what it makes of it."""
        expression, mark = self.work(x, weights)
        return f"{to} = {expression}{mark}"

    def lines(self, most: int = 3) -> list[str]:
        """Return some such lines, one after the other."""
        return [self.line() for _ in range(self.rng.randint(1, most))]

    def add(self, text: str) -> None:
        """Write a function or class beside the step."""
        self._functions.append(text)

    def function(self, parameters: str, body: list[str], decorator: str = "") -> str:
        """Write a function, and return its name."""
        name = self.name("function_")
        head = [decorator] if decorator else []
        self.add("\n".join([*head, f"def {name}({parameters}):", *indented(body)]))
        return name

    def text(self, body: list[str]) -> str:
        """Return the source of the finished program."""
        out, seed = self.number(), self.number()
        given = [("START", rand(seed, 1)), ("LAST", f"torch.rand({out}, 1, device=device)")]
        step = ["x = START", *body, *self._ending(out)]
        self._prepared += given
        names = ", ".join(name for name, _ in self._prepared)
        prepared = [f"{name} = {made}" for name, made in self._prepared]
        members = [f"MODEL.{name} = {made}" for name, made in self._members]
        prepare = [f"global {names}, MODEL", *prepared, "MODEL = nn.Module()", *members]
        prepare.append("MODEL.to(device)")
        parts = [HEADER, *self._functions, _function("prepare(device)", prepare)]
        return "\n\n".join([*parts, _function("step()", step)]) + "\n"

    def _ending(self, out: int) -> list[str]:
        own = self.number()
        first, last = self.weight(rand(1, own)), self.weight(rand(out, own))
        line = f"x = ({last} * (x * {first}).sum(0, keepdim=True)).sum(1, keepdim=True)"
        return [f"{line}  {MARK} {out} {own}", "x.backward(LAST)"]


class _Tensors:
    """Fills the gaps of what a line does with tensors of its own numbers."""

    def __init__(self, make: Weights, made: int, own: int) -> None:
        self._make, self._own = make, own
        self._kinds = {
            "w": rand(1, own),
            "ww": rand(own, own),
            "b": rand(own),
            "k": rand(own, 1, 1),
            "h": rand(1, 1, 3, own),
            "v": rand(made, own),
            "m": f"torch.rand(1, {own}, device=device) > 0.5",
            "i": f"torch.randperm({own}, device=device)",
        }

    def fill(self, text: str, **values: str) -> str:
        wanted = [kind for kind in self._kinds if f"{{{kind}}}" in text]
        made = {kind: self._make(self._kinds[kind]) for kind in wanted}
        return text.format(q=self._own, **made, **values)


def indented(lines: list[str]) -> list[str]:
    """Return lines one level deeper."""
    return [f"    {line}" for line in lines]


def _function(head: str, body: list[str]) -> str:
    return "\n".join([f"def {head}:", *indented(body)])


def rand(*size: int) -> str:
    """Return the expression that makes a tensor which learns."""
    return f"torch.rand({size}, device=device, requires_grad=True)"


def _shuffled_primes(rng: random.Random) -> Iterator[int]:
    primes = [n for n in range(11, 900) if all(n % d for d in range(2, int(n**0.5) + 1))]
    rng.shuffle(primes)
    return iter(primes)
