"""Owns the collectives of all ranks beside each other: who came last, who waited, since when.

Every rank stays in an all-reduce from its own start until all have come and the data is there. So
from a rank's own start to the last rank's it waits, and what follows is the transfer. That holds on
clocks laid over each other. Where not all ranks of the group are there, one that is missing may
have come last: a wait for those that are there is the least, and nobody is told to be late. A rank
that computes while it waits loses nothing, so the last one is late by the exposed part of the
longest such wait.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler_ext.attribution.collectives import (
    ends_ns,
    first_launches,
    numbered_alike,
    starts_ns,
)
from profiler_ext.attribution.doing import Windows
from profiler_ext.attribution.lateness import Side, Wait
from profiler_ext.records import Codes, Ints, MaskedInts, RankCollectives


@dataclass(frozen=True, slots=True)
class Waited:
    """How a rank's launches of collectives waited; masked where not all ranks are there.

    Attributes:
        waiting_ns: from its own start to the last rank's, at most its duration; one a launch of
            :class:`RankCollectives`.
        late_ns: how long another rank had nothing to run but to wait for this one, the last.
        least_ns: the same as ``waiting_ns``, of the ranks that are there; it waited no less.
    """

    waiting_ns: MaskedInts
    late_ns: MaskedInts
    least_ns: Ints


class Meetings:
    """The collectives of which several ranks of the group are there, in order of time."""

    def __init__(self, ranks: Sequence[RankCollectives], world_size: int = 0) -> None:
        """Lay the ranks beside each other.

        Args:
            ranks: the collectives of each, on clocks laid over each other.
            world_size: how many ranks there were, as far as that is told: so many has a group that
                does not tell it.
        """
        self._ranks = ranks
        sizes = [len(each) for each in ranks]
        self._offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._rank = np.repeat(np.arange(len(ranks)), sizes)
        self._lay_out(_joined(numbered_alike(ranks)), max(world_size, len(ranks)))
        self._wait()

    def waited(self, rank: int) -> Waited:
        """Return how the launches of a rank waited.

        Args:
            rank: its index.
        """
        own = self._ranks[rank]
        row = own.launch_collective + self._offsets[rank]
        meeting = self._meeting[row]
        is_met = meeting >= 0
        waiting = self._last_ns[meeting] - own.launch_start_ns if len(self._last_ns) else row * 0
        least = np.where(is_met, np.minimum(np.maximum(waiting, 0), own.launch_duration_ns), 0)
        is_unknown = ~self._is_whole[row]
        late = np.zeros(len(row), dtype=np.int64)
        lasts = np.flatnonzero(self._rank[self._last] == rank)
        late[self._firsts[rank][self._last[lasts] - self._offsets[rank]]] = self._late_ns[lasts]
        return Waited(
            np.ma.MaskedArray(np.where(is_unknown, 0, least), mask=is_unknown),
            np.ma.MaskedArray(late, mask=is_unknown),
            least,
        )

    def waits(self) -> Iterator[Wait]:
        """Yield who waited for whom, in order of time, and since when they were not level."""
        level = _Level(self._held(), self._begin_ns())
        for at, (last, waiter) in enumerate(
            zip(self._last.tolist(), self._waiter.tolist(), strict=True)
        ):
            if self._late_ns[at]:
                windows = self._windows(waiter, int(self._last_ns[at]))
                late, waits = self._side(last), self._side(waiter)
                since_ns = level.before(at, late.rank, waits.rank, windows[0][0])
                yield Wait(late, waits, windows, since_ns)

    def behind_ns(self) -> Ints:
        """Return for each rank how much later it came than the median rank, in all.

        What a rank is behind counts once: it is level again when a collective ends that held it up,
        and where none did, it comes as late to the next one without having lost more.
        """
        delay_ns = np.zeros(len(self._meeting), dtype=np.int64)
        for own in self._rows:
            starts = self._start_ns[own]
            delay_ns[own] = starts - _middle(starts)
        begins = [each.begin_ns for each in self._ranks if each.begin_ns is not None]
        usual_ns = _middle(np.array(begins, dtype=np.int64)) if begins else 0
        found = np.zeros(len(self._ranks), dtype=np.int64)
        for rank, (each, (held, _)) in enumerate(zip(self._ranks, self._held(), strict=True)):
            behind_ns = max((each.begin_ns or usual_ns) - usual_ns, 0)
            is_held = set(held)
            for row in self._in_time(rank):
                late_ns = max(int(delay_ns[row]), 0)
                found[rank] += max(late_ns - behind_ns, 0)
                behind_ns = 0 if int(self._meeting[row]) in is_held else late_ns
        return found

    def are_met(self) -> npt.NDArray[np.bool_]:
        """Return for each rank whether one of its collectives is known to be another's too."""
        ranks = range(len(self._ranks))
        return np.array([bool(len(self._in_time(rank))) for rank in ranks], np.bool_)

    def longest_wait_for(self, rank: int) -> Wait | None:
        """Return the longest wait of a median rank for one, whoever came last; ``None`` for none.

        Args:
            rank: the index of the one that was waited for.
        """
        met = self._in_time(rank)
        waits = [(int(self._start_ns[row]), self._middle_row(int(row)), int(row)) for row in met]
        lengths = [start_ns - int(self._start_ns[middle]) for start_ns, middle, _ in waits]
        if not lengths or max(lengths) <= 0:
            return None
        start_ns, middle, row = waits[lengths.index(max(lengths))]
        windows = [(int(self._start_ns[middle]), start_ns)]
        late, waiter = self._side(row), self._side(middle)
        level = _Level(self._held(), self._begin_ns())
        since_ns = level.before(int(self._meeting[row]), late.rank, waiter.rank, windows[0][0])
        return Wait(late, waiter, windows, since_ns)

    def _middle_row(self, row: int) -> int:
        """Return which of the rows of a meeting began at the median."""
        own = self._rows[int(self._meeting[row])]
        return int(own[np.argsort(self._start_ns[own], kind="stable")[(len(own) - 1) // 2]])

    def lasts(self) -> Iterator[tuple[int, int]]:
        """Yield the rank that came last, and the row of the collective there.

        Of those alone of which all ranks are there.
        """
        for row in self._last[self._is_whole[self._last]].tolist():
            rank = int(self._rank[row])
            yield rank, row - int(self._offsets[rank])

    def residuals_ns(self, rank: int) -> Ints:
        """Return how far the ends of a rank's collectives are from the median rank's.

        Args:
            rank: its index.
        """
        mine = self._in_time(rank)
        return self._ends_ns[mine] - self._usual_end_ns[self._meeting[mine]]

    def _in_time(self, rank: int) -> Ints:
        """Return the rows of a rank that are met, in order of time."""
        rows = np.arange(self._offsets[rank], self._offsets[rank + 1])
        met = rows[self._meeting[rows] >= 0]
        ordered: Ints = met[np.argsort(self._meeting[met], kind="stable")]
        return ordered

    def _lay_out(self, number: Ints, world_size: int) -> None:
        """Sort the rows by meeting, and find who came last to each."""
        start_ns = self._start_ns = _joined([starts_ns(each) for each in self._ranks])
        order = np.argsort(number, kind="stable")
        begins = np.flatnonzero(np.diff(number[order], prepend=-1))
        counts = np.diff(np.append(begins, len(order)))
        told = _joined([each.ranks for each in self._ranks])[order[begins]]
        wanted = np.where(told < 0, world_size, told)
        self._is_whole = np.zeros(len(number), dtype=np.bool_)
        self._is_whole[order] = np.repeat(counts == wanted, counts)
        met = np.flatnonzero((counts > 1) & (counts <= wanted))
        rows = [order[begins[at] : begins[at] + counts[at]] for at in met.tolist()]
        last = np.array([own[start_ns[own].argmax()] for own in rows], dtype=np.int64)
        in_time = np.argsort(start_ns[last], kind="stable")
        self._rows = [rows[at] for at in in_time.tolist()]
        self._last: Ints = last[in_time]
        self._last_ns: Ints = start_ns[self._last]
        self._meeting: Ints = np.full(len(number), -1, dtype=np.int64)
        for at, own in enumerate(self._rows):
            self._meeting[own] = at
        self._ends_ns = _joined([ends_ns(each) for each in self._ranks])
        usual = [_middle(self._ends_ns[own]) for own in self._rows]
        self._usual_end_ns: Ints = np.array(usual, dtype=np.int64)
        self._firsts = [first_launches(each) for each in self._ranks]

    def _wait(self) -> None:
        """Find for each meeting who had nothing to run but to wait for longest, and how long."""
        waited = np.zeros(len(self._meeting), dtype=np.int64)
        for offset, each in zip(self._offsets.tolist(), self._ranks, strict=False):
            row = each.launch_collective[each.exposed_launch] + offset
            met = np.flatnonzero(self._meeting[row] >= 0)
            until_ns = self._last_ns[self._meeting[row[met]]] if len(met) else met
            ends = np.minimum(each.exposed_end_ns[met], until_ns)
            np.add.at(waited, row[met], np.maximum(ends - each.exposed_start_ns[met], 0))
        waited[self._last] = -1
        self._waiter: Ints = np.array([own[waited[own].argmax()] for own in self._rows], np.int64)
        self._late_ns: Ints = np.where(self._is_whole[self._last], waited[self._waiter], 0)

    def _windows(self, row: int, until_ns: int) -> Windows:
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

    def _side(self, row: int) -> Side:
        rank = int(self._rank[row])
        own = self._ranks[rank]
        first = self._firsts[rank][row - self._offsets[rank]]
        return Side(rank, int(own.launch[first]), int(own.launch_device[first]))

    def _held(self) -> list[tuple[list[int], list[int]]]:
        """Return for each rank the meetings that held it up until they ended, and when they did."""
        found = []
        for offset, each in zip(self._offsets.tolist(), self._ranks, strict=False):
            meeting = self._meeting[offset : offset + len(each)]
            over_ns = ends_ns(each)
            of_window = each.launch_collective[each.exposed_launch]
            held = np.unique(of_window[each.exposed_end_ns == over_ns[of_window]])
            held = held[meeting[held] >= 0]
            held = held[np.argsort(meeting[held], kind="stable")]
            found.append((meeting[held].tolist(), over_ns[held].tolist()))
        return found

    def _begin_ns(self) -> int | None:
        """Return when the first step has begun on all ranks."""
        begins = [each.begin_ns for each in self._ranks]
        known = [begin for begin in begins if begin is not None]
        return max(known) if len(known) == len(begins) else None


class _Level:
    """When two ranks were last level: when a collective ended that held both of them up."""

    def __init__(self, held: Sequence[tuple[list[int], list[int]]], begin_ns: int | None) -> None:
        self._held = held
        self._begin_ns = begin_ns

    def before(self, at: int, late: int, waiter: int, wait_ns: int) -> int | None:
        """Return it for two ranks of a meeting; nothing where that is not before a wait."""
        (one, one_ns), (other, other_ns) = self._held[late], self._held[waiter]
        i, j = bisect_left(one, at) - 1, bisect_left(other, at) - 1
        while i >= 0 and j >= 0 and one[i] != other[j]:
            if one[i] > other[j]:
                i = bisect_right(one, other[j], 0, i) - 1
            else:
                j = bisect_right(other, one[i], 0, j) - 1
        level_ns = max(one_ns[i], other_ns[j]) if i >= 0 and j >= 0 else self._begin_ns
        return None if level_ns is None or level_ns >= wait_ns else level_ns


def _joined(columns: Sequence[Ints | Codes]) -> Ints:
    return np.concatenate([np.empty(0, dtype=np.int64), *columns])


def _middle(values: Ints) -> int:
    """Return the lower median, to the nanosecond."""
    at = (len(values) - 1) // 2
    return int(np.partition(values, at)[at])
