"""Owns how long was waited at least in the steps of a job, and where that is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.meetings import Waited
from profiler_ext.cluster.records import CallTimes, FileGap, RankGap, RankSummary
from profiler_ext.kineto.collectives import may_synchronize
from profiler_ext.records import Ints

CollectiveKey = tuple[str | None, str | None]
"""Collective and process group."""


@dataclass(frozen=True, slots=True)
class WaitBounds:
    """How the launches of one collective in one process group waited, in the steps of all ranks.

    Attributes:
        least_ns: how long at least.
        rest_ns: the rest of their time, which is transfer and what was waited beyond that.
        incomplete: how many launches of them are those of which not every rank is there.
        launches: how many there are of which it is told what collective each is.
        unmatched: how many more there are, which may wait for other ranks too.
    """

    least_ns: int
    rest_ns: int
    incomplete: int
    launches: int
    unmatched: int

    @property
    def is_known(self) -> bool:
        """Whether something is known of the waiting, or there was nothing to wait for."""
        return self.launches > 0 or not self.unmatched

    @property
    def is_whole(self) -> bool:
        """Whether all of the waiting is known."""
        return not self.incomplete and not self.unmatched

    def __add__(self, other: WaitBounds) -> WaitBounds:
        """Return the two together."""
        return WaitBounds(
            self.least_ns + other.least_ns,
            self.rest_ns + other.rest_ns,
            self.incomplete + other.incomplete,
            self.launches + other.launches,
            self.unmatched + other.unmatched,
        )


def wait_bounds(parts: Sequence[RankSummary], waited: Sequence[Waited]) -> dict[CollectiveKey, WaitBounds]:
    """Return how long was waited at least, by collective and process group.

    Args:
        parts: of each rank.
        waited: how its collectives waited.
    """
    result: dict[CollectiveKey, WaitBounds] = {}
    for part, own in zip(parts, waited, strict=True):
        for called, least in _of_rank(part, own):
            result[called] = result[called] + least if called in result else least
    return result


def rank_wait_bounds(part: RankSummary, waited: Waited) -> WaitBounds:
    """Return how long a rank waited at least, in all its steps.

    Args:
        part: of the rank.
        waited: how its collectives waited.
    """
    return sum((least for _, least in _of_rank(part, waited)), WaitBounds(0, 0, 0, 0, 0))


def _of_rank(part: RankSummary, waited: Waited) -> list[tuple[CollectiveKey, WaitBounds]]:
    calls, count = part.calls, len(part.calls.keys)
    is_counted = calls.row >= 0
    row = calls.row[is_counted]

    def summed(values: Ints) -> list[int]:
        sums = np.zeros(count, dtype=np.int64)
        np.add.at(sums, row, values[is_counted])
        return [int(each) for each in sums]

    duration_ns = part.collectives.launch_duration_ns
    is_open = np.ma.getmaskarray(waited.waiting_ns)
    launches = summed(np.ones(len(is_counted), dtype=np.int64))
    columns = (
        summed(waited.least_ns),
        summed(duration_ns - waited.least_ns),
        summed(is_open.astype(np.int64)),
        launches,
        _unmatched(calls, launches),
    )
    rows = zip(calls.keys, *columns, strict=True)
    return [((key[0], key[1]), WaitBounds(*own)) for key, *own in rows if own[-1] or own[-2]]


def _unmatched(calls: CallTimes, matched: Sequence[int]) -> list[int]:
    """Return how many launches of each call may wait, and nothing tells which collective it is."""
    return [
        launches - known if may_synchronize(key[0] or "") else 0
        for key, launches, known in zip(calls.keys, calls.launches.tolist(), matched, strict=True)
    ]


def matching_gaps(least: Mapping[CollectiveKey, WaitBounds]) -> list[RankGap]:
    """Return what is not known of some collectives; nothing where all is.

    Args:
        least: by collective and process group how long at least was waited.
    """
    return [*_incomplete(least), *_of_unmatched(least)]


def _of_unmatched(least: Mapping[CollectiveKey, WaitBounds]) -> list[RankGap]:
    unmatched = sum(each.unmatched for each in least.values())
    if not unmatched:
        return []
    launches = sum(each.launches for each in least.values()) + unmatched
    result = (
        f"of {unmatched:,} of {launches:,} launches no trace tells which collective of its process "
        "group each is, by its number or by the order of all in a step: nobody's waiting in them "
        "is known"
    )
    return [RankGap(FileGap.NOT_MATCHED, None, "", "", result)]


def _incomplete(least: Mapping[CollectiveKey, WaitBounds]) -> list[RankGap]:
    incomplete = sum(each.incomplete for each in least.values())
    if not incomplete:
        return []
    groups = len({group for (_, group), each in least.items() if each.incomplete})
    launches = sum(each.launches for each in least.values())
    result = (
        f"in {incomplete:,} of {launches:,} launches, of {groups:,} process "
        f"group{'s' if groups > 1 else ''}, a rank is missing that may have come last: their "
        "waiting is told as at least"
    )
    return [RankGap(FileGap.GROUP_NOT_WHOLE, None, "", "", result)]
