"""Verifies the alignment by evidence that it did not use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate

import numpy as np

from profiler_ext.attribution.alignment.aligning import device_names
from profiler_ext.attribution.graph_calls import DeviceEvent, GraphCall, Match, Pattern, WorkItem
from profiler_ext.attribution.trace.launches import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags
from profiler_ext.kineto import classify, names
from profiler_ext.records import provenance, vocabulary
from profiler_ext.records.events import Events, Ints

# The name of every Triton kernel where Inductor is configured without unique names
_NAMELESS_KERNEL = "triton_"


def is_plausible(items: Sequence[WorkItem], matches: Sequence[Match]) -> bool:
    """Tell whether the graph can be the right one: most of its generated kernels fit."""
    # matches: the call site of each item, in one graph
    generated = [
        match.site is not None
        for item, match in zip(items, matches, strict=True)
        if classify.is_generated_kernel(item.name)
    ]
    return 2 * sum(generated) >= len(generated)


def contradicted(
    pattern: Pattern,
    sites: Sequence[provenance.CallSite],
    matches: Sequence[Match],
    out_of_order: Collection[int],
) -> set[int]:
    """Return the launches whose device event contradicts their call site."""
    # A generated kernel runs once a call, under its own name; a library call runs no kernel of the
    # graph; one runtime call launches one kernel unless it replays; and what a stream ran out of
    # order was tied to the wrong call.
    # matches: the call site of each item of the call's work
    wrong = {*out_of_order, *_duplicated(pattern)}
    for match, (first, events) in zip(matches, _counted(pattern), strict=True):
        if match.site is not None and any(
            classify.is_device_work(event.category) for event in events
        ):
            wrong.update(first + at for at in _misnamed(sites[match.site], events))
    return wrong | _out_of_order_replays(pattern, wrong)


def _counted(pattern: Pattern) -> list[tuple[int, tuple[DeviceEvent, ...]]]:
    """Return what each item's launches ran, and the number of its first launch."""
    firsts = accumulate(map(len, pattern.events), initial=0)
    return list(zip(firsts, pattern.events, strict=False))


def _out_of_order_replays(pattern: Pattern, wrong: set[int]) -> set[int]:
    # Which of them ran in its position is unknown.
    pieces = zip(pattern.work, _counted(pattern), strict=True)
    replayed = [(i.name, range(at, at + len(own))) for i, (at, own) in pieces if i.replayed]
    names_out = {name for name, own in replayed if wrong.intersection(own)}
    return {launch for name, own in replayed if name in names_out for launch in own}


def _misnamed(site: provenance.CallSite, events: Sequence[DeviceEvent]) -> Sequence[int]:
    own_names = (*device_names(site), _NAMELESS_KERNEL)
    kernels = [names.kernel_name(event.name) for event in events]
    if site.kind is vocabulary.SiteKind.EXTERN:
        return [
            at
            for at, name in enumerate(kernels)
            if (name == _NAMELESS_KERNEL or classify.is_generated_kernel(name))
        ]
    is_wrong = len(kernels) > 1 or any(name not in own_names for name in kernels)
    return range(len(kernels)) if is_wrong else ()


def _duplicated(pattern: Pattern) -> set[int]:
    launched = dict[int, list[int]]()
    for item, (first, events) in zip(pattern.work, _counted(pattern), strict=True):
        for at, event in enumerate(() if item.replayed else events, start=first):
            if classify.is_kernel(event.category) and event.call != NO_ROW:
                launched.setdefault(event.call, []).append(at)
    return {launch for launches in launched.values() if len(launches) > 1 for launch in launches}


class StreamOrder:
    """The launches of each stream in the order in which they were enqueued.

    A launch without a launch call has no position.
    """

    def __init__(self, events: Events, enqueued: EnqueuedLaunches) -> None:
        self.queue = enqueued.queue
        self._rows = enqueued.event
        self._starts = events.start_ns[enqueued.event]
        by_time = np.lexsort((enqueued.enqueue_ns, enqueued.queue))
        self.launches = by_time[(enqueued.call[by_time] != NO_ROW) | enqueued.on_cpu]
        self.place = np.full(len(by_time), NO_ROW)
        self.place[self.launches] = np.arange(len(self.launches))
        starts, queues = self._starts[self.launches], self.queue[self.launches]
        falls = (starts[1:] < starts[:-1]) & (queues[1:] == queues[:-1])
        self._falls: Ints = np.append(0, np.cumsum(falls))

    def out_of_order_in(self, own: Ints) -> Ints:
        """Find a call's launches that a stream ran before one which was enqueued earlier on it."""
        placed = own[self.place[own] != NO_ROW]
        if not self._falls_among(self.place[placed]):
            return np.empty(0, dtype=np.int64)
        wrong = [each[_inverted(self._starts[each])] for each in self._with_neighbours(placed)]
        return np.flatnonzero(np.isin(own, np.concatenate(wrong)))

    def is_in_trace_order(self, call: GraphCall) -> bool:
        """Tell whether a call's launches ran in the order in which the profiler wrote them."""
        # It writes what a stream ran as that ends, and nothing of another call in between.
        pairs = zip(call.work, call.launches_of_items(), strict=True)
        own = np.array([at for item, launches in pairs if item.replayed for at in launches], int)
        streams = [own[self.queue[own] == queue] for queue in np.unique(self.queue[own])]
        written = all(bool((np.diff(self._rows[launches]) > 0).all()) for launches in streams)
        return written and not len(self.out_of_order_in(call.launches))

    def _falls_among(self, places: Ints) -> bool:
        """Tell whether anything ran out of order around some positions."""
        if not len(places):
            return False
        first, last = max(int(places.min()) - 1, 0), int(places.max()) + 1
        return bool(self._falls[min(last, len(self._falls) - 1)] > self._falls[first])

    def _with_neighbours(self, own: Ints) -> Iterator[Ints]:
        """Return the launches of a call and one before and after them, for each stream."""
        for queue in np.unique(self.queue[own]):
            places = self.place[own[self.queue[own] == queue]]
            neighbours = self.launches[max(int(places.min()) - 1, 0) : int(places.max()) + 2]
            yield neighbours[self.queue[neighbours] == queue]


def _inverted(starts: Ints) -> Flags:
    latest_before = np.maximum.accumulate(starts)
    earliest_after = np.minimum.accumulate(starts[::-1])[::-1]
    return (starts < latest_before) | (starts > earliest_after)
