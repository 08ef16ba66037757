"""Aligns the clocks of several ranks by the ends of the collectives that they share.

No rank can leave an all-reduce before every rank has come, so two traces' ends of one collective
are the same moment. Without shared collectives the wall clocks are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from profiler_ext.attribution.collectives import ends_ns, shared_ids
from profiler_ext.records.analysis import Analysis, RankCollectives

_BASE_KEY = "baseTimeNanoseconds"


@dataclass(frozen=True, slots=True)
class Clock:
    """How one rank's clock was aligned."""

    rank: int
    shift_ns: int  # what is added to its wall clock
    collectives: int  # number of collectives used; 0 for the plain wall clock


def align_clocks(ranks: Sequence[RankCollectives]) -> tuple[Clock, ...]:
    """Find what to add to the clock of each rank."""
    if not ranks:
        return ()
    shared_ends = _SharedEnds(ranks)
    clocks = {0: Clock(ranks[0].rank, 0, 0)}
    shared_ends.add(0, 0)
    while (best_rank := shared_ends.most_shared()) is not None:
        shared = shared_ends.differences(best_rank)
        clocks[best_rank] = Clock(ranks[best_rank].rank, round(median(shared)), len(shared))
        shared_ends.add(best_rank, clocks[best_rank].shift_ns)
    return tuple(clocks.get(at, Clock(each.rank, 0, 0)) for at, each in enumerate(ranks))


def with_clock_shift(analysis: Analysis, shift_ns: int) -> Analysis:
    """Return the analysis of a rank whose clock is moved."""
    if not shift_ns:
        return analysis
    trace = analysis.recording.trace
    base_ns = trace.base_ns + shift_ns
    header = tuple((k, v) for k, v in trace.header if k != _BASE_KEY)
    moved = replace(trace, base_ns=base_ns, header=(*header, (_BASE_KEY, str(base_ns).encode())))
    return replace(analysis, recording=replace(analysis.recording, trace=moved))


class _SharedEnds:
    """Ends of collectives on an aligned clock, and the number that each other rank shares."""

    # Counted as collectives become known, so all ranks take time in proportion to their
    # collectives.

    def __init__(self, ranks: Sequence[RankCollectives]) -> None:
        self._numbers = shared_ids(ranks)
        self._ends_ns = [ends_ns(each) for each in ranks]
        count = max((int(own.max()) + 1 for own in self._numbers if len(own)), default=0)
        self._end_ns = np.zeros(count, dtype=np.int64)
        self._is_known = np.zeros(count, dtype=np.bool_)
        every = np.concatenate(self._numbers)
        of_rank = np.repeat(np.arange(len(ranks)), [len(own) for own in self._numbers])
        order = np.argsort(every, kind="stable")
        self._ranks_of = of_rank[order]
        self._begins = np.searchsorted(every[order], np.arange(count + 1))
        self._shared = np.zeros(len(ranks), dtype=np.int64)
        self._is_set = np.zeros(len(ranks), dtype=np.bool_)

    def most_shared(self) -> int | None:
        """Return the rank that shares most collectives with the aligned ones."""
        counts = np.where(self._is_set, 0, self._shared)
        best = int(counts.argmax())
        return best if counts[best] else None

    def differences(self, rank: int) -> list[int]:
        """Return how far a rank's clock is behind, by each known collective."""
        numbers = self._numbers[rank]
        known = self._is_known[numbers]
        differences: list[int] = (
            self._end_ns[numbers[known]] - self._ends_ns[rank][known]
        ).tolist()
        return differences

    def add(self, rank: int, shift_ns: int) -> None:
        """Note the ends of a rank's collectives that are not known yet."""
        numbers = self._numbers[rank]
        new = ~self._is_known[numbers]
        self._end_ns[numbers[new]] = self._ends_ns[rank][new] + shift_ns
        self._is_known[numbers[new]] = True
        self._is_set[rank] = True
        for number in numbers[new].tolist():
            rank_indices = self._ranks_of[self._begins[number] : self._begins[number + 1]]
            self._shared[rank_indices] += 1
