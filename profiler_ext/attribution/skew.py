"""Owns who waited for whom: the ranks' starts of each collective, and what the last one did.

Every rank stays in an all-reduce from its own start until all have come and the data is there. So
from a rank's own start to the last rank's it waits, and what follows is the transfer. That holds on
clocks laid over each other, and where all ranks of the group are known.
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
    Communication,
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
    meetings = [_meeting(of_all, analyses) for of_all in whole]
    return tuple(_told(analysis, rank, meetings) for rank, analysis in enumerate(analyses))


@dataclass(frozen=True, slots=True)
class _Meeting:
    """A collective on all ranks of its group.

    Attributes:
        launches: of each rank, by its index, its launches.
        first_ns: when the first rank began, on the wall clock.
        last_ns: when the last one did.
        last: the index of that rank.
    """

    launches: Mapping[int, list[int]]
    first_ns: int
    last_ns: int
    last: int


def _is_whole(of_all: Sequence[tuple[int, Shared]], count: int) -> bool:
    """Tell whether all ranks of a group are there; where its size is not told, all that we have."""
    ranks = of_all[0][1].ranks
    return len(of_all) > 1 and len(of_all) == (count if ranks is None else ranks)


def _meeting(of_all: Sequence[tuple[int, Shared]], analyses: Sequence[Analysis]) -> _Meeting:
    starts = {
        rank: min(int(analyses[rank].launches.start_ns[at]) for at in shared.launches)
        + analyses[rank].recording.trace.base_ns
        for rank, shared in of_all
    }
    last = max(starts, key=lambda rank: starts[rank])
    launches = {rank: shared.launches for rank, shared in of_all}
    return _Meeting(launches, min(starts.values()), starts[last], last)


def _told(analysis: Analysis, rank: int, meetings: Sequence[_Meeting]) -> Analysis:
    found, launches = analysis.communication, analysis.launches
    base_ns = analysis.recording.trace.base_ns
    waiting, late = _masked(len(found)), _masked(len(found))
    row = {launch: at for at, launch in enumerate(found.launch.tolist())}
    for meeting in meetings:
        for launch in meeting.launches.get(rank, ()):
            wait_ns = meeting.last_ns - base_ns - int(launches.start_ns[launch])
            waiting[row[launch]] = min(max(wait_ns, 0), int(launches.duration_ns[launch]))
            late[row[launch]] = 0
        if meeting.last == rank:
            first = min(meeting.launches[rank], key=lambda at: int(launches.start_ns[at]))
            late[row[first]] = meeting.last_ns - meeting.first_ns
    told = replace(found, waiting_ns=waiting, late_ns=late)
    return replace(analysis, communication=told, lateness=_lateness(analysis, told))


def _masked(count: int) -> MaskedInts:
    return np.ma.MaskedArray(np.zeros(count, dtype=np.int64), mask=np.ones(count, dtype=np.bool_))


def _lateness(analysis: Analysis, told: Communication) -> Lateness:
    """Return what a rank's device did while others waited for it."""
    late_ns = told.late_ns.filled(0)
    late = np.flatnonzero(late_ns)
    launch = told.launch[late]
    until = analysis.launches.start_ns[launch]
    device = analysis.launches.device[launch]
    parts = [_of_device(analysis, own) for own in np.unique(device).tolist()]
    places = (*analysis.places, *analysis.idle.places, Place())
    # The last two are meant by their number from the end.
    words = (*analysis.idle.cause.strings, IdleCause.OUTSIDE_STEPS.value, "")
    columns: list[list[Ints]] = [[], [], [], []]
    for own, doing in zip(np.unique(device).tolist(), parts, strict=True):
        rows = np.flatnonzero(device == own)
        cuts = cut_at(doing.times_ns, (until - late_ns[late])[rows], until[rows])
        found = (launch[rows][cuts.span], *(column[cuts.segment] for column in doing.columns))
        for column, values in zip(columns, (*found, cuts.duration_ns), strict=True):
            column.append(values)
    whose, cause, place, duration_ns = map(_joined, columns)
    return Lateness(
        launch=whose,
        cause=intern([words[at] for at in cause.tolist()]),
        place=place.astype(np.int32),
        duration_ns=duration_ns,
        places=places,
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
