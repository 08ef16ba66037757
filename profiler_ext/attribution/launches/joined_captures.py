"""Joins the recordings of captures of which one has the forward that another one differentiates.

A program may capture a forward in one CUDA graph and its backward in a later one. Each capture is a
recording of its own, but lines, modules and layers of a backward are those of its forward. Autograd
numbers the nodes of a thread once in a process, so the number of a node is that of its forward in
whichever recording has it.

An op that made no node has the number of the next one, which may be of an op that was not recorded.
So the last node of each capture is marked, and what has a larger number there made none.

Source: ``aten/src/ATen/core/dispatch/Dispatcher.cpp``, ``runRecordFunction``: an op reads the
number before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations

import numpy as np

from profiler_ext.attribution.positions import WatchClock, watch_clock
from profiler_ext.attribution.trace.lookups import Flags
from profiler_ext.kineto import names
from profiler_ext.records.events import (
    Codes,
    Events,
    Interned,
    Ints,
    MaskedInts,
    RawEvents,
    Thread,
    flag_rows,
)
from profiler_ext.records.recording import (
    ClockMark,
    Position,
    PythonLines,
    Recording,
    Settings,
    thread_positions,
)

_NOWHERE = -1


def joined(captures: Mapping[int, Recording]) -> Iterator[tuple[tuple[int, ...], Recording]]:
    """Yield the recordings of captures, and the captures in each."""
    parts = sorted(map(_part, captures.items()), key=lambda part: part.start_ns)
    group = {part.capture: [part] for part in parts}
    for first, second in combinations(parts, 2):
        own, other = group[first.capture], group[second.capture]
        if own is not other and first.has_forward_of(second):
            own += other
            group |= dict.fromkeys((each.capture for each in other), own)
    for own in {id(each): each for each in group.values()}.values():
        own.sort(key=lambda part: part.start_ns)
        yield tuple(part.capture for part in own), _together(own)


@dataclass(frozen=True, slots=True)
class _Part:
    """The recording of a capture."""

    capture: int
    recording: Recording
    start_ns: int
    clock: WatchClock | None  # of its lines
    last: Mapping[Thread, int]  # of each thread, the largest number that an op of it can have made
    first: Mapping[Thread, int]  # of each thread, the smallest number that an op of it read
    made: frozenset[int]  # the nodes that were made in it
    wanted: frozenset[int]  # the nodes that a backward evaluated in it, and that it did not make

    def has_forward_of(self, later: _Part) -> bool:
        """Tell whether a later recording differentiates what ran in this one."""
        return not self.made.isdisjoint(later.wanted) and self._can_be_before(later)

    def _can_be_before(self, later: _Part) -> bool:
        is_same_clock = self.recording.trace.base_ns == later.recording.trace.base_ns
        have_lines = (self.clock is None) == (later.clock is None)
        # The system reuses the id of a thread that has ended, and numbers restart.
        goes_on = all(later.first.get(at, last + 1) > last for at, last in self.last.items())
        return is_same_clock and have_lines and goes_on


def _part(numbered: tuple[int, Recording]) -> _Part:
    capture, recording = numbered
    events, python = recording.trace.events, recording.python
    forward = _forward_rows(events)
    first, last = _bounds(events, forward)
    can_make = _can_have_made(events, last)
    read = events.sequence_number.data
    is_backward = (events.fwd_thread_id.filled(0) > 0) & ~np.ma.getmaskarray(events.sequence_number)
    return _Part(
        capture,
        recording,
        int(events.start_ns.min(initial=np.iinfo(np.int64).max)),
        None if python is None else watch_clock(events, python.clock),
        last,
        first,
        frozenset(read[forward[can_make[forward]]].tolist()),
        frozenset(read[is_backward].tolist()) - frozenset(read[forward].tolist()),
    )


def _forward_rows(events: Events) -> Ints:
    is_numbered = ~np.ma.getmaskarray(events.sequence_number)
    return np.flatnonzero(is_numbered & (events.fwd_thread_id.filled(0) == 0))


def _bounds(events: Events, forward: Ints) -> tuple[dict[Thread, int], dict[Thread, int]]:
    """Return of each thread the smallest number read, and the largest that was made."""
    first: dict[Thread, int] = {}
    last: dict[Thread, int] = {}
    numbers = events.sequence_number.data
    for row in forward.tolist():
        thread, number = events.threads[events.thread[row]], int(numbers[row])
        first[thread] = min(first.get(thread, number), number)
        # Without a mark the largest may be of an op that made no node.
        last[thread] = max(last.get(thread, number - 1), number - 1)
    is_mark = flag_rows(events.name, lambda name: names.marked_node(name) is not None)
    marked: dict[Thread, int] = {}
    for row in np.flatnonzero(is_mark).tolist():
        thread, node = events.threads[events.thread[row]], names.marked_node(events.name[row])
        marked[thread] = max(marked.get(thread, 0), node or 0)
    return first, last | marked


def _can_have_made(events: Events, last: Mapping[Thread, int]) -> Flags:
    limit = np.array([last.get(each, _NOWHERE) for each in events.threads], dtype=np.int64)
    flags: Flags = events.sequence_number.filled(0) <= limit[events.thread]
    return flags


def _together(parts: Sequence[_Part]) -> Recording:
    """Return one recording of several, in order of time."""
    if len(parts) == 1:
        return parts[0].recording
    recordings = [part.recording for part in parts]
    modules = [*accumulate((_modules_of(each) for each in recordings), initial=0)]
    events = _joined_events(parts, modules)
    called, called_parts = zip(
        *(_called(each.settings, at) for each, at in zip(recordings, modules, strict=False)),
        strict=True,
    )
    last = recordings[-1]
    settings = replace(
        last.settings, called_modules=sum(called, ()), called_parts=sum(called_parts, ())
    )
    raw = _JoinedRaw([each.trace.raw for each in recordings])
    gaps = dict.fromkeys(gap for each in recordings for gap in each.gaps)
    return replace(
        last,
        trace=replace(last.trace, events=events, raw=raw),
        settings=settings,
        gaps=tuple(gaps),
        python=_joined_lines(parts, events),
    )


def _modules_of(recording: Recording) -> int:
    """Return how many numbers the marks of modules in a recording take."""
    own = (names.marked_module(name) for name in recording.trace.events.name.strings)
    return 1 + max((number for number in own if number is not None), default=_NOWHERE)


def _called(settings: Settings, offset: int) -> tuple[tuple[object, ...], tuple[object, ...]]:
    return (
        tuple((number + offset, each) for number, each in settings.called_modules),
        tuple((number + offset, each) for number, each in settings.called_parts),
    )


@dataclass(frozen=True, slots=True)
class _JoinedRaw:
    """The events of several files, one after the other."""

    parts: Sequence[RawEvents]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, position: int) -> bytes:
        for part in self.parts:
            if position < len(part):
                return part[position]
            position -= len(part)
        raise IndexError(position)

    def at(self, positions: Ints) -> Iterator[bytes]:
        """Return the JSON of several events."""
        return map(self.__getitem__, positions.tolist())


def _joined_events(parts: Sequence[_Part], modules: Sequence[int]) -> Events:
    """Return the events of all; ids that are a recording's own are renumbered."""
    every = [part.recording.trace.events for part in parts]
    threads = tuple(dict.fromkeys(thread for each in every for thread in each.threads))
    code = {thread: at for at, thread in enumerate(threads)}
    raw = [*accumulate((len(part.recording.trace.raw) for part in parts), initial=0)]

    def column(name: str) -> Ints:
        return np.concatenate([getattr(each, name) for each in every])

    def masked(name: str) -> MaskedInts:
        return _concatenated([getattr(each, name) for each in every])

    def own(name: str) -> MaskedInts:
        columns = [getattr(each, name) for each in every]
        sizes = (1 + int(each.filled(0).max(initial=0)) for each in columns)
        return _concatenated(
            [each + at for each, at in zip(columns, accumulate(sizes, initial=0), strict=False)]
        )

    renamed = (
        Interned(each.name.codes, tuple(names.moved_mark(text, at) for text in each.name.strings))
        for each, at in zip(every, modules, strict=False)
    )
    return Events(
        position=np.concatenate([e.position + at for e, at in zip(every, raw, strict=False)]),
        name=_interned(renamed),
        category=_interned(each.category for each in every),
        thread=np.concatenate([_renumbered(each, code) for each in every]),
        threads=threads,
        start_ns=column("start_ns"),
        duration_ns=column("duration_ns"),
        correlation=own("correlation"),
        external_id=own("external_id"),
        sequence_number=_concatenated([_numbers(part) for part in parts]),
        fwd_thread_id=masked("fwd_thread_id"),
        **{name: masked(name) for name in ("device", "stream", "bytes_moved")},
        launch_shape=_interned(each.launch_shape for each in every),
    )


def _concatenated(columns: Sequence[MaskedInts]) -> MaskedInts:
    mask = np.concatenate([np.ma.getmaskarray(each) for each in columns])
    return np.ma.MaskedArray(np.concatenate([each.data for each in columns]), mask=mask)


def _numbers(part: _Part) -> MaskedInts:
    """Return the numbers of a recording, but of forward ops that cannot have made a node."""
    events = part.recording.trace.events
    forward = _forward_rows(events)
    mask = np.ma.getmaskarray(events.sequence_number).copy()
    mask[forward[~_can_have_made(events, part.last)[forward]]] = True
    return np.ma.MaskedArray(events.sequence_number.data, mask=mask)


def _renumbered(events: Events, code: Mapping[Thread, int]) -> Codes:
    own = np.array([code[thread] for thread in events.threads], dtype=events.thread.dtype)
    renumbered: Codes = own[events.thread]
    return renumbered


def _interned(columns: Iterable[Interned]) -> Interned:
    known: dict[str, int] = {}
    codes = []
    for column in columns:
        own = [known.setdefault(text, len(known)) for text in column.strings]
        codes.append(np.array(own, dtype=np.int32)[column.codes])
    return Interned(np.concatenate(codes), tuple(known))


def _joined_lines(parts: Sequence[_Part], events: Events) -> PythonLines | None:
    """Return the lines of all, on the trace's clock."""
    lines = [(each.recording.python, each.clock) for each in parts]
    known = [(own, clock) for own, clock in lines if own is not None and clock is not None]
    if len(known) < len(lines):
        return None
    functions = [*accumulate((len(own.functions) for own, _ in known), initial=0)]
    modules = [*accumulate((len(own.modules) for own, _ in known), initial=0)]
    positions = [*accumulate((len(own.positions) for own, _ in known), initial=0)]
    offsets = [*zip(positions, functions, modules, strict=True)]
    ends = [int(clock.on_trace(np.array([own.end_ns]))[0]) for own, clock in known]
    threads = [
        thread_positions(
            each.thread,
            [*clock.on_trace(each.times_ns).tolist(), end_ns],
            [*np.where(each.indices < 0, _NOWHERE, each.indices + at).tolist(), _NOWHERE],
        )
        for (own, clock), (at, _, _), end_ns in zip(known, offsets, ends, strict=False)
        for each in own.threads
    ]
    return PythonLines(
        functions=tuple(each for own, _ in known for each in own.functions),
        modules=tuple(each for own, _ in known for each in own.modules),
        positions=tuple(
            _moved(each, *own_offsets)
            for (own, _), own_offsets in zip(known, offsets, strict=False)
            for each in own.positions
        ),
        threads=tuple(threads),
        clock=_one_clock(events, max(clock.error_ns for _, clock in known)),
        end_ns=max(ends),
    )


def _moved(position: Position, parent: int, function: int, module: int) -> Position:
    def moved(index: int | None, offset: int) -> int | None:
        return None if index is None else index + offset

    return replace(
        position,
        parent=moved(position.parent, parent),
        function=moved(position.function, function),
        module=moved(position.module, module),
    )


def _one_clock(events: Events, error_ns: int) -> tuple[ClockMark, ...]:
    """Return the mark of a clock that is the trace's own, with an error."""
    is_mark: Callable[[str], bool] = lambda name: names.marked_moment(name) is not None  # noqa: E731
    row = int(np.flatnonzero(flag_rows(events.name, is_mark))[-1])
    number = names.marked_moment(events.name[row]) or 0
    before_ns, after_ns = int(events.start_ns[row]) - error_ns, events.end_at(row) + error_ns
    return (ClockMark(number, before_ns, after_ns),)
