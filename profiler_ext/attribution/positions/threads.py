"""Owns the position of a thread during an event of the trace, and when it cannot be told.

What a line runs begins after the line has begun, and ends before the thread goes on from it: to
another line of the frame, or out of it. Frames that begin meanwhile are within. So an event's
position is the one that leaves room for all of it; only where several do, within the error of
the clocks, it is open.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from profiler_ext.attribution.positions.clock import WatchClock
from profiler_ext.records import Ints, Position, PythonLines, ThreadPositions

NO_POSITION = -1
"""The position of a thread in which no code of the program runs."""


class AmbiguousPositionError(LookupError):
    """Several positions leave room for an event.

    Attributes:
        positions: these.
    """

    def __init__(self, positions: Collection[int]) -> None:
        """Take the positions."""
        super().__init__()
        self.positions = frozenset(positions)


class PositionsOfThreads:
    """The positions of all threads, on the clock of the trace."""

    def __init__(self, lines: PythonLines, clock: WatchClock) -> None:
        """Lay out what was recorded.

        Args:
            lines: the recorded lines.
            clock: their clock on the trace's.
        """
        self.error_ns = clock.error_ns
        depths = depths_of(lines.positions)
        self._threads = {
            thread: _Thread(parts, clock, depths, lines.until_ns)
            for thread, parts in _by_thread(lines.threads).items()
        }

    def during(self, thread: int, start_ns: int, end_ns: int, overhang_ns: int = 0) -> int:
        """Return the position of a thread during an event.

        Args:
            thread: the system's id of the thread.
            start_ns: when the event began.
            end_ns: when it was over.
            overhang_ns: how far these may be off, besides the error of the clocks.

        Returns:
            Index of the position, or ``NOWHERE``.

        Raises:
            AmbiguousPositionError: The event is too close to the change from one to another.
        """
        own = self._threads.get(thread)
        return NO_POSITION if own is None else own.during(start_ns, end_ns, self.error_ns + overhang_ns)

    def is_still(self, thread: int, start_ns: int, end_ns: int) -> bool:
        """Tell whether a thread stood at one position all the time.

        Args:
            thread: the system's id of the thread.
            start_ns: from when on.
            end_ns: until when.
        """
        own = self._threads.get(thread)
        return own is None or own.is_still(start_ns, end_ns)

    def stays(self, thread: int, start_ns: int, end_ns: int) -> bool:
        """Tell whether a thread did not go on from where it stood, whatever ran within.

        Args:
            thread: the system's id of the thread.
            start_ns: from when on.
            end_ns: until when.
        """
        own = self._threads.get(thread)
        return own is None or own.stays(start_ns, end_ns)

    def only_one(self, threads: Collection[int], start_ns: int, end_ns: int) -> int | None:
        """Return the position of the one thread that stands anywhere for a time.

        Args:
            threads: the threads that are asked for.
            start_ns: from when on.
            end_ns: until when.

        Returns:
            Index of its position; ``None`` where several stand somewhere, none does, or the one
            went on meanwhile.
        """
        own = [each for tid, each in self._threads.items() if tid in threads]
        active = [each for each in own if each.is_active(start_ns, end_ns)]
        if len(active) != 1 or not active[0].stays(start_ns, end_ns):
            return None
        return active[0].at(start_ns)


def changes_of(lines: PythonLines, clock: WatchClock, thread: int) -> tuple[Ints, Ints]:
    """Return when a thread went from one position to the next, on the trace's clock, and to which.

    Args:
        lines: the recorded lines.
        clock: their clock on the trace's.
        thread: the system's id of the thread.

    Returns:
        Times in order, and as many positions; the last is ``NOWHERE``, when the watch ended.
    """
    parts = [part for part in lines.threads if part.thread == thread]
    return _changes(parts, clock, lines.until_ns)


def _changes(
    parts: Sequence[ThreadPositions], clock: WatchClock, until_ns: int
) -> tuple[Ints, Ints]:
    nothing = np.empty(0, dtype=np.int64)
    times = np.concatenate([nothing, *(part.times_ns for part in parts)])
    positions = np.concatenate([nothing, *(part.indices for part in parts)])
    order = np.argsort(times, kind="stable")
    last = max(until_ns, int(times.max(initial=0)))
    return clock.on_trace(np.append(times[order], last)), np.append(positions[order], NO_POSITION)


def depths_of(positions: Sequence[Position]) -> Ints:
    """Return how many positions each lies within, itself counted; and 0 for ``NOWHERE``."""
    depths = [0] * (len(positions) + 1)
    for at, position in enumerate(positions):
        depths[at] = 1 + (0 if position.parent is None else depths[position.parent])
    return np.array(depths, dtype=np.int64)


def _by_thread(threads: Sequence[ThreadPositions]) -> dict[int, list[ThreadPositions]]:
    """Collect what is of one thread; the system gives an id again when its thread is over."""
    parts: dict[int, list[ThreadPositions]] = {}
    for each in threads:
        parts.setdefault(each.thread, []).append(each)
    return parts


class _Thread:
    def __init__(
        self, parts: Sequence[ThreadPositions], clock: WatchClock, depths: Ints, until_ns: int
    ) -> None:
        self._times, self._positions = _changes(parts, clock, until_ns)
        self._left_ns = self._times[next_outside(depths[self._positions], self._positions)]

    def during(self, start: int, end: int, error: int) -> int:
        """Look from the last position that may have begun before the event, backwards."""
        at = int(np.searchsorted(self._times, start + error, side="right")) - 1
        candidates: set[int] = set()
        while at >= 0:
            if end <= self._left_ns[at] + error:
                candidates.add(int(self._positions[at]))
            if self._times[at] < start - error:
                break
            at -= 1
        if len(candidates) > 1:
            raise AmbiguousPositionError(candidates)
        return candidates.pop() if candidates else NO_POSITION

    def at(self, time: int) -> int:
        """Return the position at a time."""
        index = int(np.searchsorted(self._times, time, side="right")) - 1
        return NO_POSITION if index < 0 else int(self._positions[index])

    def is_active(self, start: int, end: int) -> bool:
        """Tell whether it stood anywhere meanwhile."""
        return self.at(start) != NO_POSITION or not self.is_still(start, end)

    def is_still(self, start: int, end: int) -> bool:
        first, last = np.searchsorted(self._times, (start, end), side="right")
        return bool(first == last)

    def stays(self, start: int, end: int) -> bool:
        at = int(np.searchsorted(self._times, start, side="right")) - 1
        return bool(end <= (self._times[0] if at < 0 else self._left_ns[at]))


def next_outside(depths: Ints, positions: Ints) -> Ints:
    """Return for each entry the index of the next that is not within its position, or the last.

    Args:
        depths: how many positions each entry's lies within.
        positions: the positions; one that comes again after those within it goes on.
    """
    following = np.full(len(depths), len(depths) - 1, dtype=np.int64)
    open_entries: list[tuple[int, int, int]] = []
    entries = zip(depths.tolist(), positions.tolist(), strict=True)
    for at, (depth, position) in enumerate(entries):
        while open_entries and open_entries[-1][1] >= depth and open_entries[-1][2] != position:
            following[open_entries.pop()[0]] = at
        open_entries.append((at, depth, position))
    return following
