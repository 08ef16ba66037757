"""Where each block was allocated: the call site of a compiled graph, or the line of an eager op."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

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
from profiler_ext.memory.stored_values import Birth as Birth
from profiler_ext.memory.stored_values import StoredValues
from profiler_ext.memory.wrappers import Statement
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Events, Ints, flag_rows
from profiler_ext.records.lineage import Frame
from profiler_ext.records.memory import NO_STACK, BirthEvidence, MemoryGap, MemoryRecord
from profiler_ext.records.provenance import CallSite, GraphInstance
from profiler_ext.records.recording import Recording
from profiler_ext.records.vocabulary import Level


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
        self._values = StoredValues(recording.graphs, recording.generated, self.calls.places)
        self._roots = SourceRoots(recording.settings)

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
            graph = self._graph(marker)
            wrapper = None if graph is None else self._values.wrapper(graph)
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
        statement = self._values.statement(graph, lines) or ordered
        if statement is not None:
            evidence = BirthEvidence.WRAPPER_ORDER if ordered else BirthEvidence.WRAPPER_LINE
            birth = self._values.of_statement(number, context, statement, block.size_bytes)
            if birth is not None:
                return replace(birth, evidence=evidence, row=row)
        site = self._site_of_op(row, invocation, graph)
        if site is not None:
            birth = self._values.at_site(number, context, site, site.writes, block.size_bytes)
            return replace(birth, evidence=BirthEvidence.GRAPH_OP, row=row)
        phase = call_phase(graph, context)
        gap = Place(graph=number, phase=phase, gap=MemoryGap.NO_CALL_SITE)
        return Birth(gap, row=row)

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
