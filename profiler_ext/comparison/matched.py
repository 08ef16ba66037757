"""Two sides with everything matched, and numbered so that matches have equal numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiler_ext.comparison import matching, source_matching
from profiler_ext.comparison.records import Account, Subject
from profiler_ext.comparison.sides import Side
from profiler_ext.records import events, lineage, provenance

NO_WORK = -1


@dataclass(frozen=True, repr=False)
class Matched:
    """The base, the head, and what matches of the two."""

    base: Side
    head: Side

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both sides."""
        return self.base, self.head

    @cached_property
    def lines(self) -> matching.Pairs[source_matching.Line]:
        """Lines by file and number."""
        return source_matching.match_lines(self.base.lines, self.head.lines, self._cells)

    @property
    def _cells(self) -> source_matching.Cells:
        return self.base.cells, self.head.cells

    @cached_property
    def functions(self) -> matching.Pairs[source_matching.Function]:
        """Functions that were compiled."""
        old, new = (
            [name for each in side.compiles.subjects if (name := function_of(each)) is not None]
            for side in self.sides
        )
        # The lines at which compiled functions begin need not be among a side's lines.
        base, head = (
            {name[:2]: lineage.Frame(*name[:2], "") for name in names} | dict(side.lines)
            for names, side in zip((old, new), self.sides, strict=True)
        )
        return source_matching.match_functions(
            old, new, source_matching.match_files(base, head, self._cells)
        )

    @cached_property
    def ops(self) -> matching.Pairs[str]:
        """ATen ops."""
        old, new = ([s.aten_op for s in side.parts.subjects if s.aten_op] for side in self.sides)
        return matching.match_ops(old, new)

    @cached_property
    def modules(self) -> matching.Pairs[str]:
        """Modules by path."""
        contents: list[dict[str, set[Hashable]]] = [{}, {}]
        for result, side, work in zip(contents, self.sides, self.work, strict=True):
            for each, number in zip(side.parts.subjects, work.tolist(), strict=True):
                if each.module is not None:
                    result.setdefault(each.module, set()).add(number)
        old, new = ({path: frozenset(of) for path, of in each.items()} for each in contents)
        return matching.match_modules(old, new)

    @cached_property
    def layers(self) -> matching.Pairs[str]:
        """Modules by path, with numbers as ``*``."""
        old, new = (
            [s.module for s in side.parts.subjects if s.module is not None] for side in self.sides
        )
        return matching.match_layers(self.modules, old, new)

    @cached_property
    def kernels(self) -> matching.Pairs[matching.Kernel]:
        """Kernels by name and kind."""
        contents: list[dict[matching.Kernel, set[int]]] = [{}, {}]
        for result, side, work in zip(contents, self.sides, self.work, strict=True):
            for each, number in zip(side.parts.subjects, work.tolist(), strict=True):
                if each.account == Account.DEVICE:
                    own = result.setdefault((each.kernel, each.kind), set())
                    own |= {number} - {NO_WORK}
        old, new = ({name: frozenset(of) for name, of in each.items()} for each in contents)
        return matching.match_kernels(old, new)

    @cached_property
    def work(self) -> tuple[events.Ints, events.Ints]:
        """For each subject of a side's parts, the number of its op, line and phase together."""
        known: dict[Hashable, int] = {}
        result = []
        lines = self.lines.numbers(self.base.lines, self.head.lines)
        for side, line_of in zip(self.sides, (lines.base, lines.head), strict=True):
            numbers = [
                known.setdefault(
                    (_number(line_of, each), matching.op_name(each.aten_op or ""), each.phase),
                    len(known),
                )
                if _computes(each)
                else NO_WORK
                for each in side.parts.subjects
            ]
            result.append(np.array(numbers, np.int64))
        return result[0], result[1]


def _number(line_of: Mapping[source_matching.Line, int], subject: Subject) -> int | None:
    line = line_at(subject)
    return None if line is None else line_of[line]


def _computes(subject: Subject) -> bool:
    """Return whether a part is of an op that computes something; views do not."""
    op = subject.aten_op
    is_known = subject.account == Account.DEVICE and bool(op or subject.file)
    return is_known and not (op and provenance.is_view_op(f"aten.{matching.op_name(op)}"))


def function_of(subject: Subject) -> source_matching.Function | None:
    """Return the function of a subject of compile time."""
    line = line_at(subject)
    return None if line is None else (*line, subject.function or "")


def line_at(subject: Subject) -> source_matching.Line | None:
    """Return the line of a subject."""
    return None if subject.file is None or subject.line is None else (subject.file, subject.line)
