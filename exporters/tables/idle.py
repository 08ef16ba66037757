"""Idle time tables: by cause, and by what the CPU was running."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from profiler_ext.exporters.tables import schema
from profiler_ext.exporters.tables.selection import Selection
from profiler_ext.exporters.tables.table import INT, AnyColumn, Table, gather
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Codes, Interned, Ints, first_rows, numbered
from profiler_ext.records.share_sums import codes_of, count_distinct, sum_by

_OF_LINE = ("file", "line", "function", "code", "user_file", "user_line", "module", "module_class")
_BY_LINE = ("file", "line", "user_file", "user_line", "module", "gap")
_BY_CAUSE = ("file", "line", "gap")


def idle_by_line(analysis: Analysis, *, step: int | None = None, rank: int | None = None) -> Table:
    """Return idle time by the CPU's line, longest first.

    The line is that of the thread that runs the steps; within a compiled graph, that of the op that
    waits. Idle time has no phase. ``cpu_activity`` is the innermost CPU event over most of a piece
    of idle time, absent for Python outside of any op. Sums to the idle time of ``coverage``.
    """
    selection = Selection(step, rank)
    selection.require_step(analysis)
    order = ("device", *_OF_LINE, "cause", "cpu_activity", "gap")
    return _Sums(analysis, selection, analysis.idle.place).table(order, _BY_LINE)


def idle_by_cause(analysis: Analysis, *, step: int | None = None, rank: int | None = None) -> Table:
    """Return idle time by cause (see ``docs/idle.md``) and line.

    The line is where the CPU was; after a synchronisation, the call that waited. Sums to the idle
    time of ``coverage``.
    """
    selection = Selection(step, rank)
    selection.require_step(analysis)
    order = ("device", "cause", "file", "line", "function", "code", "gap")
    return _Sums(analysis, selection, analysis.idle.cause_place).table(order, _BY_CAUSE)


class _Sums:
    def __init__(self, analysis: Analysis, selection: Selection, place: Codes) -> None:
        idle = analysis.idle
        chosen = np.full(len(idle), selection.has_rank_of(analysis))
        if selection.step is not None:
            chosen &= idle.step == selection.step
        self._rows = np.flatnonzero(chosen)
        self._idle, self._place = idle, place
        self._steps = selection.count_steps(analysis)

    def table(self, order: Sequence[str], of_place: Sequence[str]) -> Table:
        """Return the sums by device, cause and place."""
        own = tuple(name for name in order if name in ("device", "cause", "cpu_activity"))
        firsts, group = self._groups(own, of_place)
        duration = sum_by(group, self._idle.duration_ns[self._rows], len(firsts))
        named = {name: self._column(name, firsts) for name in order}
        sums = {
            "spans": schema.whole(count_distinct(group, self._idle.span[self._rows], len(firsts))),
            "duration_ns": schema.whole(duration),
            "fraction": schema.ratio(duration, int(duration.sum())),
            "steps": schema.repeated(self._steps, len(firsts), INT),
            "per_step_ns": schema.ratio(duration, self._steps),
        }
        return schema.frame(named | sums).longest_first(order)

    def _groups(self, own: Sequence[str], of_place: Sequence[str]) -> tuple[Ints, Ints]:
        """Return the first piece of each table row, and each chosen piece's row."""
        places, _ = codes_of(map(attrgetter(*of_place), self._idle.places))
        columns = [places[self._place[self._rows]]]
        columns += [self._codes(name)[self._rows] for name in own]
        group = numbered(columns)
        return self._rows[first_rows(group)], group

    def _codes(self, name: str) -> Ints:
        if name == "device":
            return self._idle.device
        column: Interned = getattr(self._idle, name)
        return column.codes.astype(np.int64)

    def _column(self, name: str, rows: Ints) -> AnyColumn:
        idle, dtype = self._idle, schema.COLUMNS[name].dtype
        if name == "device":
            return schema.whole(idle.device[rows])
        if name in ("cause", "cpu_activity"):
            column = getattr(idle, name)
            return gather([text or None for text in column.strings], column.codes[rows], dtype)
        return gather([getattr(place, name) for place in idle.places], self._place[rows], dtype)
