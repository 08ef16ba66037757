"""Where each block was allocated: the call site of a compiled graph, or the line of an eager op."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.attribution.alignment.invocations import Invocation
from profiler_ext.attribution.analysis import GraphCalls, identify_calls
from profiler_ext.attribution.launches.eager import EagerAttributor
from profiler_ext.attribution.launches.launch_table import LaunchTable
from profiler_ext.attribution.phases import call_phase
from profiler_ext.attribution.places import SourceRoots
from profiler_ext.attribution.trace.launches import EnqueuedLaunches, find_launches
from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.attribution.trace.nesting import Nesting, nest
from profiler_ext.kineto import classify
from profiler_ext.memory.blocks import Block
from profiler_ext.memory.wrappers import ITEM_BYTES, Statement, Wrapper, saved_values
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Events, Ints, flag_rows
from profiler_ext.records.lineage import Frame
from profiler_ext.records.memory import NO_STACK, BirthEvidence, MemoryGap, MemoryRecord
from profiler_ext.records.provenance import (
    CallSite,
    FxNode,
    GraphInstance,
    TensorSpec,
    is_view_op,
)
from profiler_ext.records.recording import Recording
from profiler_ext.records.vocabulary import Level


@dataclass(frozen=True, slots=True)
class Birth:
    """Where a block was allocated."""

    place: Place
    evidence: BirthEvidence | None = None
    kernel: str = ""  # of the call site
    buffer: str = ""  # the wrapper's name
    row: int = NO_ROW  # innermost CPU event around it
    is_workspace: bool = False


class RowsAt:
    """The innermost op or range around a moment of a thread."""

    def __init__(self, events: Events, nesting: Nesting) -> None:
        self._events, self._parent = events, nesting.parent
        is_call = flag_rows(events.category, classify.is_runtime_call)
        rows = np.flatnonzero((nesting.depth != NO_ROW) & ~is_call)
        rows = rows[np.lexsort((nesting.depth[rows], events.start_ns[rows]))]
        self._rows: dict[int | str, Ints] = {}
        for number, thread in enumerate(events.threads):
            own = rows[events.thread[rows] == number]
            if len(own):
                self._rows[thread.tid] = own
        self._starts = {tid: events.start_ns[own].tolist() for tid, own in self._rows.items()}

    def at(self, thread: int, time_ns: int) -> int:
        """Return the row, or ``NO_ROW``."""
        at = bisect_right(self._starts.get(thread, []), time_ns) - 1
        row = NO_ROW if at < 0 else int(self._rows[thread][at])
        while row != NO_ROW and self._events.end_at(row) < time_ns:
            row = int(self._parent[row])
        return row


class Births:
    """Attributes allocations, as launches are."""

    def __init__(self, recording: Recording, record: MemoryRecord) -> None:
        events = recording.trace.events
        self.recording, self._record, self._events = recording, record, events
        self.nesting = nest(events)
        enqueued = find_launches(events, self.nesting)
        self.calls: GraphCalls = identify_calls(recording, self.nesting, enqueued)
        self.enclosing = self.calls.enclosing
        self.rows = RowsAt(events, self.nesting)
        self._invocations = {each.call.marker: each for each in self.calls.invocations}
        texts = {path: module.text for module in recording.generated for path in module.paths}
        self._wrappers = {path: Wrapper(text) for path, text in texts.items()}
        self._roots = SourceRoots(recording.settings)
        self._stored = _StoredNodes(recording.graphs)
        self._saved = [self._saved_of(each) for each in recording.graphs]

    def _saved_of(self, graph: GraphInstance) -> dict[str, str]:
        """Return the node in each buffer that a forward graph saves for its backward."""
        backwards = [
            each
            for each in self.recording.graphs
            if graph.joint is not None and each.joint == graph.joint and each.runs_backward
        ]
        forward = self._wrapper(graph)
        backward = self._wrapper(backwards[0]) if len(backwards) == 1 else None
        if graph.runs_backward or forward is None or backward is None:
            return {}
        return saved_values(forward, backward, frozenset(forward.arguments))

    def of(self, blocks: Sequence[Block], every: Iterable[Block]) -> list[Birth]:
        """Return the birth of some of all blocks."""
        rows = [self._row(each) for each in blocks]
        eager = self._eager({row for row in rows if row != NO_ROW})
        ordered = self._by_order(every)
        births = []
        for block, row in zip(blocks, rows, strict=True):
            marker = NO_ROW if row == NO_ROW else int(self.enclosing.marker[row])
            if block.is_older:
                births.append(Birth(Place(gap=MemoryGap.BEFORE_RECORDING)))
            elif marker in self._invocations and self._invocations[marker].graph is not None:
                births.append(self._compiled(block, row, marker, ordered.get(id(block))))
            else:
                births.append(self._with_stack(block, row, eager.get(row)))
        return births

    def _row(self, block: Block) -> int:
        return NO_ROW if block.is_older else self.rows.at(block.born_on, block.born_ns)

    def _eager(self, rows: Iterable[int]) -> dict[int, Place]:
        """Return the place of each row, as if it had launched something."""
        own = np.array(sorted(rows, key=lambda row: int(self._events.start_ns[row])), np.int64)
        none = np.full(len(own), NO_ROW, np.int64)
        queue = np.zeros(len(own), np.int64)
        enqueued = EnqueuedLaunches(own, none, own, self._events.start_ns[own], queue, True)
        table, places = LaunchTable(len(own)), self.calls.places
        attributor = EagerAttributor(self.enclosing, enqueued, places, table, self.recording)
        attributor.attribute_launches(np.arange(len(own)))
        main = table.spread_rows([outcome.main_place for outcome in table.distinct])
        every = places.places
        return {row: every[main[at]] for at, row in enumerate(own.tolist())}

    def _with_stack(self, block: Block, row: int, place: Place | None) -> Birth:
        """Return the place of an eager op; the allocation's own stack where that has no line."""
        found = place or Place(gap=MemoryGap.NO_OP)
        if found.aten_op is None and found.line is None:
            found = replace(found, gap=MemoryGap.NO_OP)  # the launch's reason is of no allocation
        in_engine = row != NO_ROW and self.enclosing.engine[row] != NO_ROW
        if found.line is not None or in_engine or block.stack == NO_STACK:
            return Birth(found, BirthEvidence.OP, row=row)
        stack = tuple(reversed([*self._frames(block.stack)]))
        lined = self._roots.with_line(found, stack)
        if lined.line is None:
            return Birth(found, BirthEvidence.OP, row=row)
        lined = replace(lined, gap=None, stack=stack, level=Level.LINE)
        return Birth(lined, BirthEvidence.PYTHON_STACK, row=row)

    def _frames(self, stack: int) -> Iterator[Frame]:
        for number in self._record.stacks[stack]:
            frame = self._record.frames[number]
            yield Frame(frame.file, frame.line, frame.function)

    def _by_order(self, every: Iterable[Block]) -> dict[int, Statement]:
        """Return the wrapper's statement of blocks without a stack, by order within each call."""
        direct: dict[int, list[Block]] = defaultdict(list)
        for block in every:
            row = self._row(block) if block.stack == NO_STACK else NO_ROW
            if row != NO_ROW and self.enclosing.is_marker[row]:
                direct[row].append(block)
        found: dict[int, Statement] = {}
        for marker, own in direct.items():
            wrapper = self._wrapper(self._graph(marker))
            own.sort(key=lambda each: each.born_ns)
            statements = wrapper and wrapper.in_order([each.size_bytes for each in own])
            found |= {id(b): s for b, s in zip(own, statements or (), strict=False)}
        return found

    def _graph(self, marker: int) -> GraphInstance | None:
        invocation = self._invocations.get(marker)
        if invocation is None or invocation.graph is None:
            return None
        return self.recording.graphs[invocation.graph]

    def _wrapper(self, graph: GraphInstance | None) -> Wrapper | None:
        return None if graph is None else self._wrappers.get(graph.output_module or "")

    def _compiled(self, block: Block, row: int, marker: int, ordered: Statement | None) -> Birth:
        """Return the call site that a block was allocated for."""
        invocation, graph = self._invocations[marker], self._graph(marker)
        assert graph is not None
        wrapper = self._wrapper(graph)
        statement = self._statement(block, graph, wrapper) or ordered
        if statement is not None and wrapper is not None:
            evidence = BirthEvidence.WRAPPER_ORDER if ordered else BirthEvidence.WRAPPER_LINE
            for buffers in wrapper.buffers(statement):
                own = (s for s in graph.call_sites if not {*buffers}.isdisjoint(s.writes))
                site = next(own, None)
                if site is not None:
                    birth = self._at_site(block, invocation, site, buffers)
                    return replace(
                        birth, evidence=evidence, row=row, is_workspace=statement.is_workspace
                    )
        site = self._site_of_op(row, invocation, graph)
        if site is not None:
            birth = self._at_site(block, invocation, site, site.writes)
            return replace(birth, evidence=BirthEvidence.GRAPH_OP, row=row)
        phase = call_phase(graph, invocation.call.context)
        gap = Place(graph=invocation.graph, phase=phase, gap=MemoryGap.NO_CALL_SITE)
        return Birth(gap, row=row)

    def _statement(
        self, block: Block, graph: GraphInstance, wrapper: Wrapper | None
    ) -> Statement | None:
        if block.stack == NO_STACK or wrapper is None:
            return None
        lines = (f.line for f in self._frames(block.stack) if f.file == graph.output_module)
        return next(filter(None, map(wrapper.at_line, lines)), None)

    def _site_of_op(
        self, row: int, invocation: Invocation, graph: GraphInstance
    ) -> CallSite | None:
        operator = int(self.enclosing.operator[row])
        pairs = zip(invocation.call.rows.tolist(), invocation.matches, strict=True)
        if operator == NO_ROW:
            return None
        at = next((match.site for item, match in pairs if item == operator), None)
        return None if at is None else graph.call_sites[at]

    def _at_site(
        self, block: Block, invocation: Invocation, site: CallSite, buffers: Sequence[str]
    ) -> Birth:
        """Return the place of the value that a call site stores in a block."""
        assert invocation.graph is not None
        graph = self.recording.graphs[invocation.graph]
        written = [each for each in site.writes if each in buffers]
        buffer = written[0] if len(written) == 1 else ""
        nodes = self._stored.nodes(invocation.graph, site, block.size_bytes)
        saved = self._saved[invocation.graph].get(buffer)
        if len(nodes) > 1 and saved is not None:
            viewed = self._stored.viewed(invocation.graph, saved)
            nodes = [viewed] if viewed in site.nodes else nodes
        places = [
            self.calls.places.of_node(invocation.graph, node, invocation.call.context)
            for node in nodes
        ]
        lines = {(each.file, each.line, each.module, each.gap) for each in places}
        if len(lines) == 1:
            return Birth(places[-1], kernel=site.kernel, buffer=buffer)
        modules = {(each.module, each.module_class) for each in places}
        module, module_class = modules.pop() if len(modules) == 1 else (None, None)
        place = Place(
            graph=invocation.graph,
            phase=places[-1].phase if places else call_phase(graph, invocation.call.context),
            module=module,
            module_class=module_class,
            level=Level.OP,
            gap=MemoryGap.SEVERAL_VALUES if places else MemoryGap.NO_CALL_SITE,
        )
        return Birth(place, kernel=site.kernel, buffer=buffer)


class _StoredNodes:
    """Which nodes of a call site may be the value of a buffer.

    A kernel with one buffer stores its last node. Of a kernel with several, those that another call
    site, or the backward, reads, and the last one.
    """

    def __init__(self, graphs: Sequence[GraphInstance]) -> None:
        self._graphs = graphs
        self._known = [{node.name: node for node in graph.nodes} for graph in graphs]
        self._read_later: dict[str, set[str]] = defaultdict(set)
        for graph in graphs:
            own = {node.name for node in graph.nodes}
            if graph.joint is not None and graph.runs_backward:
                for node in graph.nodes:
                    self._read_later[graph.joint] |= {*node.inputs} - own

    def viewed(self, number: int, name: str) -> str:
        """Return the node that a view is of, through any views."""
        known = self._known[number]
        while name in known and is_view_op(known[name].target) and known[name].inputs:
            name = known[name].inputs[0]
        return name

    def nodes(self, number: int, site: CallSite, size_bytes: int) -> list[str]:
        """Return the nodes in program order; several are of one size."""
        if len(site.writes) <= 1:
            return [*site.nodes[-1:]]
        graph, known = self._graphs[number], self._known[number]
        own = {*site.nodes}
        read = {name for node in graph.nodes if node.name not in own for name in node.inputs}
        read |= self._read_later.get(graph.joint or "", set())
        stored = [each for each in site.nodes if each in read or each == site.nodes[-1]]
        fitting = [each for each in stored if each in known and _fits(known[each], size_bytes)]
        return fitting or stored


def _fits(node: FxNode, size_bytes: int) -> bool:
    """Tell whether a node has an output of a block's size, or one of an unknown size."""
    sizes = [_bytes(spec) for spec in node.outputs]
    return any(each is None or rounds_to(each, size_bytes) for each in sizes)


_ROUNDED_BYTES = 512
"""Source: ``c10/cuda/CUDACachingAllocator.h``, ``kMinBlockSize``."""
_UNSPLIT_BYTES = 1 << 20
"""A block of the large pool keeps a rest that is not larger: ``kSmallSize``."""


def rounds_to(size_bytes: int, block_bytes: int) -> bool:
    """Tell whether the allocator gives a block of this size for so many bytes."""
    if size_bytes > block_bytes:
        return False
    room_bytes = _UNSPLIT_BYTES if size_bytes > _UNSPLIT_BYTES else 0
    return block_bytes - size_bytes <= room_bytes + _ROUNDED_BYTES - 1


def _bytes(spec: TensorSpec) -> int | None:
    item = ITEM_BYTES.get(spec.dtype.removeprefix("torch."))
    sizes = [each for each in spec.size if isinstance(each, int)]
    strides = [each for each in spec.stride if isinstance(each, int)]
    if item is None or len(sizes) < len(spec.size) or len(strides) < len(spec.stride):
        return None
    if 0 in sizes:
        return 0
    return item * (1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)))
