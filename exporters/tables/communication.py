"""Communication tables: exposed, overlapped and waiting time, and stragglers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from profiler_ext.exporters.tables import schema
from profiler_ext.exporters.tables.selection import Filters, Selection
from profiler_ext.exporters.tables.table import INT, TEXT, AnyColumn, Table, gather, summed
from profiler_ext.records import events, share_sums
from profiler_ext.records.analysis import Analysis, Place

_LINE = ("file", "line", "function", "code", "gap")
_CALLED = ("collective", "process_group")


def communication(analysis: Analysis, **filters: Unpack[Filters]) -> Table:
    """Return device time of collectives by collective, process group and line, longest first.

    ``exposed_ns`` (the device ran nothing else) and ``overlapped_ns`` add up to ``duration_ns``.
    With merged ranks so do ``waiting_ns`` (until the group's last rank came) and ``transfer_ns``.
    """
    selection = Selection(**filters)
    collectives, launches = analysis.communication, analysis.launches
    chosen = selection.profiled(analysis)[collectives.launch]
    if selection.phase is not None:
        chosen &= launches.phase.where(selection.phase)[collectives.launch]
    rows = np.flatnonzero(chosen)
    duration = launches.duration_ns[collectives.launch[rows]]
    exposed, waiting = collectives.exposed_ns[rows], collectives.waiting_ns[rows]
    columns = {
        "collective": _text_column(collectives.collective, rows),
        "process_group": _text_column(collectives.process_group, rows),
        **_lines(analysis.places, share_sums.largest_places(analysis)[collectives.launch[rows]]),
        "launches": schema.whole(rows),
        "duration_ns": schema.whole(duration),
        "exposed_ns": schema.whole(exposed),
        "overlapped_ns": schema.whole(duration - exposed),
        "waiting_ns": schema.whole(waiting),
        "transfer_ns": schema.whole(duration - waiting),
    }
    return _summed(columns, (*_CALLED, *_LINE), selection.count_steps(analysis))


def skew(analysis: Analysis, **filters: Unpack[Filters]) -> Table:
    """Return what made a rank late for collectives that others waited in, longest first.

    An estimate: what the late rank spent more time in than the waiting one since the last
    collective that held both up, scaled to the wait. Empty without merged ranks.

    ``cause`` is why its device was idle (absent where it was busy), ``launches`` the collectives
    that it came last to, ``duration_ns`` the longest wait of another rank that had nothing else to
    run.
    """
    selection = Selection(**filters)
    delay, collectives, launches = analysis.rank_delay, analysis.communication, analysis.launches
    chosen = selection.profiled(analysis)[delay.launch]
    if selection.phase is not None:
        chosen &= launches.phase.where(selection.phase)[delay.launch]
    rows = np.flatnonzero(chosen)
    own = np.searchsorted(collectives.launch, delay.launch[rows])
    columns = {
        "rank": schema.repeated(analysis.recording.settings.rank, len(rows), INT),
        "collective": _text_column(collectives.collective, own),
        "process_group": _text_column(collectives.process_group, own),
        "cause": _text_column(delay.cause, rows),
        **_lines(delay.places, delay.place[rows]),
        "launches": schema.whole(delay.launch[rows]),
        "duration_ns": schema.whole(delay.duration_ns[rows]),
    }
    keys = ("rank", *_CALLED, "cause", *_LINE)
    return _summed(columns, keys, selection.count_steps(analysis)).without("fraction")


def _text_column(column: events.Interned, rows: events.Ints) -> AnyColumn:
    return gather([text or None for text in column.strings], column.codes[rows], TEXT)


def _lines(places: Sequence[Place], rows: events.Ints | events.Codes) -> dict[str, AnyColumn]:
    return {
        name: gather([_of_line(place, name) for place in places], rows, schema.COLUMNS[name].dtype)
        for name in _LINE
    }


def _of_line(place: Place, name: str) -> Any:
    return None if name == "gap" and place.line is not None else getattr(place, name)


def _summed(columns: dict[str, AnyColumn], keys: Sequence[str], steps: int) -> Table:
    """Sum equal rows; ``launches`` counts each launch once."""
    table = schema.frame(columns)
    group, firsts = table.groups(keys)
    size = len(firsts)
    sums = {
        name: table[name].take(firsts) if name in keys else summed(table[name], group, size)
        for name in columns
    }
    sums["launches"] = schema.whole(share_sums.count_distinct(group, table["launches"].data, size))
    time: events.Ints = sums["duration_ns"].data
    sums["fraction"] = schema.ratio(time, int(time.sum()))
    sums["steps"] = schema.repeated(steps, size, INT)
    sums["per_step_ns"] = schema.ratio(time, steps)
    return schema.frame(sums).longest_first(keys)
