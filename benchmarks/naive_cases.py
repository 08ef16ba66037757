"""What a case of the comparison is: a model to run, and what is right of its nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """What is right of the nodes whose call matches.

    Attributes:
        call: a regular expression for the op and its constants: ``aten.mul.Tensor .*2.5``.
        lines: texts of the lines that are right; none where any or no line is.
        phase: the phase that is right.
        backward: in which graphs it holds; ``None`` for all.
    """

    call: str
    lines: tuple[str, ...]
    phase: str
    backward: bool | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A model, and what is right of it.

    Attributes:
        item: the item of the issue that it stands for.
        name: what it shows.
        step: runs it, compiled, forward and backward.
        rules: what is right, the first that matches.
        cached: what filled the cache before, if anything did.
    """

    item: int
    name: str
    step: Callable[[], object]
    rules: tuple[Rule, ...]
    cached: Callable[[], object] | None = None
