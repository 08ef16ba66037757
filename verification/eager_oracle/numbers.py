"""The numbers in a trace: those of the ops' recorded input shapes, and of a source's lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from profiler_ext.kineto.raw_events import event_arguments
from profiler_ext.records.events import Trace
from verification.eager_oracle.draft import MARK, PASSES

_ENGINE = "autograd::engine::evaluate_function: "
_DISPATCHED = "::"
_MARKED = re.compile(rf"{re.escape(MARK)} (\d+) (\d+)")


@dataclass(slots=True)
class NumberedLines:
    """The lines of a program by their numbers.

    Attributes:
        made: the line whose results have a number.
        meanwhile: the line that has a number only meanwhile.
        passing: by op, the lines that have it done to values that they pass on.
    """

    made: dict[int, int] = field(default_factory=dict)
    meanwhile: dict[int, int] = field(default_factory=dict)
    passing: dict[str, set[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> NumberedLines:
        """Read the marks of a source."""
        lines = cls()
        for line, code in enumerate(text.splitlines(), 1):
            for made, own in _MARKED.findall(code):
                lines.made[int(made)] = lines.meanwhile[int(own)] = line
            for op in code.partition(PASSES)[2].split():
                lines.passing.setdefault(op, set()).add(line)
        return lines


class Ops:
    """The ops of a trace, each within others, and the numbers in their shapes."""

    def __init__(self, trace: Trace, numbers: frozenset[int]) -> None:
        self._trace, self._numbers = trace, numbers
        self._parent = _parents(trace)
        self._known: dict[int, frozenset[int]] = {}

    def name(self, row: int) -> str:
        """Return the name of an event."""
        return self._trace.events.name[row]

    def telling(self, row: int) -> tuple[int, frozenset[int]]:
        """Return the innermost op around a launch, itself included, that has numbers; and them."""
        first = row
        while row >= 0 and _DISPATCHED in self.name(row) and not self.name(row).startswith(_ENGINE):
            if found := self._of(row):
                return row, found
            row = self._parent.get(row, -1)
        return first, frozenset()

    def engine(self, row: int) -> int | None:
        """Return the engine's event that an op runs in."""
        return next((at for at in self.around(row) if self.name(at).startswith(_ENGINE)), None)

    def around(self, row: int) -> Iterator[int]:
        """Yield what an event stands in, from within."""
        while (row := self._parent.get(row, -1)) >= 0:
            yield row

    def _of(self, row: int) -> frozenset[int]:
        if row not in self._known:
            raw = self._trace.raw[int(self._trace.events.position[row])]
            shapes = event_arguments(raw).get("Input Dims", [])
            found = (n for size in _sizes(shapes) for n in self._numbers if size % n == 0)
            self._known[row] = frozenset(found)
        return self._known[row]


def _sizes(shapes: Any) -> set[int]:
    if isinstance(shapes, int):
        return {shapes} - {0}
    return {size for each in shapes for size in _sizes(each)} if isinstance(shapes, list) else set()


def _parents(trace: Trace) -> dict[int, int]:
    """Return in which CPU event of its thread each stands; -1 in none."""
    events = trace.events
    rows = [
        r for r in range(len(events.name)) if events.category[r] in ("cpu_op", "user_annotation")
    ]
    rows.sort(
        key=lambda r: (int(events.thread[r]), int(events.start_ns[r]), -int(events.end_ns[r]))
    )
    parents: dict[int, int] = {}
    around: list[int] = []
    for row in rows:
        while around and not _holds(trace, around[-1], row):
            around.pop()
        parents[row] = around[-1] if around else -1
        around.append(row)
    return parents


def _holds(trace: Trace, outer: int, inner: int) -> bool:
    events = trace.events
    is_same = events.thread[outer] == events.thread[inner]
    return bool(is_same and events.end_ns[outer] >= events.end_ns[inner])
