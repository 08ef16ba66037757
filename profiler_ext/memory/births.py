"""Where each block was allocated: the call site of a compiled graph, or the line of an eager op."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.attribution.alignment.invocations import Invocation
from profiler_ext.attribution.analysis import GraphCalls, identify_calls
from profiler_ext.attribution.enclosing import CallContext
from profiler_ext.attribution.launches.eager import EagerAttributor
from profiler_ext.attribution.launches.launch_table import LaunchTable
from profiler_ext.attribution.phases import call_phase
from profiler_ext.attribution.places import PlaceTable, SourceRoots
from profiler_ext.attribution.trace.launches import EnqueuedLaunches, find_launches
from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.attribution.trace.nesting import Nesting, nest
from profiler_ext.kineto import classify
from profiler_ext.memory.blocks import NEVER, Block
from profiler_ext.memory.wrappers import ITEM_BYTES, Statement, Wrapper, saved_values
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Events, Ints, flag_rows
from profiler_ext.records.lineage import Frame
from profiler_ext.records.memory import (
    NO_STACK,
    BirthEvidence,
    MemoryGap,
    MemoryKind,
    MemoryRecord,
    StackFrame,
)
from profiler_ext.records.provenance import CallSite, FxNode, GraphInstance, TensorSpec, is_view_op
from profiler_ext.records.recording import GeneratedModule, Recording
from profiler_ext.records.vocabulary import Level

_CONCATENATION = "aten.cat.default"


@dataclass(frozen=True, slots=True)
class Birth:
    """Where a block was allocated."""

    place: Place
    evidence: BirthEvidence | None = None
    kernel: str = ""  # of the call site
    buffer: str = ""  # the wrapper's name
    row: int = NO_ROW  # innermost CPU event around it
    is_workspace: bool = False
    marker: int = NO_ROW  # of the graph's call
    site: int = 0  # the call site there, by its ordinal
    buffers: tuple[str, ...] = ()  # the wrapper's names that it may have, if the graph's


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
        self.recording, self.record, self._events = recording, record, events
        self.nesting = nest(events)
        enqueued = find_launches(events, self.nesting)
        self.calls: GraphCalls = identify_calls(recording, self.nesting, enqueued)
        self.enclosing = self.calls.enclosing
        self.rows = RowsAt(events, self.nesting)
        self._invocations = {each.call.marker: each for each in self.calls.invocations}
        self.values = StoredValues(recording.graphs, recording.generated, self.calls.places)
        self._roots = SourceRoots(recording.settings)

    def of(self, blocks: Sequence[Block], every: Iterable[Block]) -> list[Birth]:
        """Return the birth of some of all blocks."""
        rows = [self._row(each) for each in blocks]
        eager = self.places_at(rows)
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

    def row_of_free(self, block: Block) -> int:
        """Return the innermost row in which a block is freed, or ``NO_ROW``."""
        if block.freed_ns == NEVER:
            return NO_ROW
        return self.rows.at(block.freed_on, block.freed_ns)

    def places_at(self, rows: Iterable[int]) -> dict[int, Place]:
        """Return the place of each row, as if it had launched something."""
        rows = {row for row in rows if row != NO_ROW}
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

    def library(self, block: Block) -> Allocated | None:
        """Return what torch allocated for itself in a block; ``None`` for the program's own."""
        stack = () if block.stack == NO_STACK else self.record.stacks[block.stack]
        return allocated_by([self.record.frames[at] for at in stack])

    def _frames(self, stack: int) -> Iterator[Frame]:
        for number in self.record.stacks[stack]:
            frame = self.record.frames[number]
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
            graph = self._graph(marker)
            wrapper = None if graph is None else self.values.wrapper(graph)
            own.sort(key=lambda each: each.born_ns)
            statements = wrapper and wrapper.in_order([each.size_bytes for each in own])
            found |= {id(b): s for b, s in zip(own, statements or (), strict=False)}
        return found

    def _graph(self, marker: int) -> GraphInstance | None:
        invocation = self._invocations.get(marker)
        if invocation is None or invocation.graph is None:
            return None
        return self.recording.graphs[invocation.graph]

    def _compiled(self, block: Block, row: int, marker: int, ordered: Statement | None) -> Birth:
        """Return the call site that a block was allocated for."""
        invocation, graph = self._invocations[marker], self._graph(marker)
        assert graph is not None and invocation.graph is not None
        context, number = invocation.call.context, invocation.graph
        lines = self._lines_in(graph, block.stack)
        statement = self.values.statement(graph, lines) or ordered
        if statement is not None:
            evidence = BirthEvidence.WRAPPER_ORDER if ordered else BirthEvidence.WRAPPER_LINE
            birth = self.values.of_statement(number, context, statement, block.size_bytes)
            if birth is not None:
                return replace(birth, evidence=evidence, row=row, marker=marker)
        site = self._site_of_op(row, invocation, graph)
        if site is not None:
            birth = self.values.at_site(number, context, site, site.writes, block.size_bytes)
            evidence = BirthEvidence.GRAPH_OP
            return replace(birth, evidence=evidence, row=row, marker=marker, buffers=site.writes)
        phase = call_phase(graph, context)
        gap = Place(graph=number, phase=phase, gap=MemoryGap.NO_CALL_SITE)
        return Birth(gap, row=row, marker=marker)

    def _lines_in(self, graph: GraphInstance, stack: int) -> Iterator[int]:
        """Yield the lines of a graph's wrapper in a stack, innermost first."""
        if stack != NO_STACK:
            yield from (f.line for f in self._frames(stack) if f.file == graph.output_module)

    def _site_of_op(
        self, row: int, invocation: Invocation, graph: GraphInstance
    ) -> CallSite | None:
        operator = int(self.enclosing.operator[row])
        pairs = zip(invocation.call.rows.tolist(), invocation.matches, strict=True)
        if operator == NO_ROW:
            return None
        at = next((match.site for item, match in pairs if item == operator), None)
        return None if at is None else graph.call_sites[at]


class StoredValues:
    """The value in a block, by the wrapper's statement that allocates it."""

    def __init__(
        self,
        graphs: Sequence[GraphInstance],
        generated: Iterable[GeneratedModule],
        places: PlaceTable,
    ) -> None:
        texts = {path: module.text for module in generated for path in module.paths}
        self._graphs, self._places = graphs, places
        self._wrappers = {path: Wrapper(text) for path, text in texts.items()}
        self.known = [{node.name: node for node in graph.nodes} for graph in graphs]
        # The nodes in each buffer that a forward graph saves for its backward
        self.saved = [self._saved_of(each) for each in graphs]
        self._inferred = _InferredNodes(graphs, self)

    def _saved_of(self, graph: GraphInstance) -> dict[str, tuple[str, ...]]:
        """Return the nodes in each buffer that a forward graph saves for its backward."""
        backwards = [
            each
            for each in self._graphs
            if graph.joint is not None and each.joint == graph.joint and each.runs_backward
        ]
        forward = self.wrapper(graph)
        backward = self.wrapper(backwards[0]) if len(backwards) == 1 else None
        if graph.runs_backward or forward is None or backward is None:
            return {}
        return saved_values(forward, backward, frozenset(forward.arguments))

    def wrapper(self, graph: GraphInstance) -> Wrapper | None:
        """Return the wrapper of a graph, if its code was kept."""
        return self._wrappers.get(graph.output_module or "")

    def viewed(self, number: int, name: str) -> str:
        """Return the node that a view is of, through any views."""
        known = self.known[number]
        while name in known and is_view_op(known[name].target) and known[name].inputs:
            name = known[name].inputs[0]
        return name

    def is_saved(self, graph: int, buffer: str) -> bool:
        """Tell whether a forward graph hands a buffer to its backward."""
        return buffer in self.saved[graph]

    def statement(self, graph: GraphInstance, lines: Iterable[int]) -> Statement | None:
        """Return the first statement of a graph's wrapper at one of some lines."""
        wrapper = self.wrapper(graph)
        return None if wrapper is None else next(filter(None, map(wrapper.at_line, lines)), None)

    def of_statement(
        self, number: int, context: CallContext, statement: Statement, size_bytes: int
    ) -> Birth | None:
        """Return the value in the block that a statement allocates, if a call site stores it."""
        graph = self._graphs[number]
        wrapper = self.wrapper(graph)
        for buffers in () if wrapper is None else wrapper.buffers(statement):
            # What reads a block, and does not write it, is not what it was allocated for.
            read = {*statement.variables[:1]}.difference(buffers[:1])
            own = (
                site
                for site in graph.call_sites
                if not {*buffers}.isdisjoint(site.writes) and read.isdisjoint(site.reads)
            )
            if (site := next(own, None)) is not None:
                birth = self.at_site(number, context, site, buffers, size_bytes)
                if wrapper is not None and not {*statement.variables} & {*buffers}:
                    birth = self._whole(number, context, wrapper, statement, birth)
                names = _names(statement, buffers, site)
                return replace(birth, is_workspace=statement.is_workspace, buffers=names)
        return None

    def _whole(
        self,
        number: int,
        context: CallContext,
        wrapper: Wrapper,
        statement: Statement,
        first: Birth,
    ) -> Birth:
        """Return the concatenation in whose memory call sites write its parts, given the first.

        It is the one that each of them computes, or computes an input of.
        """
        graph, parts = self._graphs[number], wrapper.parts(statement.variables[0])
        writers = [{*s.nodes} for s in graph.call_sites if not {*parts}.isdisjoint(s.writes)]
        found = [
            node.name
            for node in graph.nodes
            if node.target == _CONCATENATION
            for inputs in [{node.name, *(self.viewed(number, each) for each in node.inputs)}]
            if all(not own.isdisjoint(inputs) for own in writers)
        ]
        if len(found) == 1:
            place = self._places.of_node(number, found[0], context)
            return replace(first, place=place, buffer=statement.variables[0])
        gap = Place(graph=number, phase=first.place.phase, gap=MemoryGap.NO_CALL_SITE)
        return first if len(writers) < 2 else replace(first, place=gap)

    def at_site(
        self,
        number: int,
        context: CallContext,
        site: CallSite,
        buffers: Sequence[str],
        size_bytes: int,
    ) -> Birth:
        """Return the place of the value that a call site stores in a block."""
        graph = self._graphs[number]
        written = [each for each in site.writes if each in buffers]
        buffer = written[0] if len(written) == 1 else ""
        if site.values:
            nodes = _recorded(site, written)
        else:
            nodes = self._inferred.nodes(number, site, size_bytes, buffer)
        places = [self._places.of_node(number, node, context) for node in nodes]
        lines = {(each.file, each.line, each.module, each.gap) for each in places}
        if len(lines) == 1:
            return Birth(places[-1], kernel=site.kernel, buffer=buffer, site=site.ordinal)
        modules = {(each.module, each.module_class) for each in places}
        module, module_class = modules.pop() if len(modules) == 1 else (None, None)
        place = Place(
            graph=number,
            phase=places[-1].phase if places else call_phase(graph, context),
            module=module,
            module_class=module_class,
            level=Level.OP,
            gap=MemoryGap.SEVERAL_VALUES if places else MemoryGap.NO_CALL_SITE,
        )
        return Birth(place, kernel=site.kernel, buffer=buffer, site=site.ordinal)


def _names(statement: Statement, buffers: Iterable[str], site: CallSite) -> tuple[str, ...]:
    """Return the names of a buffer that a statement allocates for a call site."""
    written = (each for each in buffers if each in site.writes)
    return tuple(dict.fromkeys((*(statement.variables if statement.allocates else ()), *written)))


def _recorded(site: CallSite, buffers: Sequence[str]) -> list[str]:
    """Return the nodes whose values are in buffers of a call site: all, where one is unknown."""
    held = dict(zip(site.writes, site.values, strict=True))
    values = {held[each] for each in buffers or site.writes}
    return [each for each in site.nodes if each in values or "" in values]


class _InferredNodes:
    """Which nodes of a call site may be the value of a buffer, in records of older versions.

    They lack ``CallSite.values``. A kernel with one buffer stores its last node. Of a kernel with
    several, those that another call site, or the backward, reads, and the last one.
    """

    def __init__(self, graphs: Sequence[GraphInstance], values: StoredValues) -> None:
        self._graphs, self._values = graphs, values
        self._read_later: dict[str, set[str]] = defaultdict(set)
        self._reads: dict[tuple[int, int], frozenset[str]] = {}
        for graph in graphs:
            own = {node.name for node in graph.nodes}
            if graph.joint is not None and graph.runs_backward:
                for node in graph.nodes:
                    self._read_later[graph.joint] |= {*node.inputs} - own

    def nodes(self, number: int, site: CallSite, size_bytes: int, buffer: str) -> list[str]:
        """Return the nodes in program order; several are of one size."""
        if len(site.writes) <= 1:
            return [*site.nodes[-1:]]
        graph, known = self._graphs[number], self._values.known[number]
        own = {*site.nodes}
        read = {name for node in graph.nodes if node.name not in own for name in node.inputs}
        read |= self._read_later.get(graph.joint or "", set())
        stored = [each for each in site.nodes if each in read or each == site.nodes[-1]]
        fitting = [each for each in stored if each in known and _fits(known[each], size_bytes)]
        nodes = self._read_from(number, site, fitting, buffer) or fitting or stored
        saved = {self._values.viewed(number, n) for n in self._values.saved[number].get(buffer, ())}
        return [*saved] if len(nodes) > 1 and len(saved) == 1 and saved < own else nodes

    def _read_from(
        self, number: int, site: CallSite, nodes: Sequence[str], buffer: str
    ) -> list[str]:
        """Return the node that is in a buffer, if the call sites that read it say so.

        Each reads a node of every buffer that it reads; a node that must be in another buffer is
        not in this one.
        """
        options: dict[str, set[str]] = {}
        for other in self._graphs[number].call_sites if len(nodes) > 1 and buffer else ():
            for each in {*other.reads} & {*site.writes}:
                if other.ordinal != site.ordinal:
                    options[each] = options.get(each, {*nodes}) & self._read_by(number, other)
        others = (own for each, own in options.items() if each != buffer and len(own) == 1)
        left = options.get(buffer, set()).difference(*others)
        return [*left] if len(left) == 1 else []

    def _read_by(self, number: int, site: CallSite) -> frozenset[str]:
        """Return the nodes that a call site reads and does not compute, not through views."""
        key = number, site.ordinal
        if key not in self._reads:
            known, viewed = self._values.known[number], self._values.viewed
            inputs = {name for node in site.nodes if node in known for name in known[node].inputs}
            self._reads[key] = frozenset(viewed(number, name) for name in inputs - {*site.nodes})
        return self._reads[key]


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


# What functions of torch allocate for themselves. Sources, in ``torch``:
# ``distributed/fsdp/_fully_shard/_fsdp_param.py`` and ``_fsdp_collectives.py``,
# ``distributed/fsdp/_flat_param.py`` and ``_runtime_utils.py``, ``nn/parallel/distributed.py``,
# ``distributed/pipelining/_utils.py``,
# ``_inductor/select_algorithm.py``, ``runtime/benchmarking.py`` and ``fx_passes/pad_mm.py``,
# ``_dynamo/convert_frame.py``.
_FSDP2, _FSDP1 = "torch/distributed/fsdp/_fully_shard/", "torch/distributed/fsdp/"
_GATHERED = (MemoryKind.UNSHARDED, "FSDP's unsharded parameters")
_ALL_GATHER = (MemoryKind.COMMUNICATION, "FSDP's all-gather")
_REDUCE_SCATTER = (MemoryKind.COMMUNICATION, "FSDP's reduce-scatter")
_PIPELINE = (MemoryKind.COMMUNICATION, "what a pipeline stage receives")
_BUCKETS = (MemoryKind.COMMUNICATION, "buckets of DistributedDataParallel")
_AUTOTUNING = (MemoryKind.WORKSPACES, "autotuning")
Allocated = tuple[MemoryKind, str]
"""What it is, and the name of what holds it."""

# By the end of the file and the function; ``""`` is any function of the file.
_AROUND: dict[tuple[str, str], Allocated] = {
    (f"{_FSDP2}_fsdp_param.py", "init_all_gather_outputs"): _GATHERED,
    (f"{_FSDP2}_fsdp_param.py", "alloc_all_gather_outputs"): _GATHERED,
    (f"{_FSDP2}_fsdp_param.py", "init_unsharded_param"): _GATHERED,
    (f"{_FSDP2}_fsdp_collectives.py", "foreach_all_gather"): _ALL_GATHER,
    (f"{_FSDP2}_fsdp_collectives.py", "foreach_all_gather_copy_out"): _ALL_GATHER,
    (f"{_FSDP2}_fsdp_collectives.py", "foreach_reduce"): _REDUCE_SCATTER,
    (f"{_FSDP1}_flat_param.py", "_alloc_padded_unsharded_flat_param"): _GATHERED,
    (f"{_FSDP1}_flat_param.py", "_use_low_precision_shard"): _ALL_GATHER,
    (f"{_FSDP1}_flat_param.py", "_all_gather_flat_param"): _ALL_GATHER,
    (f"{_FSDP1}_runtime_utils.py", "_reduce_grad"): _REDUCE_SCATTER,
    ("torch/distributed/pipelining/_utils.py", "_make_tensor_from_meta"): _PIPELINE,
    ("torch/distributed/pipelining/stage.py", "_make_tensor_from_meta"): _PIPELINE,
    ("torch/_inductor/select_algorithm.py", "benchmark_choices"): _AUTOTUNING,
    ("torch/_inductor/select_algorithm.py", "benchmark"): _AUTOTUNING,
    ("torch/_inductor/select_algorithm.py", "benchmark_example_value"): _AUTOTUNING,
    ("torch/_inductor/runtime/benchmarking.py", ""): _AUTOTUNING,
    ("torch/_inductor/fx_passes/pad_mm.py", ""): _AUTOTUNING,
    ("triton/testing.py", ""): _AUTOTUNING,
    ("torch/_dynamo/convert_frame.py", ""): (MemoryKind.OTHER, "compilation"),
}
# C++ allocates these, so that the function is the innermost.
_INNERMOST: dict[tuple[str, str], Allocated] = {
    ("torch/nn/parallel/distributed.py", "_ddp_init_helper"): _BUCKETS,
    ("torch/nn/parallel/distributed.py", "_pre_forward"): _BUCKETS,
}


def allocated_by(stack: Sequence[StackFrame]) -> Allocated | None:
    """Return what torch allocated for itself; ``None`` for the program's own.

    Args:
        stack: the frames, innermost first.
    """
    inner = _of(stack[0], _INNERMOST) if stack else None
    return inner or next(filter(None, (_of(each, _AROUND) for each in stack)), None)


def _of(frame: StackFrame, table: dict[tuple[str, str], Allocated]) -> Allocated | None:
    return next(
        (
            allocated
            for (file, function), allocated in table.items()
            if frame.file.endswith(file) and function in ("", frame.function)
        ),
        None,
    )
