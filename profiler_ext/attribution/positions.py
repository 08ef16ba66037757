"""The Python stack of each thread at a time of the trace, by the recorded lines.

Each clock mark gives bounds: its event is between two readings of the recorder's clock. All
together leave little room, if both clocks run alike; where one was set meanwhile, an offset between
two marks lies between their bounds.

What a line runs begins after the line has begun, and ends before the thread leaves it, to another
line of the frame or out of it; inner frames are within. So an event's position is the one that
leaves room for all of it; where several do, within the clocks' error, it is ambiguous.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.kineto import names
from profiler_ext.records.events import Events, Ints, flag_rows
from profiler_ext.records.lineage import Frame, ModuleFrame
from profiler_ext.records.recording import ClockMark, Position, PythonLines, ThreadPositions

NO_POSITION = -1  # the position of a thread in which no code of the program runs


@dataclass(frozen=True, slots=True)
class WatchClock:
    """The recorder's clock on the trace's clock."""

    moments_ns: Ints  # moments on the recorder's clock, in order
    offsets_ns: Ints  # the offset at each; interpolated between them
    error_ns: int  # the largest error

    def on_trace(self, times_ns: Ints) -> Ints:
        """Convert the recorder's times to the trace's clock."""
        start = int(self.moments_ns[0])
        offsets = np.interp(times_ns - start, self.moments_ns - start, self.offsets_ns)
        return times_ns + np.round(offsets).astype(np.int64)


def watch_clock(events: Events, marks: Sequence[ClockMark]) -> WatchClock | None:
    """Align the recorder's clock with the trace's."""
    bounds = np.array(sorted(_bounds(events, marks)), dtype=np.int64).reshape(-1, 3)
    moments, lows, highs = bounds.T
    if not len(bounds):
        return None
    low, high = int(lows.max()), int(highs.min())
    if low <= high:
        error = (high - low + 1) // 2
        return WatchClock(moments[:1], _middle(lows.max(keepdims=True), highs.min()), error)
    offsets = _middle(lows, highs)
    drift = int(np.abs(np.diff(offsets)).max())
    return WatchClock(moments, offsets, int((highs - lows).max()) + drift)


def _middle(low: Ints, high: Ints) -> Ints:
    return low + (high - low) // 2


def _bounds(events: Events, marks: Sequence[ClockMark]) -> Iterator[tuple[int, int, int]]:
    """Yield the moment of each mark, and the least and largest offset that it allows."""
    rows = np.flatnonzero(
        flag_rows(events.name, lambda name: names.marked_moment(name) is not None)
    )
    known = {names.marked_moment(events.name[row]): row for row in rows.tolist()}
    for mark in marks:
        if (row := known.get(mark.number)) is not None:
            start, end = int(events.start_ns[row]), events.end_at(row)
            low, high = end - mark.after_ns, start - mark.before_ns
            if low <= high:
                yield mark.before_ns, low, high


class AmbiguousPositionError(LookupError):
    """Several positions leave room for an event."""

    def __init__(self, positions: Collection[int]) -> None:
        super().__init__()
        self.positions = frozenset(positions)


class PositionsOfThreads:
    """The positions of all threads, on the clock of the trace."""

    def __init__(self, lines: PythonLines, clock: WatchClock) -> None:
        self.error_ns = clock.error_ns
        depths = depths_of(lines.positions)
        self._threads = {
            thread: _Thread(parts, clock, depths, lines.end_ns)
            for thread, parts in _by_thread(lines.threads).items()
        }

    def during(self, thread: int, start_ns: int, end_ns: int, overhang_ns: int = 0) -> int:
        """Return the position of a thread during an event; raises AmbiguousPositionError."""
        # overhang_ns: the error of its times, besides that of the clocks
        own = self._threads.get(thread)
        return (
            NO_POSITION
            if own is None
            else own.during(start_ns, end_ns, self.error_ns + overhang_ns)
        )

    def is_still(self, thread: int, start_ns: int, end_ns: int) -> bool:
        """Tell whether a thread was at one position all the time."""
        own = self._threads.get(thread)
        return own is None or own.is_still(start_ns, end_ns)

    def stays(self, thread: int, start_ns: int, end_ns: int) -> bool:
        """Tell whether a thread stayed at its position, whatever ran within."""
        own = self._threads.get(thread)
        return own is None or own.stays(start_ns, end_ns)

    def only_one(self, threads: Collection[int], start_ns: int, end_ns: int) -> int | None:
        """Return the position of the only thread that has any; ``None`` unless it stayed."""
        own = [each for tid, each in self._threads.items() if tid in threads]
        active = [each for each in own if each.is_active(start_ns, end_ns)]
        if len(active) != 1 or not active[0].stays(start_ns, end_ns):
            return None
        return active[0].at(start_ns)


def changes_of(lines: PythonLines, clock: WatchClock, thread: int) -> tuple[Ints, Ints]:
    """Return the times of a thread's positions, on the trace's clock, and these positions."""
    # The last is NOWHERE, at the end of the recording of lines.
    parts = [part for part in lines.threads if part.thread == thread]
    return _changes(parts, clock, lines.end_ns)


def _changes(parts: Sequence[ThreadPositions], clock: WatchClock, end_ns: int) -> tuple[Ints, Ints]:
    nothing = np.empty(0, dtype=np.int64)
    times = np.concatenate([nothing, *(part.times_ns for part in parts)])
    positions = np.concatenate([nothing, *(part.indices for part in parts)])
    order = np.argsort(times, kind="stable")
    last = max(end_ns, int(times.max(initial=0)))
    return clock.on_trace(np.append(times[order], last)), np.append(positions[order], NO_POSITION)


def depths_of(positions: Sequence[Position]) -> Ints:
    """Return the depth of each position, from 1; 0 for ``NOWHERE``."""
    depths = [0] * (len(positions) + 1)
    for at, position in enumerate(positions):
        depths[at] = 1 + (0 if position.parent is None else depths[position.parent])
    return np.array(depths, dtype=np.int64)


def _by_thread(threads: Sequence[ThreadPositions]) -> dict[int, list[ThreadPositions]]:
    # The system reuses the id of a thread that has ended.
    parts: dict[int, list[ThreadPositions]] = {}
    for each in threads:
        parts.setdefault(each.thread, []).append(each)
    return parts


class _Thread:
    def __init__(
        self, parts: Sequence[ThreadPositions], clock: WatchClock, depths: Ints, end_ns: int
    ) -> None:
        self._times, self._positions = _changes(parts, clock, end_ns)
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
        index = int(np.searchsorted(self._times, time, side="right")) - 1
        return NO_POSITION if index < 0 else int(self._positions[index])

    def is_active(self, start: int, end: int) -> bool:
        return self.at(start) != NO_POSITION or not self.is_still(start, end)

    def is_still(self, start: int, end: int) -> bool:
        first, last = np.searchsorted(self._times, (start, end), side="right")
        return bool(first == last)

    def stays(self, start: int, end: int) -> bool:
        at = int(np.searchsorted(self._times, start, side="right")) - 1
        return bool(end <= (self._times[0] if at < 0 else self._left_ns[at]))


def next_outside(depths: Ints, positions: Ints) -> Ints:
    """Return for each entry the index of the next that is not within its position, or the last."""
    # A position that comes again after inner ones continues.
    following = np.full(len(depths), len(depths) - 1, dtype=np.int64)
    open_entries: list[tuple[int, int, int]] = []
    entries = zip(depths.tolist(), positions.tolist(), strict=True)
    for at, (depth, position) in enumerate(entries):
        while open_entries and open_entries[-1][1] >= depth and open_entries[-1][2] != position:
            following[open_entries.pop()[0]] = at
        open_entries.append((at, depth, position))
    return following


@dataclass(frozen=True, slots=True)
class StackState:
    """The state of a thread."""

    stack: tuple[Frame, ...] = ()  # the frames of the program, outermost first
    module: ModuleFrame | None = None  # the innermost active module, if known
    is_recompute: bool = False  # a checkpoint recomputes a forward
    in_module: bool = False  # a module's call is active
    # ``stack`` includes the innermost frame; it is left out without a line
    is_line_known: bool = True


class Stacks:
    """The state at each position."""

    def __init__(self, lines: PythonLines) -> None:
        self._lines = lines
        self._depths = depths_of(lines.positions)
        self._known: dict[tuple[int, int], StackState] = {}
        self._outer: dict[tuple[int, int], StackState] = {}

    def depth(self, position: int) -> int:
        """Return the depth of a position, from 1."""
        return int(self._depths[position])

    def state(self, position: int, above: int = 0) -> StackState:
        """Return the state of a position."""
        # above: leave out what is at this depth or less: it began before
        chain: list[int] = []
        state = StackState()
        while position != NO_POSITION and self._depths[position] > above:
            if (position, above) in self._known:
                state = self._known[position, above]
                break
            chain.append(position)
            position = self._parent(position)
        for each in reversed(chain):
            outer = self._outer[each, above] = self._resumed(state, each, above)
            state = self._known[each, above] = self._within(outer, each)
        return state

    def are_in_module(self, positions: Iterable[int]) -> bool:
        """Flag positions at which a module's call is active."""
        return all(self.state(each).in_module for each in positions)

    def first_module(self, position: int, above: int) -> ModuleFrame | None:
        """Return the outermost active module of a position; ``above`` as in :meth:`state`."""
        module_indices = [
            self._lines.positions[each].module for each in self._chain(position, above)
        ]
        outermost = next((each for each in reversed(module_indices) if each is not None), None)
        return None if outermost is None else self._lines.modules[outermost]

    def before_module(self, position: int, module: ModuleFrame | None, above: int) -> StackState:
        """Return where a thread called a module; ``NOWHERE`` in none or several calls."""
        calls = [
            each
            for each in self._chain(position, above)
            if (own := self._lines.positions[each].module) is not None
            and self._lines.modules[own] == module
        ]
        return self.state(self._parent(calls[0]), above) if len(calls) == 1 else StackState()

    def _chain(self, position: int, above: int) -> Iterator[int]:
        """Yield a position and its parents, from the inside out."""
        while position != NO_POSITION and self._depths[position] > above:
            yield position
            position = self._parent(position)

    def _parent(self, position: int) -> int:
        parent = self._lines.positions[position].parent
        return NO_POSITION if parent is None else parent

    def _resumed(self, outer: StackState, position: int, above: int) -> StackState:
        """Leave out the frame that a position resumes."""
        own = self._lines.positions[position].function
        if own is None or not self._lines.functions[own].is_resume:
            return outer
        before = self._outer.get((self._parent(position), above), StackState())
        return replace(outer, stack=before.stack, is_line_known=before.is_line_known)

    def _within(self, outer: StackState, position: int) -> StackState:
        own, lines = self._lines.positions[position], self._lines
        if own.module is not None:  # a module that is gone is known by its caller
            module = lines.modules[own.module] or outer.module
            return replace(outer, module=module, in_module=True)
        if own.function is None:
            return outer
        function = lines.functions[own.function]
        if function.is_recompute:
            return replace(outer, is_recompute=True)
        if function.is_compiled:
            return outer
        frame = Frame(function.file, own.line, function.name, own.code)
        stack = (*outer.stack, frame) if own.line else outer.stack
        module = None if function.is_traced else outer.module
        return replace(outer, stack=stack, module=module, is_line_known=bool(own.line))
