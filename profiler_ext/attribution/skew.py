"""Owns who waited for whom: the ranks' starts of each collective, and what the last one did.

Every rank stays in an all-reduce from its own start until all have come and the data is there. So
from a rank's own start to the last rank's it waits, and what follows is the transfer. That holds on
clocks laid over each other, and where all ranks of the group are known. A rank that computes while
it waits loses nothing, so the last one is late by the exposed part of the longest such wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.attribution.clocks import Shared, left_together
from profiler_ext.attribution.ledger import busy_spans
from profiler_ext.attribution.trace.cutting import cut_at
from profiler_ext.attribution.trace.lookups import intern
from profiler_ext.records import (
    Analysis,
    IdleCause,
    Ints,
    Lateness,
    MaskedInts,
    Place,
)

_OUTSIDE, _RUNNING = -2, -1


def with_skew(analyses: Sequence[Analysis]) -> tuple[Analysis, ...]:
    """Return the analyses with who waited for whom in each collective.

    Args:
        analyses: one for each rank, on clocks laid over each other.

    Returns:
        As many; of collectives of which not all ranks are there, nothing is known.
    """
    known: dict[Hashable, list[tuple[int, Shared]]] = defaultdict(list)
    for rank, analysis in enumerate(analyses):
        for each, shared in left_together(analysis).items():
            known[each].append((rank, shared))
    whole = [of_all for of_all in known.values() if _is_whole(of_all, len(analyses))]
    exposed = [_exposed(analysis) for analysis in analyses]
    meetings = [_meeting(of_all, analyses, exposed) for of_all in whole]
    return tuple(_told(analysis, rank, meetings) for rank, analysis in enumerate(analyses))


_Windows = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Meeting:
    """A collective on all ranks of its group.

    Attributes:
        launches: of each rank, by its index, its launches.
        last_ns: when the last rank began, on the wall clock.
        last: the index of that rank.
        windows: when another rank had nothing to run but to wait, the one that waited longest so.
    """

    launches: Mapping[int, list[int]]
    last_ns: int
    last: int
    windows: _Windows


def _is_whole(of_all: Sequence[tuple[int, Shared]], count: int) -> bool:
    """Tell whether all ranks of a group are there; where its size is not told, all that we have."""
    ranks = of_all[0][1].ranks
    return len(of_all) > 1 and len(of_all) == (count if ranks is None else ranks)


def _meeting(
    of_all: Sequence[tuple[int, Shared]],
    analyses: Sequence[Analysis],
    exposed: Sequence[Mapping[int, _Windows]],
) -> _Meeting:
    launches = {rank: shared.launches for rank, shared in of_all}
    starts = {
        rank: min(int(analyses[rank].launches.start_ns[at]) for at in own)
        + analyses[rank].recording.trace.base_ns
        for rank, own in launches.items()
    }
    last = max(starts, key=lambda rank: starts[rank])
    waited = [
        _until(starts[last], [part for at in own for part in exposed[rank].get(at, ())])
        for rank, own in launches.items()
        if rank != last
    ]
    longest = max(waited, key=lambda windows: sum(end - start for start, end in windows))
    return _Meeting(launches, starts[last], last, longest)


def _until(time_ns: int, windows: _Windows) -> _Windows:
    return [(start, min(end, time_ns)) for start, end in windows if start < time_ns]


def _exposed(analysis: Analysis) -> Mapping[int, _Windows]:
    """Return when a device ran each collective and nothing else, on the wall clock."""
    base_ns = analysis.recording.trace.base_ns
    collectives = set(analysis.communication.launch.tolist())
    found = defaultdict[int, _Windows](list)
    for own in busy_spans(analysis.launches):
        columns = (own.launch, own.start_ns + base_ns, own.end_ns + base_ns)
        for launch, start, end in zip(*(each.tolist() for each in columns), strict=True):
            if launch in collectives and end > start:
                found[launch].append((start, end))
    return found


def _told(analysis: Analysis, rank: int, meetings: Sequence[_Meeting]) -> Analysis:
    found, launches = analysis.communication, analysis.launches
    base_ns = analysis.recording.trace.base_ns
    waiting, late = _masked(len(found)), _masked(len(found))
    row = {launch: at for at, launch in enumerate(found.launch.tolist())}
    windows: list[tuple[int, int, int]] = []
    for meeting in meetings:
        for launch in meeting.launches.get(rank, ()):
            wait_ns = meeting.last_ns - base_ns - int(launches.start_ns[launch])
            waiting[row[launch]] = min(max(wait_ns, 0), int(launches.duration_ns[launch]))
            late[row[launch]] = 0
        if meeting.last == rank:
            first = min(meeting.launches[rank], key=lambda at: int(launches.start_ns[at]))
            late[row[first]] = sum(end - start for start, end in meeting.windows)
            windows += [(first, start - base_ns, end - base_ns) for start, end in meeting.windows]
    told = replace(found, waiting_ns=waiting, late_ns=late)
    return replace(analysis, communication=told, lateness=_lateness(analysis, windows))


def _masked(count: int) -> MaskedInts:
    return np.ma.MaskedArray(np.zeros(count, dtype=np.int64), mask=np.ones(count, dtype=np.bool_))


def _lateness(analysis: Analysis, windows: Sequence[tuple[int, int, int]]) -> Lateness:
    """Return what a rank's device did while another had nothing to run but to wait for it."""
    launch, start_ns, end_ns = np.array(windows, dtype=np.int64).reshape(-1, 3).T
    device = analysis.launches.device[launch]
    # The last two are meant by their number from the end.
    words = (*analysis.idle.cause.strings, IdleCause.OUTSIDE_STEPS.value, "")
    columns: list[list[Ints]] = [[], [], [], []]
    for own in np.unique(device).tolist():
        rows, doing = np.flatnonzero(device == own), _of_device(analysis, own)
        cuts = cut_at(doing.times_ns, start_ns[rows], end_ns[rows])
        found = (launch[rows][cuts.span], *(column[cuts.segment] for column in doing.columns))
        for column, values in zip(columns, (*found, cuts.duration_ns), strict=True):
            column.append(values)
    whose, cause, place, duration_ns = map(_joined, columns)
    return Lateness(
        launch=whose,
        cause=intern([words[at] for at in cause.tolist()]),
        place=place.astype(np.int32),
        duration_ns=duration_ns,
        places=(*analysis.places, *analysis.idle.places, Place()),
    )


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts]).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Doing:
    """What a device did: until the first of the times, and from each one on.

    Attributes:
        times_ns: when that changes.
        columns: the cause of idle time and the index of the place, one more than there are times.
    """

    times_ns: Ints
    columns: tuple[Ints, Ints]


def _of_device(analysis: Analysis, device: int) -> _Doing:
    (busy,) = (each for each in busy_spans(analysis.launches) if each.device == device)
    shown = np.flatnonzero(busy.end_ns > busy.start_ns)
    idle = analysis.idle
    own = np.flatnonzero(idle.device == device)
    starts = np.append(busy.start_ns[shown], idle.start_ns[own])
    ends = np.append(busy.end_ns[shown], (idle.start_ns + idle.duration_ns)[own])
    cause = np.append(np.full(len(shown), _RUNNING), idle.cause.codes[own])
    place = np.append(_main_places(analysis)[busy.launch[shown]], _of_idle(analysis)[own])
    order = np.argsort(starts, kind="stable")
    return _with_gaps(starts[order], ends[order], cause[order], place[order], _nowhere(analysis))


def _with_gaps(starts: Ints, ends: Ints, cause: Ints, place: Ints, nowhere: int) -> _Doing:
    """Lay out spans that do not overlap; between them nothing is known."""
    times = np.stack([starts, ends], axis=1).reshape(-1)
    causes = np.stack([cause, np.full(len(cause), _OUTSIDE)], axis=1).reshape(-1)
    places = np.stack([place, np.full(len(place), nowhere)], axis=1).reshape(-1)
    lasts = np.append(times[1:] > times[:-1], True)[: len(times)]
    return _Doing(
        times[lasts],
        (np.append(_OUTSIDE, causes[lasts]), np.append(nowhere, places[lasts])),
    )


def _main_places(analysis: Analysis) -> Ints:
    """Return the place of the largest share of each launch."""
    shares = analysis.shares
    order = np.lexsort((-shares.duration_ns, shares.launch))
    firsts = np.searchsorted(shares.launch[order], np.arange(len(analysis.launches)))
    return shares.place[order][firsts].astype(np.int64)


def _of_idle(analysis: Analysis) -> Ints:
    return analysis.idle.cause_place.astype(np.int64) + len(analysis.places)


def _nowhere(analysis: Analysis) -> int:
    return len(analysis.places) + len(analysis.idle.places)
