"""Owns what a position says: the stack of the program's frames there, and the module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from profiler_ext.attribution.positions.threads import NO_POSITION, depths_of
from profiler_ext.records import Frame, ModuleFrame, PythonLines


@dataclass(frozen=True, slots=True)
class StackState:
    """Where a thread stood.

    Attributes:
        stack: the frames of the program, outermost first.
        module: the innermost module whose call was under way, where it is known.
        recomputes: a checkpoint runs a forward again.
        in_module: the call of a module was under way.
        is_line_known: the innermost frame's line is known; it has none in ``stack`` if not.
    """

    stack: tuple[Frame, ...] = ()
    module: ModuleFrame | None = None
    recomputes: bool = False
    in_module: bool = False
    is_line_known: bool = True


class Stacks:
    """Tells the standing of each position."""

    def __init__(self, lines: PythonLines) -> None:
        """Take what was recorded."""
        self._lines = lines
        self._depths = depths_of(lines.positions)
        self._known: dict[tuple[int, int], StackState] = {}
        self._outer: dict[tuple[int, int], StackState] = {}

    def depth(self, position: int) -> int:
        """Return how many positions it lies within, itself counted."""
        return int(self._depths[position])

    def state(self, position: int, above: int = 0) -> StackState:
        """Return what a position says.

        Args:
            position: its index, or ``NOWHERE``.
            above: what lies that deep or less is left out: it began before.
        """
        chain: list[int] = []
        state = StackState()
        while position != NO_POSITION and self._depths[position] > above:
            if (position, above) in self._known:
                state = self._known[position, above]
                break
            chain.append(position)
            position = self._parent(position)
        for each in reversed(chain):
            outer = self._outer[each, above] = self._resumed(state, each, above)
            state = self._known[each, above] = self._within(outer, each)
        return state

    def are_in_module(self, positions: Iterable[int]) -> bool:
        """Tell whether at each of some positions the call of a module is under way."""
        return all(self.state(each).in_module for each in positions)

    def first_module(self, position: int, above: int) -> ModuleFrame | None:
        """Return the outermost module whose call is under way at a position.

        Args:
            position: its index, or ``NOWHERE``.
            above: what lies that deep or less is left out: it began before.
        """
        module_indices = [self._lines.positions[each].module for each in self._chain(position, above)]
        outermost = next((each for each in reversed(module_indices) if each is not None), None)
        return None if outermost is None else self._lines.modules[outermost]

    def before_module(self, position: int, module: ModuleFrame | None, above: int) -> StackState:
        """Return where a thread stood when it called a module.

        Args:
            position: one within the call.
            module: the module.
            above: what lies that deep or less is left out: it began before.

        Returns:
            Nowhere, where it is within no call of the module, or in several.
        """
        calls = [
            each
            for each in self._chain(position, above)
            if (own := self._lines.positions[each].module) is not None
            and self._lines.modules[own] == module
        ]
        return self.state(self._parent(calls[0]), above) if len(calls) == 1 else StackState()

    def _chain(self, position: int, above: int) -> Iterator[int]:
        """Yield a position and what it lies within, from the inside out."""
        while position != NO_POSITION and self._depths[position] > above:
            yield position
            position = self._parent(position)

    def _parent(self, position: int) -> int:
        parent = self._lines.positions[position].parent
        return NO_POSITION if parent is None else parent

    def _resumed(self, outer: StackState, position: int, above: int) -> StackState:
        """Leave the frame out that a position goes on for: it stands where that one did."""
        own = self._lines.positions[position].function
        if own is None or not self._lines.functions[own].resumes:
            return outer
        before = self._outer.get((self._parent(position), above), StackState())
        return replace(outer, stack=before.stack, is_line_known=before.is_line_known)

    def _within(self, outer: StackState, position: int) -> StackState:
        own, lines = self._lines.positions[position], self._lines
        if own.module is not None:  # one that is gone is told by what held its call
            module = lines.modules[own.module] or outer.module
            return replace(outer, module=module, in_module=True)
        if own.function is None:
            return outer
        function = lines.functions[own.function]
        if function.recomputes:
            return replace(outer, recomputes=True)
        if function.is_compiled:
            return outer
        frame = Frame(function.file, own.line, function.name, own.code)
        stack = (*outer.stack, frame) if own.line else outer.stack
        return replace(outer, stack=stack, is_line_known=bool(own.line))
