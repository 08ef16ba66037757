"""Attributes launches inside calls of compiled graphs.

Before a replay, a call copies the inputs that change to where the CUDA graph reads them, and sets
seed and offset of the random numbers. Which inputs are copied was recorded; other work remains
glue. A graph that was recorded several times may copy others each time: the number of copies may
show which.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.attribution.alignment.invocations import Invocation
from profiler_ext.attribution.alignment.verification import StreamOrder, contradicted
from profiler_ext.attribution.enclosing import CallContext
from profiler_ext.attribution.graph_calls import DeviceEvent, Match, WorkItem
from profiler_ext.attribution.launches.launch_table import LaunchAttribution, LaunchTable
from profiler_ext.attribution.phases import call_phase
from profiler_ext.attribution.places import PlaceTable, gap_place
from profiler_ext.attribution.trace.launches import EnqueuedLaunches
from profiler_ext.kineto import classify, names
from profiler_ext.kineto.communication import is_communication
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Events, Ints
from profiler_ext.records.evidence import ShareEvidence, SiteEvidence
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.inside import InsideRoute, MeasuredKernel, MeasuredSite
from profiler_ext.records.provenance import CallSite, FxNode, GraphInstance
from profiler_ext.records.vocabulary import LaunchKind, Level

_COPY = "aten::_foreach_copy_"
_FILL = "aten::fill_"


@dataclass(frozen=True, slots=True)
class WorkBeforeReplay:
    """The nodes that an item before a replay serves."""

    nodes: tuple[str, ...]  # the inputs that it copies, or the nodes that draw
    weights: tuple[int, ...]  # one integer for each, its part of the work
    evidence: SiteEvidence  # the rule


def work_before_replay(
    items: Sequence[WorkItem], matches: Sequence[Match], graph: GraphInstance
) -> Mapping[int, WorkBeforeReplay]:
    """Return what the items that precede the replay do, by their place in the call."""
    if not any(item.replayed for item in items):
        return {}
    glue = [match.gap is GapReason.WRAPPER_GLUE for match in matches]
    nodes = {node.name: node for node in graph.nodes}
    return {**_copies(items, glue, graph, nodes), **_seeds(items, glue, graph)}


def _copies(
    items: Sequence[WorkItem],
    glue: Sequence[bool],
    graph: GraphInstance,
    nodes: Mapping[str, FxNode],
) -> dict[int, WorkBeforeReplay]:
    """Attribute the copies, one for each recorded graph that copies anything, to their inputs."""
    copies = [at for at, item in enumerate(items) if glue[at] and item.name == _COPY]
    # Work without its operator may be one more copy, so their number is inconclusive.
    is_open = any(g and u.on_device and not u.replayed for g, u in zip(glue, items, strict=True))
    noted = () if is_open and graph.other_copied_inputs else _noted(graph, len(copies))
    pairs = zip(copies, noted, strict=True) if noted else ()
    return {at: _copy([nodes[n] for n in names]) for at, names in pairs if set(names) <= set(nodes)}


def _noted(graph: GraphInstance, copies: int) -> tuple[tuple[str, ...], ...]:
    """Return the recorded inputs of each copy of a call; none where its recordings differ."""
    recorded = (graph.copied_inputs, *graph.other_copied_inputs)
    copying = {tuple(filter(None, inputs)) for inputs in recorded}
    fitting = [noted for noted in copying if len(noted) == copies]
    return fitting[0] if len(fitting) == 1 else ()


def _copy(copied: Sequence[FxNode]) -> WorkBeforeReplay:
    sizes = [_elements(node) for node in copied]
    weights = tuple(size for size in sizes if size) if all(sizes) else (1,) * len(copied)
    return WorkBeforeReplay(tuple(node.name for node in copied), weights, SiteEvidence.RUNNER_COPY)


def _elements(node: FxNode) -> int:
    dimensions = [size for spec in node.outputs for size in spec.size]
    fixed = [size for size in dimensions if isinstance(size, int)]
    return math.prod(fixed) if len(fixed) == len(dimensions) else 0


def _seeds(
    items: Sequence[WorkItem], glue: Sequence[bool], graph: GraphInstance
) -> dict[int, WorkBeforeReplay]:
    """Attribute the fills right before a replay to the nodes that draw random numbers in it."""
    # Of several recorded graphs it is unknown which one a node is in.
    drawing = tuple(node.name for node in graph.nodes if node.is_random)
    if not drawing or (len(graph.copied_inputs) != 1 and len(drawing) > 1):
        return {}
    work = WorkBeforeReplay(drawing, (1,) * len(drawing), SiteEvidence.RUNNER_SEED)
    fills: dict[int, WorkBeforeReplay] = {}
    is_before_replay = False
    for at in reversed(range(len(items))):
        is_fill = glue[at] and items[at].name == _FILL
        is_before_replay = items[at].replayed or (is_before_replay and is_fill)
        if is_fill and is_before_replay:
            fills[at] = work
    return fills


class CompiledAttributor:
    """Attributes every launch of a graph call."""

    def __init__(
        self,
        events: Events,
        enqueued: EnqueuedLaunches,
        order: StreamOrder,
        graphs: Sequence[GraphInstance],
        places: PlaceTable,
        table: LaunchTable,
        measured: Sequence[MeasuredKernel] = (),
    ) -> None:
        self._events, self._enqueued = events, enqueued
        self._graphs, self._places, self._table = graphs, places, table
        self._order = order
        # Samples are of the step itself, so they come last and win.
        by_route = sorted(measured, key=lambda kernel: kernel.route is InsideRoute.SAMPLES)
        self._measured: dict[tuple[str, int], MeasuredSite] = {
            (site.graph, site.call_site): site for kernel in by_route for site in kernel.sites
        }
        self._at_site: dict[tuple[int | None, Match, CallContext, bool], LaunchAttribution] = {}
        self._known: dict[Hashable, tuple[tuple[Match, ...], Ints]] = {}

    def attribute_launches(self, invocation: Invocation) -> None:
        """Attribute the launches of one call; equal calls have equal results."""
        # Matches are compared by identity, as a call has many; they are kept so that no id is
        # reused.
        call = invocation.call
        out_of_order = self._order.out_of_order_in(call.launches).tolist()
        which = invocation.graph, call.pattern, call.context
        key = (*which, id(invocation.matches), tuple(out_of_order))
        if key not in self._known:
            self._known[key] = invocation.matches, self._outcomes(invocation, out_of_order)
        self._table.assign(call.launches, self._known[key][1])
        for launch, gap in call.trials:
            row = int(self._enqueued.event[launch])
            event = DeviceEvent(self._events.name[row], self._events.category[row])
            outcome = self._gap_outcome(invocation, event, gap, None)
            self._table.assign(launch, self._table.number(outcome))

    def _outcomes(self, invocation: Invocation, out_of_order: Sequence[int]) -> Ints:
        pattern, matches = invocation.call.pattern, invocation.matches
        wrong = contradicted(pattern, self._sites(invocation), matches, out_of_order)
        graph = self._graph(invocation)
        replay_work = work_before_replay(pattern.work, matches, graph) if graph else {}
        numbers = list[int]()
        for at, item in enumerate(pattern.work):
            first = len(numbers)
            is_wrong = [first + place in wrong for place in range(len(pattern.events[at]))]
            if at in replay_work and not any(is_wrong):
                outcome = self._outcome_before_replay(invocation, item, replay_work[at])
                numbers += [self._table.number(outcome)] * len(is_wrong)
            else:
                numbers += self._of_item(invocation, at, is_wrong)
        return np.array(numbers, dtype=np.int64)

    def _of_item(self, invocation: Invocation, at: int, is_wrong: Sequence[bool]) -> Iterator[int]:
        pattern, match = invocation.call.pattern, invocation.matches[at]
        mismatch = GapReason.ALIGNMENT_MISMATCH
        for event, contradicts in zip(pattern.events[at], is_wrong, strict=True):
            if match.site is not None and not contradicts:
                outcome = self._site_outcome(invocation, match, is_communication(event.name))
                yield self._table.number(outcome)
            else:
                gap = mismatch if contradicts else match.gap or mismatch
                outcome = self._gap_outcome(invocation, event, gap, pattern.work[at])
                yield self._table.number(outcome)

    def _sites(self, invocation: Invocation) -> tuple[CallSite, ...]:
        return () if invocation.graph is None else self._graphs[invocation.graph].call_sites

    def _site_outcome(
        self, invocation: Invocation, match: Match, communicates: bool
    ) -> LaunchAttribution:
        """Return the attribution of a site; what one op launches may communicate too."""
        key = (invocation.graph, match, invocation.call.context, communicates)
        if key not in self._at_site:
            outcome = self._new_site_outcome(invocation, match)
            kind = LaunchKind.COMMUNICATION if communicates else outcome.kind
            self._at_site[key] = replace(outcome, kind=kind)
        return self._at_site[key]

    def _outcome_before_replay(
        self, invocation: Invocation, item: WorkItem, work: WorkBeforeReplay
    ) -> LaunchAttribution:
        assert invocation.graph is not None
        graph, context = invocation.graph, invocation.call.context
        if work.evidence is SiteEvidence.RUNNER_COPY:
            places = [self._places.add_input(graph, n, context, item.name) for n in work.nodes]
        else:
            places = [self._places.add_node(graph, name, context) for name in work.nodes]
        return LaunchAttribution(
            kind=LaunchKind.EAGER,
            places=tuple(places),
            weights=work.weights,
            graph=graph,
            evidence=work.evidence,
            in_graph=True,
        )

    def _new_site_outcome(self, invocation: Invocation, match: Match) -> LaunchAttribution:
        assert invocation.graph is not None and match.site is not None
        site = self._sites(invocation)[match.site]
        places, weights, share_evidence = self._site_places(invocation, site)
        # Tell the kind of what a call site launches; a traced collective is a library call too.
        communicates = is_communication(site.op or "")
        return LaunchAttribution(
            kind=LaunchKind.COMMUNICATION if communicates else LaunchKind(site.kind),
            places=places,
            weights=weights,
            kernel=site.kernel,
            graph=invocation.graph,
            call_site=site.ordinal,
            evidence=SiteEvidence.CALL_ORDER_IN_CODE
            if self._is_from_code(invocation)
            else match.evidence or "",
            in_graph=True,
            share_evidence=share_evidence if len(places) > 1 else "",
        )

    def _is_from_code(self, invocation: Invocation) -> bool:
        graph = self._graph(invocation)
        return graph is not None and graph.is_inferred

    def _site_places(
        self, invocation: Invocation, site: CallSite
    ) -> tuple[tuple[int, ...], tuple[int, ...], str]:
        assert invocation.graph is not None
        if not site.nodes:
            return (self._places.add(self._nodeless(invocation, site)),), (1,), ""
        context = invocation.call.context
        nodes = tuple(self._places.add_node(invocation.graph, name, context) for name in site.nodes)
        digest = self._graphs[invocation.graph].record.digest
        measured = self._measured.get((digest, site.ordinal))
        if measured is not None and measured.nodes == site.nodes and any(measured.times_ns):
            return nodes, measured.times_ns, ShareEvidence.MEASURED
        is_even = set(site.weights) == {1}
        return nodes, site.weights, ShareEvidence.EVEN if is_even else ShareEvidence.MODEL

    def _nodeless(self, invocation: Invocation, site: CallSite) -> Place:
        level = Level.NONE if site.op is None else Level.OP
        graph, reason = self._graph(invocation), GapReason.NO_SOURCE_LINE
        if self._is_from_code(invocation):
            reason = _uncaptured(graph)
        elif graph is not None and GapReason.CALL_SITES_UNVERIFIED in graph.gap_reasons:
            reason = GapReason.CALL_SITES_UNVERIFIED
        elif graph is not None and graph.is_partly_captured:
            reason = GapReason.PARTLY_CAPTURED
        return Place(
            graph=invocation.graph,
            aten_op=site.op,
            phase=call_phase(graph, invocation.call.context),
            level=level,
            gap=reason,
        )

    def _gap_outcome(
        self, invocation: Invocation, event: DeviceEvent, gap: GapReason, item: WorkItem | None
    ) -> LaunchAttribution:
        op = item.name if item and classify.is_dispatched_op(item.name) else None
        phase = call_phase(self._graph(invocation), invocation.call.context)
        reason = self._named_reason(invocation, gap)
        place = self._places.add(gap_place(reason, phase, invocation.graph, op))
        kernel = names.kernel_name(event.name) if classify.is_generated_kernel(event.name) else ""
        kind = kind_by_name(event.name, event.category, is_glue=gap is GapReason.WRAPPER_GLUE)
        return LaunchAttribution(
            kind, (place,), kernel=kernel, graph=invocation.graph, in_graph=True
        )

    def _named_reason(self, invocation: Invocation, gap: GapReason) -> GapReason:
        """Return capture's gap for a mismatch where it could not check its own call sites."""
        unverified = GapReason.CALL_SITES_UNVERIFIED
        graph = self._graph(invocation)
        gap_reasons = graph.gap_reasons if graph else frozenset()
        if gap is GapReason.ALIGNMENT_MISMATCH and self._is_from_code(invocation):
            return _uncaptured(graph)
        is_unverified = gap is GapReason.ALIGNMENT_MISMATCH and unverified in gap_reasons
        return unverified if is_unverified else gap

    def _graph(self, invocation: Invocation) -> GraphInstance | None:
        return None if invocation.graph is None else self._graphs[invocation.graph]


def _uncaptured(graph: GraphInstance | None) -> GapReason:
    """Return why a graph's compile was not observed."""
    reasons = {gap.reason for gap in graph.gaps} if graph else set()
    child = GapReason.COMPILED_IN_CHILD
    return child if child in reasons else GapReason.GRAPH_NOT_CAPTURED


def kind_by_name(name: str, category: str, *, is_glue: bool) -> LaunchKind:
    """Return the kind of a launch in a graph call without a call site."""
    if classify.is_copy(category):
        return LaunchKind.MEMCPY
    if classify.is_memset(category):
        return LaunchKind.MEMSET
    if is_communication(name):
        return LaunchKind.COMMUNICATION
    if classify.is_cpu_kernel(name):
        return LaunchKind.CPP
    if classify.is_template_kernel(name):
        return LaunchKind.TRITON_TEMPLATE
    if classify.is_generated_kernel(name):
        return LaunchKind.TRITON
    return LaunchKind.EAGER if is_glue else LaunchKind.EXTERN
