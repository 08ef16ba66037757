"""Owns what of a rank's device time travels: by line without collectives, and by collective."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.cluster.records import CallKey, CallTimes, LineKey, LineTimes
from profiler_ext.exporters.tables.sites import largest_places
from profiler_ext.records import Analysis, Ints, LaunchKind, Place, RankCollectives


def line_times(analysis: Analysis) -> LineTimes:
    """Return device time by line as ``by_line`` has it, of all launches but collectives.

    Args:
        analysis: what attribution found.
    """
    launches, shares = analysis.launches, analysis.shares
    chosen = ~np.ma.getmaskarray(launches.step) & ~launches.kind.where(LaunchKind.COMMUNICATION)
    known: dict[tuple[object, ...], int] = {}
    names: list[LineKey] = []
    row = np.array([_row(place, known, names) for place in analysis.places], dtype=np.int64)
    of_shares = np.flatnonzero(chosen[shares.launch])
    duration_ns = np.zeros(len(names), dtype=np.int64)
    np.add.at(duration_ns, row[shares.place[of_shares]], shares.duration_ns[of_shares])
    spent = np.flatnonzero(duration_ns)
    return LineTimes(tuple(names[at] for at in spent.tolist()), duration_ns[spent])


def _row(place: Place, known: dict[tuple[object, ...], int], names: list[LineKey]) -> int:
    """Return the row of a place's line; of what tells no rows apart the first is shown."""
    gap = None if place.file is not None else place.gap
    at = known.setdefault((place.file, place.line, gap), len(names))
    if at == len(names):
        names.append((place.file, place.line, place.function, place.code, gap))
    return at


def call_times(analysis: Analysis, collectives: RankCollectives) -> CallTimes:
    """Return device time by collective, process group and line, as ``communication`` has it.

    Args:
        analysis: what attribution found.
        collectives: those that are left together, whose launches shall have their row.
    """
    communication, launches = analysis.communication, analysis.launches
    profiled = np.flatnonzero(~np.ma.getmaskarray(launches.step)[communication.launch])
    places = largest_places(analysis)[communication.launch]
    known: dict[CallKey, int] = {}
    rows = [
        known.setdefault(_key(analysis, at, int(places[at])), len(known))
        for at in profiled.tolist()
    ]
    row = np.array(rows, dtype=np.int64)
    of_launch = np.full(len(launches), NO_ROW, dtype=np.int32)
    of_launch[communication.launch[profiled]] = row
    duration_ns = launches.duration_ns[communication.launch[profiled]]
    return CallTimes(
        keys=tuple(known),
        launches=np.bincount(row, minlength=len(known)).astype(np.int64),
        duration_ns=_sums(row, duration_ns, len(known)),
        exposed_ns=_sums(row, communication.exposed_ns[profiled], len(known)),
        row=of_launch[collectives.launch],
    )


def _key(analysis: Analysis, at: int, place: int) -> CallKey:
    communication, of = analysis.communication, analysis.places[place]
    line = (of.file, of.line, of.function, of.code, of.gap if of.line is None else None)
    return (communication.collective[at] or None, communication.process_group[at] or None, *line)


def _sums(row: Ints, values: Ints, count: int) -> Ints:
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, row, values)
    return sums


def median_step_ns(walls_ns: Sequence[int]) -> int:
    """Return the lower median of some times; 0 where there is none."""
    return sorted(walls_ns)[(len(walls_ns) - 1) // 2] if walls_ns else 0
