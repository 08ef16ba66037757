"""The collectives of all ranks, matched: which rank came last, who waited and for how long.

From a rank's own start to the last rank's it waits, and what follows is the transfer. Clocks must
be aligned. Where a rank of the group is missing, it may have come last: waits are then lower
bounds, and no rank is late. A rank that computes while it waits loses nothing, so the last one is
late by the exposed part of the longest such wait.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from profiler_ext.attribution import collectives, straggler_causes
from profiler_ext.records.analysis import Analysis, RankCollectives
from profiler_ext.records.events import Codes, Ints, MaskedInts


@dataclass(frozen=True, slots=True)
class Waited:
    """The waits of a rank's launches of collectives; masked where not all ranks are known."""

    # From its own start to the last rank's, at most its duration; one a launch of
    # :class:`RankCollectives`
    waiting_ns: MaskedInts
    # How long another rank had nothing to run but the wait for this one, the last
    late_ns: MaskedInts
    least_ns: Ints  # lower bound of ``waiting_ns``, by the known ranks


class MatchedCollectives:
    """The collectives of which several ranks of the group are known, in order of time."""

    def __init__(self, ranks: Sequence[RankCollectives], world_size: int = 0) -> None:
        # world_size: number of ranks, if known; the size of a group without its own
        self._ranks = ranks
        sizes = [len(each) for each in ranks]
        self._offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._rank = np.repeat(np.arange(len(ranks)), sizes)
        self._lay_out(_concatenated(collectives.shared_ids(ranks)), max(world_size, len(ranks)))
        self._find_waits()

    def waited(self, rank: int) -> Waited:
        """Return how the launches of a rank waited."""
        own = self._ranks[rank]
        row = own.launch_collective + self._offsets[rank]
        match = self._match[row]
        is_matched = match >= 0
        waiting = self._last_ns[match] - own.launch_start_ns if len(self._last_ns) else row * 0
        least = np.where(is_matched, np.minimum(np.maximum(waiting, 0), own.launch_duration_ns), 0)
        is_unknown = ~self._is_complete[row]
        late = np.zeros(len(row), dtype=np.int64)
        lasts = np.flatnonzero(self._rank[self._last] == rank)
        late[self._firsts[rank][self._last[lasts] - self._offsets[rank]]] = self._late_ns[lasts]
        return Waited(
            np.ma.MaskedArray(np.where(is_unknown, 0, least), mask=is_unknown),
            np.ma.MaskedArray(late, mask=is_unknown),
            least,
        )

    def waits(self) -> Iterator[straggler_causes.Wait]:
        """Yield who waited for whom, in order of time, and since when they were not level."""
        last_sync = _LastSync(self._blocking(), self._begin_ns())
        for at, (last, waiter) in enumerate(
            zip(self._last.tolist(), self._waiter.tolist(), strict=True)
        ):
            if self._late_ns[at]:
                windows = self._windows(waiter, int(self._last_ns[at]))
                late, waits = self._side(last), self._side(waiter)
                since_ns = last_sync.before(at, late.rank, waits.rank, windows[0][0])
                yield straggler_causes.Wait(late, waits, windows, since_ns)

    def delay_ns(self) -> Ints:
        """Return for each rank how much later it came than the median rank, in all."""
        # A delay counts once: a rank is level again when a collective that blocked it ends;
        # otherwise it comes as late to the next one without a further delay.
        delay_ns = np.zeros(len(self._match), dtype=np.int64)
        for own in self._rows:
            starts = self._start_ns[own]
            delay_ns[own] = starts - _lower_median(starts)
        begins = [each.begin_ns for each in self._ranks if each.begin_ns is not None]
        median_begin_ns = _lower_median(np.array(begins, dtype=np.int64)) if begins else 0
        result = np.zeros(len(self._ranks), dtype=np.int64)
        for rank, (each, (blocking, _)) in enumerate(
            zip(self._ranks, self._blocking(), strict=True)
        ):
            previous_ns = max((each.begin_ns or median_begin_ns) - median_begin_ns, 0)
            is_blocking = set(blocking)
            for row in self._in_time_order(rank):
                late_ns = max(int(delay_ns[row]), 0)
                result[rank] += max(late_ns - previous_ns, 0)
                previous_ns = 0 if int(self._match[row]) in is_blocking else late_ns
        return result

    def have_matches(self) -> npt.NDArray[np.bool_]:
        """Return for each rank whether another rank has one of its collectives."""
        ranks = range(len(self._ranks))
        return np.array([bool(len(self._in_time_order(rank))) for rank in ranks], np.bool_)

    def longest_wait_on(self, rank: int) -> straggler_causes.Wait | None:
        """Return the longest wait of a median rank for one; ``None`` for none."""
        matched = self._in_time_order(rank)
        waits = [
            (int(self._start_ns[row]), self._median_row(int(row)), int(row)) for row in matched
        ]
        lengths = [start_ns - int(self._start_ns[median]) for start_ns, median, _ in waits]
        if not lengths or max(lengths) <= 0:
            return None
        start_ns, median, row = waits[lengths.index(max(lengths))]
        windows = [(int(self._start_ns[median]), start_ns)]
        late, waiter = self._side(row), self._side(median)
        last_sync = _LastSync(self._blocking(), self._begin_ns())
        since_ns = last_sync.before(int(self._match[row]), late.rank, waiter.rank, windows[0][0])
        return straggler_causes.Wait(late, waiter, windows, since_ns)

    def _median_row(self, row: int) -> int:
        own = self._rows[int(self._match[row])]
        return int(own[np.argsort(self._start_ns[own], kind="stable")[(len(own) - 1) // 2]])

    def lasts(self) -> Iterator[tuple[int, int]]:
        """Yield each last rank and its collective's row, where all ranks are known."""
        for row in self._last[self._is_complete[self._last]].tolist():
            rank = int(self._rank[row])
            yield rank, row - int(self._offsets[rank])

    def residuals_ns(self, rank: int) -> Ints:
        """Return how far the ends of a rank's collectives are from the median rank's."""
        mine = self._in_time_order(rank)
        return self._ends_ns[mine] - self._median_end_ns[self._match[mine]]

    def _in_time_order(self, rank: int) -> Ints:
        rows = np.arange(self._offsets[rank], self._offsets[rank + 1])
        matched = rows[self._match[rows] >= 0]
        return matched[np.argsort(self._match[matched], kind="stable")]

    def _lay_out(self, number: Ints, world_size: int) -> None:
        """Sort the rows by collective, and find the last rank of each."""
        start_ns = self._start_ns = _concatenated(
            [collectives.starts_ns(each) for each in self._ranks]
        )
        order = np.argsort(number, kind="stable")
        begins = np.flatnonzero(np.diff(number[order], prepend=-1))
        counts = np.diff(np.append(begins, len(order)))
        declared = _concatenated([each.ranks for each in self._ranks])[order[begins]]
        expected = np.where(declared < 0, world_size, declared)
        self._is_complete = np.zeros(len(number), dtype=np.bool_)
        self._is_complete[order] = np.repeat(counts == expected, counts)
        matched = np.flatnonzero((counts > 1) & (counts <= expected))
        rows = [order[begins[at] : begins[at] + counts[at]] for at in matched.tolist()]
        last = np.array([own[start_ns[own].argmax()] for own in rows], dtype=np.int64)
        in_time = np.argsort(start_ns[last], kind="stable")
        self._rows = [rows[at] for at in in_time.tolist()]
        self._last: Ints = last[in_time]
        self._last_ns: Ints = start_ns[self._last]
        self._match: Ints = np.full(len(number), -1, dtype=np.int64)
        for at, own in enumerate(self._rows):
            self._match[own] = at
        self._ends_ns = _concatenated([collectives.ends_ns(each) for each in self._ranks])
        median_ends = [_lower_median(self._ends_ns[own]) for own in self._rows]
        self._median_end_ns: Ints = np.array(median_ends, dtype=np.int64)
        self._firsts = [collectives.first_launches(each) for each in self._ranks]

    def _find_waits(self) -> None:
        """Find for each collective who had nothing to run but the wait longest, and how long."""
        waited = np.zeros(len(self._match), dtype=np.int64)
        for offset, each in zip(self._offsets.tolist(), self._ranks, strict=False):
            row = each.launch_collective[each.exposed_launch] + offset
            matched = np.flatnonzero(self._match[row] >= 0)
            until_ns = self._last_ns[self._match[row[matched]]] if len(matched) else matched
            ends = np.minimum(each.exposed_end_ns[matched], until_ns)
            np.add.at(waited, row[matched], np.maximum(ends - each.exposed_start_ns[matched], 0))
        waited[self._last] = -1
        self._waiter: Ints = np.array([own[waited[own].argmax()] for own in self._rows], np.int64)
        self._late_ns: Ints = np.where(self._is_complete[self._last], waited[self._waiter], 0)

    def _windows(self, row: int, until_ns: int) -> straggler_causes.Windows:
        """Return when a rank ran its collective and nothing else, until the last one came."""
        rank = int(self._rank[row])
        own = self._ranks[rank]
        at = row - int(self._offsets[rank])
        launches = np.searchsorted(own.launch_collective, [at, at + 1])
        begin, end = np.searchsorted(own.exposed_launch, launches)
        spans = zip(
            own.exposed_start_ns[begin:end].tolist(),
            own.exposed_end_ns[begin:end].tolist(),
            strict=True,
        )
        return [(start, min(over, until_ns)) for start, over in spans if start < until_ns]

    def _side(self, row: int) -> straggler_causes.Side:
        rank = int(self._rank[row])
        own = self._ranks[rank]
        first = self._firsts[rank][row - self._offsets[rank]]
        return straggler_causes.Side(rank, int(own.launch[first]), int(own.launch_device[first]))

    def _blocking(self) -> list[tuple[list[int], list[int]]]:
        """Return for each rank the collectives that blocked it until they ended, and their ends."""
        result = []
        for offset, each in zip(self._offsets.tolist(), self._ranks, strict=False):
            match = self._match[offset : offset + len(each)]
            over_ns = collectives.ends_ns(each)
            of_window = each.launch_collective[each.exposed_launch]
            blocking = np.unique(of_window[each.exposed_end_ns == over_ns[of_window]])
            blocking = blocking[match[blocking] >= 0]
            blocking = blocking[np.argsort(match[blocking], kind="stable")]
            result.append((match[blocking].tolist(), over_ns[blocking].tolist()))
        return result

    def _begin_ns(self) -> int | None:
        """Return when the first step has begun on all ranks."""
        begins = [each.begin_ns for each in self._ranks]
        known = [begin for begin in begins if begin is not None]
        return max(known) if len(known) == len(begins) else None


class _LastSync:
    """When two ranks were last level: the end of a collective that blocked both of them."""

    def __init__(
        self, blocking: Sequence[tuple[list[int], list[int]]], begin_ns: int | None
    ) -> None:
        self._blocking = blocking
        self._begin_ns = begin_ns

    def before(self, at: int, late: int, waiter: int, wait_ns: int) -> int | None:
        """Return it for two ranks of a collective, if that is before a wait."""
        (one, one_ns), (other, other_ns) = self._blocking[late], self._blocking[waiter]
        i, j = bisect_left(one, at) - 1, bisect_left(other, at) - 1
        while i >= 0 and j >= 0 and one[i] != other[j]:
            if one[i] > other[j]:
                i = bisect_right(one, other[j], 0, i) - 1
            else:
                j = bisect_right(other, one[i], 0, j) - 1
        last_sync_ns = max(one_ns[i], other_ns[j]) if i >= 0 and j >= 0 else self._begin_ns
        return None if last_sync_ns is None or last_sync_ns >= wait_ns else last_sync_ns


def _concatenated(columns: Sequence[Ints | Codes]) -> Ints:
    return np.concatenate([np.empty(0, dtype=np.int64), *columns])


def _lower_median(values: Ints) -> int:
    at = (len(values) - 1) // 2
    return int(np.partition(values, at)[at])


def with_skew(analyses: Sequence[Analysis]) -> tuple[Analysis, ...]:
    """Return the analyses with each collective's waits, where all its ranks are known."""

    def query_ranks(
        queries_by_rank: straggler_causes.Queries,
    ) -> Mapping[int, straggler_causes.TimeReply]:
        return {
            rank: straggler_causes.time_reply(straggler_causes.device_timeline(analyses[rank]), own)
            for rank, own in queries_by_rank.items()
        }

    ranks = [collectives.collectives_of(analysis) for analysis in analyses]
    matched_collectives = MatchedCollectives(
        ranks, max(each.recording.settings.world_size for each in analyses)
    )
    reasons = straggler_causes.rank_delays(
        len(ranks), list(matched_collectives.waits()), query_ranks
    )
    return tuple(
        replace(
            _with_waits(analysis, own, matched_collectives.waited(rank)), rank_delay=reasons[rank]
        )
        for rank, (analysis, own) in enumerate(zip(analyses, ranks, strict=True))
    )


def _with_waits(analysis: Analysis, own: RankCollectives, waited: Waited) -> Analysis:
    launch_communication = analysis.communication
    rows = np.searchsorted(launch_communication.launch, own.launch)
    waiting, late = (
        collectives.fully_masked(len(launch_communication)),
        collectives.fully_masked(len(launch_communication)),
    )
    waiting[rows], late[rows] = waited.waiting_ns, waited.late_ns
    return replace(
        analysis, communication=replace(launch_communication, waiting_ns=waiting, late_ns=late)
    )
