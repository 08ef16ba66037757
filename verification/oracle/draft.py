"""A model while it is written: its lines, its inputs and its functions."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from verification.oracle.constants import Constants

_TOKEN = re.compile(r"\b[CP]\b")
_HEADER = """\
import functools

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention as attention
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
"""
_TRITON = """import triton
import triton.language as tl
"""


@dataclass(frozen=True, slots=True)
class Model:
    """One random model.

    Attributes:
        seed: draws it again.
        blocks: names of the blocks that it is made of.
        text: its source; ``model`` is the function, ``inputs(device)`` its arguments and
            ``OPTIONS`` how it is compiled.
    """

    seed: int
    blocks: tuple[str, ...]
    text: str


class Draft:
    """A model under way; every value of the main path has the shape (rows, columns).

    In what is written, each ``C`` becomes a constant near one and each ``P`` a probability,
    all of them different.
    """

    def __init__(self, rng: random.Random, rows: int, columns: int) -> None:
        self.rng = rng
        self.rows = rows
        self.columns = columns
        self._constants = Constants(rng)
        self._names = 0
        self._body: list[str] = []
        self._functions: list[str] = []
        self._inputs: list[tuple[str, str]] = []

    def line(self, expression: str) -> str:
        """Write a line that computes a value, and return the value's name."""
        name = self._name("v")
        self.do(f"{name} = {expression}")
        return name

    def do(self, statement: str) -> None:
        """Write a line."""
        self._body.append(f"    {self._marked(statement)}")

    def function(self, parameters: str, *statements: str, decorator: str = "") -> str:
        """Write a function beside the model, and return its name."""
        name = self._name("helper_")
        lines = [f"@{decorator}"] if decorator else []
        lines += [f"def {name}({parameters}):", *(f"    {self._marked(s)}" for s in statements)]
        self._functions.append("\n".join(lines))
        return name

    def declare(self, text: str) -> str:
        """Write a class beside the model, ``NAME`` standing for its name; return the name."""
        name = self._name("Helper")
        self._functions.append(self._marked(text.replace("NAME", name)))
        return name

    def weight(self, *size: int) -> str:
        """Return a new input that needs a gradient."""
        return self._input(f"torch.rand({size}, device=device, requires_grad=True)")

    def buffer(self, *size: int) -> str:
        """Return a new input without a gradient."""
        return self._input(f"torch.rand({size}, device=device)")

    def index(self, high: int, *size: int) -> str:
        """Return a new input of integers below ``high``."""
        return self._input(f"torch.randint({high}, {size}, device=device)")

    def some(self, *choices: str) -> str:
        """Return one of the choices."""
        return self.rng.choice(choices)

    def text(self, result: str, options: str) -> str:
        """Return the source of the finished model; ``options`` is how it is compiled."""
        names = ", ".join(name for name, _ in self._inputs)
        values = "".join(f"        {value},\n" for _, value in self._inputs)
        body = "\n".join([f"def model({names}):", *self._body, f"    return {result}"])
        arguments = f"def inputs(device):\n    return (\n{values}    )"
        triton = [_TRITON] if any("@triton" in text for text in self._functions) else []
        parts = [_HEADER, *triton, *self._functions, body, arguments, f"OPTIONS = {options}"]
        return "\n\n".join(parts) + "\n"

    def _input(self, value: str) -> str:
        name = self._name("w")
        self._inputs.append((name, value))
        return name

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _marked(self, text: str) -> str:
        return _TOKEN.sub(lambda match: self._constant(match[0]), text)

    def _constant(self, token: str) -> str:
        return self._constants.factor() if token == "C" else self._constants.probability()
