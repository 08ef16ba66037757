"""The calls of compiled graphs in a trace, with the operators and launches that each ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from profiler_ext.attribution.enclosing import CallContext, EnclosingRanges
from profiler_ext.attribution.trace.forward_links import ForwardLinks
from profiler_ext.attribution.trace.launches import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, Rows, take
from profiler_ext.kineto import classify, names
from profiler_ext.records.events import Events, Ints, flag_rows
from profiler_ext.records.evidence import SiteEvidence
from profiler_ext.records.gaps import GapReason


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One thing that a graph call ran: an operator, or a device event without an operator."""

    name: str  # the operator's or the device event's name, without a ``graph_0_`` prefix
    on_device: bool = False  # no operator is known, so the name is the device event's
    replayed: bool = False  # it was launched by the replay of a CUDA graph
    is_kernel: bool = True  # for a device event: neither a copy nor a memset
    launched: bool = True  # for an operator: it launched something

    @property
    def order_evidence(self) -> SiteEvidence:
        """The evidence that its order alone gives."""
        return SiteEvidence.REPLAY_ORDER if self.replayed else SiteEvidence.CALL_ORDER


class DeviceEvent(NamedTuple):
    """What one launch of a call ran."""

    name: str
    category: str
    # The first launch of the graph call that the same runtime call made, counted from 0, or
    # ``NO_ROW``
    call: int = NO_ROW


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """What equal calls ran, in enqueue order; compared by identity."""

    work: tuple[WorkItem, ...]  # the items
    events: tuple[tuple[DeviceEvent, ...], ...]  # for each item what its launches ran
    event_names: tuple[tuple[str, ...], ...]  # the names of these, as every call's
    is_replay: bool  # a CUDA graph was replayed


class Patterns:
    """Finds the pattern of each call."""

    def __init__(self, events: Events) -> None:
        self._names, self._categories = events.name.strings, events.category.strings
        self._known: dict[tuple[bytes, ...], Pattern] = {}
        self._items: dict[int, WorkItem] = {}

    def pattern(self, items: Ints, ends: Ints, launched: Ints, calls: Ints) -> Pattern:
        """Return the pattern of a call."""
        key = tuple(column.tobytes() for column in (items, ends, launched, calls))
        if key not in self._known:
            self._known[key] = self._new(items, ends, launched, calls)
        return self._known[key]

    def _new(self, items: Ints, ends: Ints, launched: Ints, calls: Ints) -> Pattern:
        pairs = zip(launched.tolist(), calls.tolist(), strict=True)
        ran = [DeviceEvent(*self._ran(code), call) for code, call in pairs]
        events = tuple(tuple(ran[begin:end]) for begin, end in pairwise([0, *ends.tolist()]))
        event_names = tuple(
            tuple(classify.work_name(event.name, event.category) for event in own) for own in events
        )
        work = tuple(map(self._item, items.tolist()))
        return Pattern(work, events, event_names, any(item.replayed for item in work))

    def _item(self, code: int) -> WorkItem:
        if code not in self._items:
            self._items[code] = self._operator(-1 - code) if code < 0 else self._on_device(code)
        return self._items[code]

    def _operator(self, code: int) -> WorkItem:
        name, launched = divmod(code, 2)
        return WorkItem(names.kernel_name(self._names[name]), launched=bool(launched))

    def _on_device(self, code: int) -> WorkItem:
        ran, replayed = divmod(code, 2)
        name, category = self._ran(ran)
        return WorkItem(
            name=classify.work_name(name, category),
            on_device=True,
            replayed=bool(replayed),
            is_kernel=not (classify.is_copy(category) or classify.is_memset(category)),
        )

    def _ran(self, code: int) -> tuple[str, str]:
        name, category = divmod(code, len(self._categories))
        return self._names[name], self._categories[category]


def what_ran(events: Events, rows: Ints) -> Ints:
    """Return a code for each device event, the same where name and category are."""
    name, category = events.name.codes[rows].astype(np.int64), events.category.codes[rows]
    return name * len(events.category.strings) + category


def operators(events: Events, rows: Ints, launched: Flags) -> Ints:
    """Return a code for each operator."""
    return -1 - (2 * events.name.codes[rows].astype(np.int64) + launched)


@dataclass(frozen=True, slots=True)
class Match:
    """The result for a work item: a call site (index into the sites), or a gap."""

    site: int | None = None  # index of the call site, ``None`` for a gap
    evidence: SiteEvidence | None = None  # the rule
    gap: GapReason | None = None  # why there is no call site


@dataclass(frozen=True, slots=True)
class _Items:
    """Items of work: call, code, operator, and sort keys.

    The order is by ``enqueue_ns`` on the CPU, then ``start_ns`` on the device, as a replay enqueues
    all at once, then by ``tie``.
    """

    marker: Ints
    code: Ints
    row: Ints
    enqueue_ns: Ints
    start_ns: Ints
    tie: Ints


class WorkOfCalls:
    """What each call ran, in enqueue order: operators, and launches without an operator.

    A call that replays also shows the operators of the recording, which launched nothing; those are
    left out, as the replay runs their work.
    """

    def __init__(
        self, enclosing: EnclosingRanges, enqueued: EnqueuedLaunches, launches: Ints
    ) -> None:
        self._enclosing, self._enqueued = enclosing, enqueued
        self._events, self._patterns = enclosing.events, Patterns(enclosing.events)
        cpu, self._call = enqueued.cpu[launches], enqueued.call[launches]
        operator = take(enclosing.operator, cpu, NO_ROW)
        by_operator = operator.astype(np.int64)
        self._ran = what_ran(self._events, enqueued.event[launches])
        on_device = by_operator == NO_ROW
        marker = take(enclosing.marker, cpu, NO_ROW)
        device = self._device(launches, on_device, marker.astype(np.int64))
        called = self._operators(launches, by_operator, device)
        pairs = ((getattr(device, name), getattr(called, name)) for name in _Items.__slots__)
        self._lay_out(
            launches,
            by_operator,
            _Items(*(np.concatenate(pair).astype(np.int64) for pair in pairs)),
        )

    def of_call(self, marker: int) -> tuple[Pattern, Ints, Ints]:
        """Return what a call ran: pattern, launches by item, and each item's operator row."""
        first, last = np.searchsorted(self._marker, (marker, marker + 1)).tolist()
        begin, end = self._begins[first], self._begins[last]
        ends = self._begins[first + 1 : last + 1] - begin
        calls = np.where(self._first[begin:end] == NO_ROW, NO_ROW, self._first[begin:end] - begin)
        pattern = self._patterns.pattern(self._code[first:last], ends, self._ran[begin:end], calls)
        return pattern, self._launches[begin:end], self._row[first:last]

    def _device(self, launches: Ints, on_device: Flags, marker: Ints) -> _Items:
        own, call = launches[on_device], self._call[on_device]
        replays = flag_rows(self._events.name, names.is_graph_launch)
        replayed = np.append(replays, False)[call]  # NO_ROW is the last
        # Return a code for each device event without an operator.
        return _Items(
            marker=marker[on_device],
            code=2 * self._ran[on_device] + replayed,
            row=np.full(len(own), NO_ROW),
            enqueue_ns=self._enqueued.enqueue_ns[own],
            start_ns=self._events.start_ns[self._enqueued.event[own]],
            tie=own,
        )

    def _operators(self, launches: Ints, by_operator: Ints, device: _Items) -> _Items:
        """Return the operators that calls ran directly, and those that launched anything."""
        enclosing = self._enclosing
        is_own: Flags = enclosing.operator == np.arange(len(enclosing.operator), dtype=np.int32)
        called = np.flatnonzero(is_own & (enclosing.marker != NO_ROW))
        called = called[~enclosing.is_trial(called)]
        launching, first = np.unique(by_operator, return_index=True)
        launching, first = launching[launching != NO_ROW], first[launching != NO_ROW]
        is_additional = ~np.isin(launching, called)
        rows = np.append(called, launching[is_additional])
        count = len(self._events) + len(self._enqueued)
        tie = np.append(called, launches[first[is_additional]] + len(self._events)) + count
        marker, launched = enclosing.marker[rows], np.isin(rows, launching)
        is_kept = launched | ~np.isin(marker, device.marker[(device.code & 1) == 1])
        rows, launched = rows[is_kept], launched[is_kept]
        code, start_ns = operators(self._events, rows, launched), self._events.start_ns[rows]
        zero_column = np.zeros(len(rows), dtype=np.int64)
        return _Items(marker[is_kept], code, rows, start_ns, zero_column, tie[is_kept])

    def _lay_out(self, launches: Ints, by_operator: Ints, items: _Items) -> None:
        keys = (items.tie, items.start_ns, items.enqueue_ns, items.marker)
        order = np.lexsort(keys)
        self._marker, self._code = items.marker[order], items.code[order]
        self._row = items.row[order]
        # A launch without an operator is the item that has its number.
        wanted = np.where(by_operator == NO_ROW, launches, by_operator + len(self._enqueued))
        own = np.where(items.row == NO_ROW, items.tie, items.row + len(self._enqueued))[order]
        by_own = np.argsort(own)
        item = by_own[np.searchsorted(own[by_own], wanted)]
        by_item = np.argsort(item, kind="stable")
        self._launches, self._ran = launches[by_item], self._ran[by_item]
        self._begins = np.append(0, np.cumsum(np.bincount(item, minlength=len(own))))
        self._first = self._first_of_call(self._marker[item[by_item]], self._call[by_item])

    def _first_of_call(self, marker: Ints, call: Ints) -> Ints:
        """Return for each launch the first of its graph call that the same runtime call made."""
        keys = marker * (len(self._events) + 1) + call
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        return np.where(call == NO_ROW, NO_ROW, first[inverse.reshape(-1)])


@dataclass(frozen=True, slots=True, eq=False)
class GraphCall:
    """One call of a compiled graph, as the trace shows it."""

    marker: int  # row of the marker
    key: str | None  # cache key that the marker carries
    compile_id: str | None  # id of the compiled frame, or of the forward's; ``None`` unknown
    context: CallContext  # where it was called
    pattern: Pattern  # what it ran
    launches: Ints  # its launches, by item of what it ran and in enqueue order
    # Launches of compile work inside the call, each with its kind
    trials: tuple[tuple[int, GapReason], ...]
    # Which call it is within one run of a compiled function, and of how many
    place: tuple[int, int]
    graph: int | None  # the index of its graph that the process recorded, if any
    # Row of the compiled frame that it belongs to, a backward to its forward's
    frame_row: int | None
    rows: Ints  # the row of each item's operator, or ``NO_ROW``
    # The marker of the enclosing call and the operator there, if any
    caller: tuple[int, int] | None

    @property
    def work(self) -> tuple[WorkItem, ...]:
        """What it ran, in enqueue order."""
        return self.pattern.work

    @property
    def is_replay(self) -> bool:
        """Whether a CUDA graph was replayed in this call."""
        return self.pattern.is_replay

    def launches_of_items(self) -> list[list[int]]:
        """Return for each item of what it ran its launches, in enqueue order."""
        launches = iter(self.launches.tolist())
        return [list(islice(launches, len(own))) for own in self.pattern.events]


def find_calls(enclosing: EnclosingRanges, enqueued: EnqueuedLaunches) -> tuple[GraphCall, ...]:
    """Collect every call of a compiled graph and what it ran."""
    return _Calls(enclosing, enqueued).every()


class _Calls:
    def __init__(self, enclosing: EnclosingRanges, enqueued: EnqueuedLaunches) -> None:
        self._enclosing, self._enqueued = enclosing, enqueued
        marker = take(enclosing.marker, enqueued.cpu, NO_ROW)
        is_trial = enclosing.is_trial(enqueued.cpu)
        own = np.flatnonzero((marker != NO_ROW) & ~is_trial)
        trials = np.flatnonzero((marker != NO_ROW) & is_trial)
        self._work = WorkOfCalls(enclosing, enqueued, own)
        self._trials = _by_marker(marker[trials], trials)
        self._links, self._places = _forward_links(enclosing), _places(enclosing)

    def every(self) -> tuple[GraphCall, ...]:
        return tuple(map(self._call, np.flatnonzero(self._enclosing.is_marker).tolist()))

    def _call(self, marker: int) -> GraphCall:
        enclosing, name = self._enclosing, self._enclosing.events.name
        # The row at which the forward of a call ran: its own, or by sequence number.
        backward = enclosing.own(enclosing.backward, marker)
        forward = marker if backward == NO_ROW else self._links.forward_of(backward)
        # The row of a call's compiled frame; a backward's is that of its forward.
        frame = NO_ROW if forward is None else enclosing.own(enclosing.frame, forward)
        frame_row = None if frame == NO_ROW else frame
        pattern, launches, rows = self._work.of_call(marker)
        return GraphCall(
            marker=marker,
            key=names.graph_key(name[marker]),
            compile_id=None if frame_row is None else names.compile_id(name[frame_row]),
            context=enclosing.context(marker, forward, self._links),
            pattern=pattern,
            launches=launches,
            trials=tuple(self._trials_of(marker)),
            place=self._places[marker],
            graph=enclosing.graph(marker),
            frame_row=frame_row,
            rows=rows,
            caller=enclosing.caller(marker),
        )

    def _trials_of(self, marker: int) -> Iterator[tuple[int, GapReason]]:
        for launch in self._trials.get(marker, np.empty(0, dtype=np.int64)).tolist():
            yield launch, self._enclosing.compile_work(int(self._enqueued.cpu[launch]))


def _by_marker(marker: Rows, values: Ints) -> dict[int, Ints]:
    order = np.argsort(marker, kind="stable")
    distinct, first = np.unique(marker[order], return_index=True)
    return dict(zip(distinct.tolist(), np.split(values[order], first[1:]), strict=False))


def _forward_links(enclosing: EnclosingRanges) -> ForwardLinks:
    def rows(predicate: Callable[[str], bool]) -> Ints:
        return np.flatnonzero(flag_rows(enclosing.events.name, predicate) & enclosing.is_op)

    forward, backward = rows(classify.is_compiled_forward), rows(classify.is_compiled_backward)
    return ForwardLinks(enclosing.events, forward, backward)


def _places(enclosing: EnclosingRanges) -> dict[int, tuple[int, int]]:
    """Return for each marker which call it is within one run of a compiled function."""
    markers = np.flatnonzero(enclosing.is_marker)
    markers = markers[np.argsort(enclosing.events.start_ns[markers], kind="stable")]
    runs = _by_marker(enclosing.compiled_range[markers], markers).values()
    return {int(row): (at, len(own)) for own in runs for at, row in enumerate(own)}
