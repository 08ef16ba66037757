"""Owns what a position says: the stack of the program's frames there, and the module."""

from __future__ import annotations

from dataclasses import dataclass, replace

from profiler_ext.attribution.positions.threads import NOWHERE, depths_of
from profiler_ext.records import Frame, ModuleFrame, PythonLines


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a thread stood.

    Attributes:
        stack: the frames of the program, outermost first.
        module: the innermost module whose call was under way, where it is known.
        recomputes: a checkpoint runs a forward again.
        is_line_known: the innermost frame's line is known; it has none in ``stack`` if not.
    """

    stack: tuple[Frame, ...] = ()
    module: ModuleFrame | None = None
    recomputes: bool = False
    is_line_known: bool = True


class Stacks:
    """Tells the standing of each position."""

    def __init__(self, lines: PythonLines) -> None:
        """Take what was recorded."""
        self._lines = lines
        self._depths = depths_of(lines.positions)
        self._known: dict[tuple[int, int], Standing] = {}

    def depth(self, position: int) -> int:
        """Return how many positions it lies within, itself counted."""
        return int(self._depths[position])

    def standing(self, position: int, above: int = 0) -> Standing:
        """Return what a position says.

        Args:
            position: its index, or ``NOWHERE``.
            above: what lies that deep or less is left out: it began before.
        """
        chain: list[int] = []
        standing = Standing()
        while position != NOWHERE and self._depths[position] > above:
            if (position, above) in self._known:
                standing = self._known[position, above]
                break
            chain.append(position)
            parent = self._lines.positions[position].parent
            position = NOWHERE if parent is None else parent
        for each in reversed(chain):
            standing = self._known[each, above] = self._within(standing, each)
        return standing

    def _within(self, outer: Standing, position: int) -> Standing:
        own, lines = self._lines.positions[position], self._lines
        if own.module is not None:
            return replace(outer, module=lines.modules[own.module])
        if own.function is None:
            return outer
        function = lines.functions[own.function]
        if function.recomputes:
            return replace(outer, recomputes=True)
        frame = Frame(function.file, own.line, function.name, own.code)
        stack = (*outer.stack, frame) if own.line else outer.stack
        return replace(outer, stack=stack, is_line_known=bool(own.line))
