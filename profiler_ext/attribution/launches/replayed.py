"""Attributes what CUDA graphs replayed that the program captured itself, by their captures.

While a graph is captured each launch call becomes a node. So the recording of the capture, with its
nodes as launches, is attributed as any other, and each replayed launch has the place of its node.
Recordings of a forward and of its backward are attributed as one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, pairwise, takewhile
from typing import NamedTuple

import msgspec
import numpy as np

from profiler_ext.attribution.enclosing import EnclosingRanges
from profiler_ext.attribution.launches import compiled
from profiler_ext.attribution.launches.joined_captures import joined
from profiler_ext.attribution.launches.launch_table import LaunchAttribution, LaunchTable
from profiler_ext.attribution.launches.node_order import DIFFERS, NodeOrder, Replay
from profiler_ext.attribution.places import PlaceTable, gap_place
from profiler_ext.attribution.trace.launches import EnqueuedLaunches, find_launch_calls
from profiler_ext.attribution.trace.lookups import NO_ROW, take
from profiler_ext.attribution.trace.nesting import Nesting, nest
from profiler_ext.errors import TraceError
from profiler_ext.kineto import classify, names
from profiler_ext.kineto.names import (
    Category,
    CudaGraphMark,
    marked_cuda_graph,
)
from profiler_ext.kineto.recording import unpacked_capture
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import (
    Codes,
    Events,
    Interned,
    Ints,
    MaskedInts,
    Thread,
    first_rows,
    flag_rows,
    numbered,
    ranks,
)
from profiler_ext.records.evidence import SiteEvidence
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.recording import CapturedGraph, CaptureRecording, GraphNode, Recording
from profiler_ext.records.vocabulary import Phase

_QUEUE = Thread("CUDA graph", "nodes")
_STREAM = 2**31
"""Of nodes as launches: no stream of a device has this number."""
_WORDS = {
    Category.KERNEL: "Launch",
    Category.GPU_MEMCPY: "Memcpy",
    Category.GPU_MEMSET: "Memset",
}


class Attributed(NamedTuple):
    """The attribution of every launch of a recording."""

    enqueued: EnqueuedLaunches
    table: LaunchTable
    places: tuple[Place, ...]


class _Graph(NamedTuple):
    """A graph whose capture is attributed."""

    kinds: Ints  # for each of what replays ran, the kind of the nodes that run it
    order: NodeOrder
    numbers: Ints  # of each node, the number of its verdict


class ReplayAttributor:
    """Attributes the launches of replays."""

    def __init__(
        self,
        recording: Recording,
        enclosing: EnclosingRanges,
        enqueued: EnqueuedLaunches,
        places: PlaceTable,
        table: LaunchTable,
        attribute: Callable[[Recording], Attributed],
    ) -> None:
        self._recording, self._events = recording, enclosing.events
        self._enqueued, self._places, self._table = enqueued, places, table
        self._attribute = attribute
        self._graphs: dict[int, _Graph | None] = {}
        self._mark = _marks(enclosing)
        self._ran, self._what_ran = _what_ran(self._events, enqueued.event)
        self._captures = {each.number: each.capture for each in recording.cuda_graphs}

    def attribute_launches(self, launches: Ints) -> None:
        """Give the launches of replays their verdicts; others stay without one."""
        if not self._recording.cuda_graphs:
            return
        events, enqueued = self._events, self._enqueued
        is_replay = np.append(flag_rows(events.name, names.is_graph_launch), False)
        launches = launches[is_replay[enqueued.call[launches]]]
        mark = take(self._mark, enqueued.call[launches], NO_ROW)
        launches = launches[mark != NO_ROW]
        launches = launches[np.argsort(enqueued.call[launches], kind="stable")]
        begins = np.flatnonzero(np.diff(enqueued.call[launches], prepend=NO_ROW))
        for own in np.split(launches, begins[1:]) if len(launches) else []:
            self._attribute_replay(own)

    def _attribute_replay(self, launches: Ints) -> None:
        events, rows = self._events, self._enqueued.event[launches]
        mark = int(self._mark[self._enqueued.call[launches[0]]])
        number = marked_cuda_graph(events.name[mark], CudaGraphMark.REPLAYS)
        if number not in self._captures:
            return
        if number not in self._graphs:
            self._graphs |= self._attributed(self._captures[number])
        graph = self._graphs[number]
        if graph is None:
            nodes, numbers = np.full(len(rows), DIFFERS), rows
        else:
            kinds, streams = graph.kinds[self._ran[launches]], events.stream[rows].filled(0)
            replay = Replay(kinds, events.start_ns[rows], events.end_of(rows), streams)
            nodes = graph.order.match(replay)
            numbers = take(graph.numbers, np.maximum(nodes, NO_ROW), NO_ROW)
        for at in np.flatnonzero(nodes < 0).tolist():
            numbers[at] = self._table.number(self._gap(int(nodes[at]), int(rows[at])))
        self._table.assign(launches, numbers)

    def _gap(self, node: int, row: int) -> LaunchAttribution:
        reason = GapReason.REPLAY_DIFFERS if node == DIFFERS else GapReason.REPLAY_BRANCHES
        place = self._places.add(gap_place(reason, Phase.OTHER))
        name, category = self._events.name[row], self._events.category[row]
        return LaunchAttribution(compiled.kind_by_name(name, category, is_glue=True), (place,))

    @cached_property
    def _recordings(self) -> Mapping[int, tuple[tuple[int, ...], Recording]]:
        """The recording of each capture, with the captures in it."""
        unpacked = {at: _unpacked(each) for at, each in enumerate(self._recording.captures)}
        known = {at: each for at, each in unpacked.items() if each is not None}
        return {at: together for together in joined(known) for at in together[0]}

    def _attributed(self, capture: int) -> Iterator[tuple[int, _Graph | None]]:
        """Attribute the recording of a capture; yield each graph that was captured in it."""
        captures, recording = self._recordings.get(capture, ((capture,), None))
        graphs = [each for each in self._recording.cuda_graphs if each.capture in captures]
        if recording is None:
            return iter([(each.number, None) for each in graphs])
        recording = replace(recording, graphs=self._recording.graphs)
        with_nodes, rows = _with_nodes(recording, graphs)
        attributed = self._attribute(with_nodes)
        launch_of = {row: at for at, row in enumerate(attributed.enqueued.event.tolist())}
        return iter(
            [(g.number, self._graph(g, rows.get(g.number), attributed, launch_of)) for g in graphs]
        )

    def _graph(
        self,
        graph: CapturedGraph,
        rows: Ints | None,
        attributed: Attributed,
        launch_of: Mapping[int, int],
    ) -> _Graph | None:
        if rows is None:
            return None
        distinct = attributed.table.distinct
        own = attributed.table.spread_rows(range(len(distinct)))
        used, of_used = ranks(own[[launch_of[row] for row in rows.tolist()]])
        moved = (self._moved(distinct[each], attributed.places) for each in used.tolist())
        numbers = np.array([self._table.number(each) for each in moved], dtype=np.int64)[of_used]
        known = {node: at for at, node in enumerate(graph.kinds)}
        kinds = np.array([known.get(each, NO_ROW) for each in self._what_ran], dtype=np.int64)
        return _Graph(kinds, NodeOrder(graph.nodes, graph.edges, numbers), numbers)

    def _moved(self, outcome: LaunchAttribution, places: Sequence[Place]) -> LaunchAttribution:
        """Return a verdict of the capture's recording as one of this recording."""
        own = tuple(self._places.add(places[each]) for each in outcome.places)
        evidence = SiteEvidence.CAPTURED_NODE if outcome.evidence else ""
        return replace(outcome, places=own, evidence=evidence)


def _unpacked(capture: CaptureRecording) -> Recording | None:
    try:
        return unpacked_capture(capture)
    except (TraceError, ValueError):
        return None


def _marks(enclosing: EnclosingRanges) -> Ints:
    """Return for each event the mark of a replay around it."""

    def is_replay(name: str) -> bool:
        return marked_cuda_graph(name, CudaGraphMark.REPLAYS) is not None

    return enclosing.nesting.nearest(flag_rows(enclosing.events.name, is_replay)).astype(np.int64)


def _what_ran(events: Events, rows: Ints) -> tuple[Ints, list[GraphNode]]:
    """Return what each device event ran as a node would, by its number, each once."""
    columns = [each.codes[rows] for each in (events.name, events.category, events.launch_shape)]
    number = numbered(columns) if len(rows) else rows
    ran = []
    for row in rows[first_rows(number)].tolist():
        category, shape = events.category[row], events.launch_shape[row]
        is_kernel = category == Category.KERNEL
        sizes = msgspec.json.decode(shape or b"[]")[:2] if is_kernel else []
        flat = tuple(size for each in sizes if isinstance(each, list) for size in each)
        ran.append(GraphNode(events.name[row] if is_kernel else "", category, flat))
    return number, ran


def _with_nodes(
    recording: Recording, graphs: Sequence[CapturedGraph]
) -> tuple[Recording, dict[int, Ints]]:
    """Return a capture's recording with its nodes as launches, and the rows of each graph's."""
    events = recording.trace.events
    nesting = nest(events)
    calls: list[int] = []
    nodes: list[GraphNode] = []
    rows: dict[int, Ints] = {}
    captured = _calls_by_graph(events, nesting)
    for graph in graphs:
        kinds = [graph.kinds[kind] for kind in graph.nodes.tolist()]
        own = _calls_of_nodes(events, nesting, captured.get(graph.number, []), kinds)
        # Nodes are in the order of their calls: each waits for earlier ones only.
        if own is None or not bool((graph.edges[:, 0] < graph.edges[:, 1]).all()):
            continue
        rows[graph.number] = len(events) + len(calls) + np.arange(len(own))
        calls += own
        nodes += kinds
    complete = _with_launches(events, np.array(calls, dtype=np.int64), nodes)
    return replace(recording, trace=replace(recording.trace, events=complete)), rows


def _calls_by_graph(events: Events, nesting: Nesting) -> dict[int, list[int]]:
    """Return the launch calls that became nodes, by the graph that was captured meanwhile."""
    spans = _capture_spans(events)
    calls = find_launch_calls(events, nesting).event
    # What has run is of a stream that was not captured.
    on_device = flag_rows(events.category, classify.is_device_work)
    ran = events.correlation[on_device].compressed()
    correlation = events.correlation[calls].filled(NO_ROW)
    # A driver's call within a runtime's has the same correlation: it is a part of it.
    is_first = np.zeros(len(calls), dtype=np.bool_)
    is_first[np.unique(correlation, return_index=True)[1]] = True
    calls = calls[is_first & ~np.isin(correlation, ran)]
    # Calls are timed by another clock than marks, so one at an end may lie just outside.
    between = [(end + begin) // 2 for (_, _, end), (_, begin, _) in pairwise(spans)]
    at = np.searchsorted(np.array(between, dtype=np.int64), events.start_ns[calls])
    owned: dict[int, list[int]] = {number: [] for number, _, _ in spans}
    for call, span in zip(calls.tolist(), at.tolist(), strict=True):
        if spans:
            owned[spans[span][0]].append(call)
    return owned


def _capture_spans(events: Events) -> list[tuple[int, int, int]]:
    """Return the number, begin and end of each capture, in order of time."""
    times: dict[CudaGraphMark, dict[int, int]] = {CudaGraphMark.BEGINS: {}, CudaGraphMark.ENDS: {}}
    for what, known in times.items():
        numbers = [marked_cuda_graph(name, what) for name in events.name.strings]
        is_mark = np.array([number is not None for number in numbers], dtype=np.bool_)
        for row in np.flatnonzero(is_mark[events.name.codes]).tolist():
            known[numbers[events.name.codes[row]] or 0] = int(events.start_ns[row])
    begins, ends = times.values()
    return sorted(
        ((number, begin, ends[number]) for number, begin in begins.items() if number in ends),
        key=lambda span: span[1],
    )


def _calls_of_nodes(
    events: Events, nesting: Nesting, calls: Sequence[int], nodes: Sequence[GraphNode]
) -> list[int] | None:
    """Return the call of each node; ``None`` where it does not launch what the node runs."""
    # A copy or fill of no bytes becomes no node.
    own: list[int] = []
    left = list(reversed(calls))
    for node in nodes:
        word = _WORDS[Category(node.category)]
        while left and word not in events.name[left[-1]] and not _launches_kernel(events, left[-1]):
            left.pop()
        if not left or word not in events.name[left[-1]]:
            return None
        own.append(left.pop())
    if any(_launches_kernel(events, call) for call in left):
        return None
    unused = set(calls) - set(own)
    if any(_may_be_confused(events, nesting, call, own) for call in unused):
        return None
    pairs = zip(own, nodes, strict=True)
    return own if all(_has_name(events, nesting, *pair) for pair in pairs) else None


def _launches_kernel(events: Events, call: int) -> bool:
    return _WORDS[Category.KERNEL] in events.name[call]


def _may_be_confused(events: Events, nesting: Nesting, unused: int, own: Sequence[int]) -> bool:
    """Tell whether a call without a node stands beside one of another op that has its node."""
    # Between two kernels the order does not say which of several copies or fills it is.
    times = events.start_ns
    at = bisect_right(own, times[unused], key=lambda call: times[call])
    before = takewhile(lambda call: not _launches_kernel(events, call), reversed(own[:at]))
    after = takewhile(lambda call: not _launches_kernel(events, call), own[at:])
    same = (call for call in chain(before, after) if events.name[call] == events.name[unused])
    return any(nesting.parent[call] != nesting.parent[unused] for call in same)


def _has_name(events: Events, nesting: Nesting, call: int, node: GraphNode) -> bool:
    """Tell whether a node runs the kernel that the event around its call names, if it does."""
    around = int(nesting.parent[call])
    name = "" if around == NO_ROW else events.name[around]
    return not classify.is_generated_kernel(name) or name == node.name


def _with_launches(events: Events, calls: Ints, nodes: Sequence[GraphNode]) -> Events:
    """Return events and, for each call, what it launches: right after it, in a stream of its own.

    Nothing takes time: the nodes stand for what their replays run.
    """
    count = len(calls)
    number = np.zeros(count, dtype=np.int64)
    nothing = np.ma.MaskedArray(number, mask=np.ones(count, dtype=np.bool_))
    thread = np.full(count, len(events.threads), dtype=events.thread.dtype)
    return replace(
        events,
        position=np.append(events.position, events.position[calls]),
        name=_appended(events.name, [node.name or node.category for node in nodes]),
        category=_appended(events.category, [node.category for node in nodes]),
        thread=np.append(events.thread, thread),
        threads=(*events.threads, _QUEUE),
        start_ns=np.append(events.start_ns, events.start_ns[calls] + 1),
        duration_ns=np.append(events.duration_ns, number + 1),
        correlation=_joined(events.correlation, events.correlation[calls]),
        external_id=_joined(events.external_id, events.external_id[calls]),
        sequence_number=_joined(events.sequence_number, nothing),
        fwd_thread_id=_joined(events.fwd_thread_id, nothing),
        device=_joined(events.device, np.ma.MaskedArray(number)),
        stream=_joined(events.stream, np.ma.MaskedArray(number + _STREAM)),
        bytes_moved=_joined(events.bytes_moved, nothing),
        launch_shape=_appended(events.launch_shape, [""] * count),
    )


def _joined(column: MaskedInts, further: MaskedInts) -> MaskedInts:
    mask = np.append(np.ma.getmaskarray(column), np.ma.getmaskarray(further))
    return np.ma.MaskedArray(np.append(column.data, further.data), mask=mask)


def _appended(column: Interned, texts: Sequence[str]) -> Interned:
    known = {text: at for at, text in enumerate(column.strings)}
    codes = [known.setdefault(text, len(known)) for text in texts]
    every: Codes = np.append(column.codes, np.array(codes, dtype=column.codes.dtype))
    return Interned(every, tuple(known))
