"""Owns how report.html writes each name once: distinct values by number."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

ABSENT = -1


class Pool:
    """Numbers distinct values in the order in which they are first seen."""

    def __init__(self) -> None:
        """Start with no value."""
        self._codes: dict[Hashable, int] = {}

    def code(self, value: Hashable) -> int:
        """Return the number of a value; of ``None``, ``ABSENT``."""
        return ABSENT if value is None else self._codes.setdefault(value, len(self._codes))

    def codes(self) -> Mapping[Any, int]:
        """Return the number of each value."""
        return self._codes

    def values(self) -> list[Any]:
        """Return the values by their number."""
        return list(self._codes)


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools of a page, which its rows point into.

    Attributes:
        lines: file number and line.
        modules: path and class.
        ops: ATen ops.
        gaps: reasons.
        kernels: name, the device's own name, and kind.
        stacks: numbers of the lines that called.
        places: rows of the numbers above, with the phase and the node.
    """

    lines: Pool = field(default_factory=Pool)
    modules: Pool = field(default_factory=Pool)
    ops: Pool = field(default_factory=Pool)
    gaps: Pool = field(default_factory=Pool)
    kernels: Pool = field(default_factory=Pool)
    stacks: Pool = field(default_factory=Pool)
    places: Pool = field(default_factory=Pool)
