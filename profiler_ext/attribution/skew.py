"""Owns who waited for whom: the ranks' starts of each collective, and which one came last.

Every rank stays in an all-reduce from its own start until all have come and the data is there. So
from a rank's own start to the last rank's it waits, and what follows is the transfer. That holds on
clocks laid over each other, and where all ranks of the group are known. A rank that computes while
it waits loses nothing, so the last one is late by the exposed part of the longest such wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.attribution.clocks import Shared, left_together
from profiler_ext.attribution.doing import Windows, length_ns
from profiler_ext.attribution.lateness import Side, Wait, with_reasons
from profiler_ext.attribution.ledger import busy_spans
from profiler_ext.records import Analysis, MaskedInts


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
    meetings.sort(key=lambda meeting: meeting.last_ns)
    reasons = with_reasons(analyses, list(_waits(meetings, analyses, exposed)))
    return tuple(
        replace(_told(analysis, rank, meetings), lateness=reasons[rank])
        for rank, analysis in enumerate(analyses)
    )


@dataclass(frozen=True, slots=True)
class _Meeting:
    """A collective on all ranks of its group.

    Attributes:
        launches: of each rank, by its index, its launches.
        last_ns: when the last rank began, on the wall clock.
        last: the index of that rank.
        waiter: of the others the one that had nothing to run but to wait for longest.
        windows: when it had not.
    """

    launches: Mapping[int, list[int]]
    last_ns: int
    last: int
    waiter: int
    windows: Windows


def _is_whole(of_all: Sequence[tuple[int, Shared]], count: int) -> bool:
    """Tell whether all ranks of a group are there; where its size is not told, all that we have."""
    ranks = of_all[0][1].ranks
    return len(of_all) > 1 and len(of_all) == (count if ranks is None else ranks)


def _meeting(
    of_all: Sequence[tuple[int, Shared]],
    analyses: Sequence[Analysis],
    exposed: Sequence[Mapping[int, Windows]],
) -> _Meeting:
    launches = {rank: shared.launches for rank, shared in of_all}
    starts = {
        rank: min(int(analyses[rank].launches.start_ns[at]) for at in own)
        + analyses[rank].recording.trace.base_ns
        for rank, own in launches.items()
    }
    last = max(starts, key=lambda rank: starts[rank])
    waited = {
        rank: _until(starts[last], [part for at in own for part in exposed[rank].get(at, ())])
        for rank, own in launches.items()
        if rank != last
    }
    waiter = max(waited, key=lambda rank: length_ns(waited[rank]))
    return _Meeting(launches, starts[last], last, waiter, waited[waiter])


def _until(time_ns: int, windows: Windows) -> Windows:
    return [(start, min(end, time_ns)) for start, end in windows if start < time_ns]


def _exposed(analysis: Analysis) -> Mapping[int, Windows]:
    """Return when a device ran each collective and nothing else, on the wall clock."""
    base_ns = analysis.recording.trace.base_ns
    collectives = set(analysis.communication.launch.tolist())
    found = defaultdict[int, list[tuple[int, int]]](list)
    for own in busy_spans(analysis.launches):
        columns = (own.launch, own.start_ns + base_ns, own.end_ns + base_ns)
        for launch, start, end in zip(*(each.tolist() for each in columns), strict=True):
            if launch in collectives and end > start:
                found[launch].append((start, end))
    return found


def _waits(
    meetings: Sequence[_Meeting],
    analyses: Sequence[Analysis],
    exposed: Sequence[Mapping[int, Windows]],
) -> Iterator[Wait]:
    """Yield who waited for whom, in order of time, and since when they were not level."""
    held = [_held_up(meeting, analyses, exposed) for meeting in meetings]
    level = _Level(meetings, held, _begin_ns(analyses))
    for at, meeting in enumerate(meetings):
        if meeting.windows:
            late, waiter = (
                Side(rank, _first(analyses[rank], meeting.launches[rank]))
                for rank in (meeting.last, meeting.waiter)
            )
            yield Wait(late, waiter, meeting.windows, level.before(at))


def _held_up(
    meeting: _Meeting,
    analyses: Sequence[Analysis],
    exposed: Sequence[Mapping[int, Windows]],
) -> Mapping[int, int]:
    """Return when the collective ended on each rank that had nothing else to run until then."""
    found = {}
    for rank, own in meeting.launches.items():
        of_rank = analyses[rank].launches
        ends = of_rank.start_ns[own] + of_rank.duration_ns[own]
        end_ns = int(ends.max()) + analyses[rank].recording.trace.base_ns
        if any(end == end_ns for at in own for _, end in exposed[rank].get(at, ())):
            found[rank] = end_ns
    return found


def _begin_ns(analyses: Sequence[Analysis]) -> int | None:
    """Return when the first step has begun on all ranks."""
    begins = [
        a.steps[0].start_ns + a.recording.trace.base_ns if a.steps else None for a in analyses
    ]
    known = [begin for begin in begins if begin is not None]
    return max(known) if len(known) == len(begins) else None


class _Level:
    """When two ranks were last level: when a collective ended that held both of them up."""

    def __init__(
        self,
        meetings: Sequence[_Meeting],
        held: Sequence[Mapping[int, int]],
        begin_ns: int | None,
    ) -> None:
        self._meetings = meetings
        self._held = held
        self._begin_ns = begin_ns
        self._known: dict[frozenset[int], tuple[int, int | None]] = {}

    def before(self, at: int) -> int | None:
        """Return it for the two of a meeting; meetings are asked for in order."""
        meeting = self._meetings[at]
        pair = frozenset((meeting.last, meeting.waiter))
        since, level_ns = self._known.get(pair, (0, self._begin_ns))
        for held in self._held[since:at]:
            if pair <= held.keys():
                level_ns = max(held[rank] for rank in pair)
        self._known[pair] = at, level_ns
        if level_ns is None or level_ns >= meeting.windows[0][0]:
            return None
        return level_ns


def _first(analysis: Analysis, own: Sequence[int]) -> int:
    """Return the launch that began first."""
    return min(own, key=lambda at: int(analysis.launches.start_ns[at]))


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
            late[row[_first(analysis, meeting.launches[rank])]] = length_ns(meeting.windows)
    return replace(analysis, communication=replace(found, waiting_ns=waiting, late_ns=late))


def _masked(count: int) -> MaskedInts:
    return np.ma.MaskedArray(np.zeros(count, dtype=np.int64), mask=np.ones(count, dtype=np.bool_))
