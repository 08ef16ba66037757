"""Why each block is still allocated at a peak: who has still to read it, or what holds it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiler_ext.attribution.alignment.invocations import Invocation
from profiler_ext.attribution.enclosing import CallContext
from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.kineto.classify import is_dispatched_op
from profiler_ext.memory.births import Birth, Births
from profiler_ext.memory.blocks import NEVER, Block, SavedBy
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import flag_rows
from profiler_ext.records.memory import LifeEvidence, LifeReason, MemoryKind, OwnerKind
from profiler_ext.records.provenance import CallSite, is_view_op
from profiler_ext.records.vocabulary import Phase

_OWNED = (*(MemoryKind.PARAMETERS, MemoryKind.GRADIENTS, MemoryKind.OPTIMIZER, MemoryKind.BUFFERS),)
_COMPILED = "CompiledFunctionBackward"
_SAVED_AT = re.compile(r"(saved_tensors|_tensors_no_vc_check)\[(\d+)\]")
_REASONS = {
    "marked MUST_SAVE": LifeReason.MUST_SAVE,
    "random op": LifeReason.RANDOM,
    "compute intensive op": LifeReason.COMPUTE_INTENSIVE,
    "not in recomputable allowlist": LifeReason.NOT_RECOMPUTABLE,
    "non-builtin op": LifeReason.NOT_RECOMPUTABLE,
    "materialized in backward": LifeReason.MATERIALIZED,
    "reduction op": LifeReason.REDUCTION,
    "primal input": LifeReason.GRAPH_INPUT,
    "": LifeReason.MIN_CUT,
}
"""By the partitioner's words: ``torch/_functorch/partitioners.py``, ``solve_min_cut``."""


@dataclass(frozen=True, slots=True)
class Need:
    """What has still to read a block."""

    name: str  # ``MulBackward0``, ``aten.mul.Tensor``
    place: Place
    attribute: str = ""  # under which a node of autograd holds it
    kernel: str = ""  # of a compiled graph

    @property
    def text(self) -> str:
        """The node and what it calls the block, ``MulBackward0.self``; or the op and its kernel."""
        if self.kernel and self.kernel != self.name:
            return f"{self.name} in {self.kernel}"
        return f"{self.name}.{self.attribute}" if self.attribute else self.name


@dataclass(frozen=True, slots=True)
class Life:
    """Why a block lives at a peak."""

    reason: LifeReason | None = None
    evidence: LifeEvidence | None = None
    needed_by: tuple[Need, ...] = ()  # in the order in which they run, if they are of one graph
    held_by: str = ""
    saved_as: str = ""  # the name that a compiled backward gives it: a node of the joint graph
    reused: tuple[str, ...] = ()  # its buffers by then, in order, where memory planning reused it


_NOT_KNOWN = Life()


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of a step: that of an allocation, within a call of a graph or not."""

    time_ns: int
    marker: int = NO_ROW  # of the call that runs then
    site: int = 0  # the call site there


@dataclass(frozen=True, slots=True)
class _Saved:
    """What a compiled forward saved in a block: its names in the call of its backward."""

    call: Invocation
    names: tuple[str, ...]
    evidence: LifeEvidence

    @property
    def graph(self) -> int:
        """The backward graph."""
        assert self.call.graph is not None
        return self.call.graph


class Lives:
    """Finds why blocks live, at the peak of a step."""

    def __init__(self, births: Births, blocks: Sequence[Block]) -> None:
        self._births, self._enclosing = births, births.enclosing
        self._events = births.enclosing.events
        self._graphs = births.recording.graphs
        engine = self._enclosing.engine
        self._nodes: dict[tuple[str, int], list[int]] = defaultdict(list)
        for row in np.flatnonzero(engine == np.arange(len(engine))).tolist():
            number = self._events.sequence_number[row]
            if number is not np.ma.masked:
                self._nodes[_node_name(self._events.name[row]), int(number)].append(row)
        self._buffers = _Buffers(births)
        self._first_ops = self._ops_of_nodes()
        rows = {*self._rows(blocks)}
        places = births.places_at(self._first_ops.get(row, row) for row in rows)
        self._places = {row: places[self._first_ops.get(row, row)] for row in rows}

    def _ops_of_nodes(self) -> dict[int, int]:
        """Return the row of the first op that each node of autograd runs."""
        engine, events = self._enclosing.engine, self._events
        is_op = self._enclosing.is_op & flag_rows(events.name, is_dispatched_op)
        rows = np.flatnonzero((engine != NO_ROW) & is_op)
        ordered = rows[np.argsort(-events.start_ns[rows], kind="stable")]
        return dict(zip(engine[ordered].tolist(), ordered.tolist(), strict=True))

    def _rows(self, blocks: Sequence[Block]) -> Iterator[int]:
        """Yield the rows of what may need a block."""
        for block in blocks:
            saved = map(self._row_of, block.saved_by)
            yield from (row for row in saved if row is not None)
            row = self._births.row_of_free(block)
            if row != NO_ROW:
                node = int(self._enclosing.engine[row])
                yield row if node == NO_ROW else node

    def of(self, block: Block, birth: Birth, kind: MemoryKind, at: Moment) -> Life:
        """Return why a block lives at a moment."""
        if kind in _OWNED:
            names = ", ".join(dict.fromkeys(each.name for each in block.owners))
            return Life(LifeReason.OWNER, LifeEvidence.NAME, held_by=names)
        if kind is MemoryKind.WORKSPACES:
            reason = LifeReason.LIBRARY if block.is_older else LifeReason.SCRATCH
            return Life(reason, LifeEvidence.NAME)
        if kind is MemoryKind.GRAPH_POOLS:
            return Life(LifeReason.GRAPH_POOL, LifeEvidence.NAME)
        saved = self._saved(block, birth, at)
        if saved.reason is not None:
            return saved
        nodes = dict.fromkeys(e.name for e in block.owners if e.kind is OwnerKind.SAVED)
        if nodes:
            evidence = LifeEvidence.SAVED_TENSOR
            return Life(LifeReason.SAVED_TENSOR, evidence, held_by=", ".join(nodes))
        if block.held_by:
            held = block.held_by[0]
            return Life(LifeReason.PYTHON, held.evidence, held_by=held.name)
        return self._read_later(block, birth, at)

    def _saved(self, block: Block, birth: Birth, at: Moment) -> Life:
        """Return what of the backward needs it, of what is still to run."""
        by_autograd = self._needs_of_autograd(block, at)
        for saved in self._saved_in_graph(block, birth, at):
            needs, reused = self._needs_of_graph(saved, at)
            if reused:
                evidence = LifeEvidence.WRAPPER
                return Life(LifeReason.TO_BE_READ, evidence, needs, "", saved.names[0], reused)
            if needs:
                others = (each for each in by_autograd if each.name != _COMPILED)
                reason, evidence = self._reason(saved), saved.evidence
                return Life(reason, evidence, (*needs, *others), saved_as=", ".join(saved.names))
            if self._buffers.is_unread(saved.graph, saved.names) and len(by_autograd) < 2:
                takers, evidence = self._takers(saved), LifeEvidence.WRAPPER
                return Life(LifeReason.UNREAD, evidence, takers, saved_as=saved.names[0])
        if by_autograd:
            return Life(LifeReason.SAVED_TENSOR, LifeEvidence.SAVED_TENSOR, tuple(by_autograd))
        return self._released(block, birth)

    def _needs_of_autograd(self, block: Block, at: Moment) -> list[Need]:
        """Return the nodes of autograd that hold it, and have not run yet, as they will run."""
        rows = ((self._row_of(saved), saved) for saved in block.saved_by)
        to_come = [
            (int(self._events.start_ns[row]), saved.attribute, saved.node, row)
            for row, saved in rows
            if row is not None and self._events.end_at(row) > at.time_ns
        ]
        return [
            Need(node, self._places[row], attribute) for _, attribute, node, row in sorted(to_come)
        ]

    def _row_of(self, saved: SavedBy) -> int | None:
        rows = self._nodes.get((saved.node, saved.number), [])
        return next((row for row in rows if self._events.start_ns[row] >= saved.time_ns), None)

    def _released(self, block: Block, birth: Birth) -> Life:
        """Return the node of autograd that had run when it was freed, if the forward made it."""
        row = self._births.row_of_free(block)
        node = NO_ROW if row == NO_ROW else int(self._enclosing.engine[row])
        if node == NO_ROW or birth.place.phase is not Phase.FORWARD:
            return _NOT_KNOWN
        need = Need(_node_name(self._events.name[node]), self._places[node])
        return Life(LifeReason.SAVED_TENSOR, LifeEvidence.RELEASED, (need,))

    def _saved_in_graph(self, block: Block, birth: Birth, at: Moment) -> Iterator[_Saved]:
        """Yield what a compiled forward saved in a block, and the backward's call that takes it."""
        taken: dict[int, tuple[Invocation, list[str]]] = {}
        for saved in block.saved_by:
            row = self._row_of(saved) if saved.node == _COMPILED else None
            if row is not None and self._events.end_at(row) > at.time_ns:
                for call, name in self._taken_by(row, saved):
                    taken.setdefault(call.call.marker, (call, []))[1].append(name)
        for call, own in taken.values():
            yield _Saved(call, tuple(own), LifeEvidence.SAVED_TENSOR)
        forward = birth.place.graph
        backward = None if forward is None or taken else self._buffers.backward_of(forward)
        if forward is not None and backward is not None:
            saved_names = self._births.values.saved[forward]
            own = [n for each in self._buffers.names_of(birth) for n in saved_names.get(each, ())]
            after = self._call_after(backward, block, at) if own else None
            if after is not None:
                yield _Saved(after, tuple(own), LifeEvidence.BACKWARD_INPUT)

    def _call_after(self, graph: int, block: Block, at: Moment) -> Invocation | None:
        """Return the call of a backward graph in which a block is freed, if that is to end."""
        for each in self._births.calls.invocations:
            marker = each.call.marker
            begin_ns, end_ns = int(self._events.start_ns[marker]), self._events.end_at(marker)
            if each.graph == graph and begin_ns <= block.freed_ns and end_ns > at.time_ns:
                return each if block.born_ns < begin_ns else None
        return None

    def _taken_by(self, row: int, saved: SavedBy) -> Iterator[tuple[Invocation, str]]:
        """Yield the call of a backward graph in a node of autograd, and what it takes."""
        for each in self._births.calls.invocations:
            if each.graph is not None and int(self._enclosing.engine[each.call.marker]) == row:
                name = self._buffers.input_at(each.graph, saved)
                if name is not None:
                    yield each, name

    def _needs_of_graph(
        self, saved: _Saved, at: Moment
    ) -> tuple[tuple[Need, ...], tuple[str, ...]]:
        """Return the nodes of a backward graph that have still to read a saved value.

        And the buffers that have its memory by then, if memory planning has reused it.
        """
        call, number = saved.call.call, saved.graph
        first = at.site if call.marker == at.marker else 0
        names, reused = self._buffers.at(number, saved.names, first)
        needs = [
            Need(place.aten_op or node, place, kernel=site.kernel)
            for site in self._graphs[number].call_sites[first:]
            if not names.isdisjoint(site.reads)
            for node in self._buffers.readers(number, site, () if reused else saved.names)
            for place in [self._births.calls.places.of_node(number, node, call.context)]
        ]
        return tuple(needs), reused

    def _takers(self, saved: _Saved) -> tuple[Need, ...]:
        """Return the nodes of a backward graph that take a saved value."""
        place_of, viewed = self._births.calls.places.of_node, self._births.values.viewed
        nodes = (
            node.name
            for node in self._graphs[saved.graph].nodes
            if any(viewed(saved.graph, name) in saved.names for name in node.inputs)
        )
        places = (place_of(saved.graph, name, saved.call.call.context) for name in nodes)
        return tuple(Need(place.aten_op or "", place) for place in places)

    def _reason(self, saved: _Saved) -> LifeReason:
        """Return why the partitioner saves a value."""
        words = self._partitions.get(self._graphs[saved.graph].joint or "", {})
        own = next((words[each] for each in saved.names if each in words), None)
        return LifeReason.SAVED_BY_GRAPH if own is None else _REASONS.get(own, LifeReason.BANNED)

    @cached_property
    def _partitions(self) -> dict[str, dict[str, str]]:
        """What the partitioner saved of each joint graph, with its words for the reason."""
        return {
            graph.joint: dict(graph.record.saved_values)
            for graph in self._graphs
            if graph.joint is not None and graph.record.saved_values is not None
        }

    def _read_later(self, block: Block, birth: Birth, at: Moment) -> Life:
        """Return who reads it in the phase in which it was allocated, or what releases it."""
        if birth.place.graph is not None and birth.marker == at.marker:
            life = self._read_in_graph(birth, at)
            if life.reason is not None:
                return life
        row = self._births.row_of_free(block)
        node = NO_ROW if row == NO_ROW else int(self._enclosing.engine[row])
        op = row if node == NO_ROW else node
        while op != NO_ROW and op != node and not self._enclosing.is_op[op]:
            op = int(self._enclosing.nesting.parent[op])
        if op == NO_ROW:
            is_released = not block.is_older and block.freed_ns != NEVER
            evidence = LifeEvidence.FREED_OUTSIDE
            return Life(LifeReason.PYTHON, evidence) if is_released else _NOT_KNOWN
        place = self._places[row if node == NO_ROW else node]
        need = Need(_node_name(self._events.name[op]), place)
        evidence = LifeEvidence.RELEASED if node != NO_ROW else LifeEvidence.FREED_IN_OP
        return Life(LifeReason.TO_BE_READ, evidence, (need,))

    def _read_in_graph(self, birth: Birth, at: Moment) -> Life:
        """Return the call sites of the running graph that have still to read a block."""
        number = birth.place.graph
        assert number is not None
        names, reused = self._buffers.at(number, birth.buffers, at.site)
        places, context = self._births.calls.places, CallContext()
        needs = [
            Need(
                site.op or site.kernel,
                places.of_node(number, site.nodes[-1], context),
                "",
                site.kernel,
            )
            for site in self._graphs[number].call_sites[at.site :]
            if site.nodes and not names.isdisjoint(site.reads)
        ]
        if needs:
            return Life(LifeReason.TO_BE_READ, LifeEvidence.WRAPPER, tuple(needs), reused=reused)
        if not {*self._buffers.names_of(birth)}.isdisjoint(self._buffers.returned(number)):
            return Life(LifeReason.OUTPUT, LifeEvidence.WRAPPER, reused=reused)
        return _NOT_KNOWN


def _node_name(event: str) -> str:
    """Return the node of autograd that an event of its engine is of, or the op."""
    return event.rpartition(": ")[2]


class _Buffers:
    """The buffers of compiled graphs: what names one block has, and who reads it."""

    def __init__(self, births: Births) -> None:
        self._births, self._graphs = births, births.recording.graphs

    def names_of(self, birth: Birth) -> list[str]:
        """Return all names that a block gets in its graph, the first ones first."""
        number = birth.place.graph
        if number is None:
            return []
        return [name for names in self._values(number, birth.buffers) for name in names]

    def at(
        self, number: int, names: Sequence[str], site: int
    ) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the names of what is in a buffer before a call site, and the reuses until then."""
        writers = {name: each.ordinal for each in self._sites(number) for name in each.writes}
        values = self._values(number, names)
        reused = [each for each in values[1:] if writers.get(each[0], site) < site]
        return frozenset([values[0], *reused][-1]), tuple(each[0] for each in reused)

    def _sites(self, number: int) -> Iterator[CallSite]:
        return reversed(self._graphs[number].call_sites)  # the first that writes a buffer counts

    def _values(self, number: int, names: Sequence[str]) -> list[list[str]]:
        """Return the names of each value that is in a buffer in turn, by reuses of its memory."""
        wrapper = self._births.values.wrapper(self._graphs[number])
        values = [[*names]]
        for each in () if wrapper is None else wrapper.aliases:
            if each.is_reuse and each.of in values[-1]:
                values.append([each.name])
            elif each.of in values[-1]:
                values[-1].append(each.name)
        return values

    def is_unread(self, number: int, names: Sequence[str]) -> bool:
        """Tell whether a graph uses none of its inputs of these names."""
        wrapper = self._births.values.wrapper(self._graphs[number])
        known = wrapper is not None and {*wrapper.arguments} >= {*names}
        return wrapper is not None and known and wrapper.used.isdisjoint(names)

    def returned(self, number: int) -> list[str]:
        """Return the buffers that a graph returns."""
        wrapper = self._births.values.wrapper(self._graphs[number])
        return [] if wrapper is None else wrapper.returned

    def backward_of(self, number: int) -> int | None:
        """Return the backward graph of a forward, if it has one."""
        joint = self._graphs[number].joint
        own = [
            at
            for at, each in enumerate(self._graphs)
            if joint is not None and each.joint == joint and each.runs_backward
        ]
        return own[0] if len(own) == 1 else None

    def input_at(self, number: int, saved: SavedBy) -> str | None:
        """Return the name of a tensor that autograd saved for a backward graph.

        AOTAutograd saves first those whose version is checked; symbols stand before all of them.
        Source: ``torch/_functorch/_aot_autograd/runtime_wrappers.py``.
        """
        wrapper, found = (
            self._births.values.wrapper(self._graphs[number]),
            _SAVED_AT.fullmatch(saved.attribute),
        )
        if wrapper is None or found is None:
            return None
        taken = [each for each in wrapper.arguments if not each.startswith("tangents_")]
        checked, unchecked = saved.counts
        if checked + unchecked != len(taken):
            return None
        at = int(found[2]) + (0 if found[1] == "saved_tensors" else checked)
        return taken[at]

    def readers(self, number: int, site: CallSite, names: Sequence[str]) -> list[str]:
        """Return the nodes of a call site that read inputs of its graph, or else its last."""
        known = {node.name: node for node in self._graphs[number].nodes}
        viewed = self._births.values.viewed
        found = [
            each
            for each in site.nodes
            if each in known
            and not is_view_op(known[each].target)
            and any(viewed(number, name) in names for name in known[each].inputs)
        ]
        return found or [*site.nodes[-1:]]
