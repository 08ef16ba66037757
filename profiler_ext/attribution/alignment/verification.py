"""Owns the second rule: it checks what the alignment found by means the alignment did not use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from profiler_ext.attribution.alignment.aligning import device_names
from profiler_ext.attribution.alignment.matching import Match
from profiler_ext.attribution.calls.graph_calls import GraphCall
from profiler_ext.attribution.calls.work_items import WorkItem
from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags
from profiler_ext.kineto import classify, names
from profiler_ext.records import CallSite, Events, Ints, SiteKind

_NAMELESS_KERNEL = "triton_"
"""The name of every Triton kernel where Inductor was told not to give unique ones."""


def is_plausible(items: Sequence[WorkItem], matches: Sequence[Match]) -> bool:
    """Tell whether the graph can be the right one: most of its generated kernels fit.

    Args:
        items: the work of a call.
        matches: for each piece of it the call site of one graph that it was led to.
    """
    generated = [
        match.site is not None
        for item, match in zip(items, matches, strict=True)
        if classify.is_generated_kernel(item.name)
    ]
    return 2 * sum(generated) >= len(generated)


def contradicted(
    events: Events,
    enqueued: EnqueuedLaunches,
    call: GraphCall,
    sites: Sequence[CallSite],
    matches: Sequence[Match],
    order: StreamOrder,
) -> set[int]:
    """Find the launches whose device event contradicts the call site they were led to.

    A generated kernel runs once a call, under its own name; a library call runs no kernel
    of the graph; one call of the runtime launches one kernel unless it replays; and what a
    stream ran in another order than it was enqueued was tied to the wrong call.

    Args:
        events: the trace's events.
        enqueued: its launches.
        call: a call of a graph.
        sites: the graph's call sites.
        matches: for each piece of the call's work the call site that it was led to.
        order: in which order the streams ran what was enqueued.

    Returns:
        Positions in the call's work.
    """
    wrong = order.broken_by(call) | _doubled(events, enqueued, call)
    for match, launches in zip(matches, call.launches, strict=True):
        if match.site is not None and not enqueued.on_cpu:
            wrong.update(_misnamed(events, enqueued, sites[match.site], launches))
    return wrong | _moved_up(call, wrong)


def _moved_up(call: GraphCall, wrong: set[int]) -> set[int]:
    """Find what a replay ran under the name of a launch that is out of its order.

    Which of them ran at its place cannot be told.
    """
    pieces = list(zip(call.work, call.launches, strict=True))
    names_out = {item.name for item, own in pieces if item.replayed and wrong.intersection(own)}
    moved = (own for item, own in pieces if item.replayed and item.name in names_out)
    return {launch for own in moved for launch in own}


def _misnamed(
    events: Events, enqueued: EnqueuedLaunches, site: CallSite, launches: Sequence[int]
) -> Iterator[int]:
    own_names = (*device_names(site), _NAMELESS_KERNEL)
    kernels = [names.kernel_name(events.name[int(enqueued.event[at])]) for at in launches]
    if site.kind is SiteKind.EXTERN:
        yield from (at for at, name in zip(launches, kernels, strict=True) if _is_inductors(name))
    elif len(launches) > 1 or any(name not in own_names for name in kernels):
        yield from launches


def _is_inductors(name: str) -> bool:
    return name == _NAMELESS_KERNEL or classify.is_generated_kernel(name)


def _doubled(events: Events, enqueued: EnqueuedLaunches, call: GraphCall) -> set[int]:
    """Find kernels that share one launching call which is no replay."""
    launched = dict[int, list[int]]()
    for item, launches in zip(call.work, call.launches, strict=True):
        for launch in launches if not item.replayed else ():
            if classify.is_kernel(events.category[int(enqueued.event[launch])]):
                launched.setdefault(int(enqueued.call[launch]), []).append(launch)
    launched.pop(NO_ROW, None)
    return {launch for launches in launched.values() if len(launches) > 1 for launch in launches}


class StreamOrder:
    """The launches of each stream, in the order in which they were enqueued.

    What has no launching call has no place: nobody knows when it was enqueued.
    """

    def __init__(self, events: Events, enqueued: EnqueuedLaunches) -> None:
        """Sort the launches.

        Args:
            events: the trace's events.
            enqueued: its launches.
        """
        self.queue = enqueued.queue
        self._rows = enqueued.event
        self._starts = events.start_ns[enqueued.event]
        by_time = np.lexsort((enqueued.enqueue_ns, enqueued.queue))
        self.launches = by_time[(enqueued.call[by_time] != NO_ROW) | enqueued.on_cpu]
        self.place = np.full(len(by_time), NO_ROW)
        self.place[self.launches] = np.arange(len(self.launches))

    def broken_by(self, call: GraphCall) -> set[int]:
        """Find a call's launches that a stream ran before one which was enqueued earlier on it.

        Returns:
            Indices of launches.
        """
        own = np.array([at for launches in call.launches for at in launches], dtype=np.int64)
        wrong = set[int]()
        for launches in self._with_neighbours(own[self.place[own] != NO_ROW]):
            wrong.update(launches[_inverted(self._starts[launches])].tolist())
        return wrong.intersection(own.tolist())

    def is_as_written(self, call: GraphCall) -> bool:
        """Tell whether a call's launches ran in the order in which the profiler wrote them down.

        It writes what a stream ran as that ends, and nothing of another call in between.
        """
        replayed = zip(call.work, call.launches, strict=True)
        own = np.array([at for u, launches in replayed if u.replayed for at in launches], np.int64)
        streams = [own[self.queue[own] == queue] for queue in np.unique(self.queue[own])]
        written = all(bool((np.diff(self._rows[launches]) > 0).all()) for launches in streams)
        return written and not self.broken_by(call)

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
