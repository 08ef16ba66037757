"""Owns the verdicts on launches inside calls of compiled graphs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from profiler_ext.attribution.alignment.before_replay import WorkBeforeReplay, work_before_replay
from profiler_ext.attribution.alignment.invocations import Invocation
from profiler_ext.attribution.alignment.matching import Match
from profiler_ext.attribution.alignment.verification import StreamOrder, contradicted
from profiler_ext.attribution.calls.enclosing import CallContext
from profiler_ext.attribution.calls.patterns import DeviceEvent, WorkItem
from profiler_ext.attribution.places.phases import call_phase
from profiler_ext.attribution.places.places import PlaceTable, gap_place
from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.verdicts.verdicts import LaunchAttribution, LaunchTable
from profiler_ext.kineto import classify, names
from profiler_ext.kineto.communication import is_communication
from profiler_ext.records import (
    CallSite,
    Events,
    GapReason,
    GraphInstance,
    Ints,
    LaunchKind,
    Level,
    Place,
    SiteEvidence,
)


class CompiledAttributor:
    """Gives every launch of a graph call its verdict."""

    def __init__(
        self,
        events: Events,
        enqueued: EnqueuedLaunches,
        order: StreamOrder,
        graphs: Sequence[GraphInstance],
        places: PlaceTable,
        table: LaunchTable,
    ) -> None:
        """Take what is known of the trace and of its graphs.

        Args:
            events: the trace's events.
            enqueued: its launches.
            order: in which order the streams ran them.
            graphs: the graph instances.
            places: where places are kept.
            table: where verdicts are given.
        """
        self._events, self._enqueued = events, enqueued
        self._graphs, self._places, self._table = graphs, places, table
        self._order = order
        self._at_site: dict[tuple[int | None, Match, CallContext, bool], LaunchAttribution] = {}
        self._known: dict[Hashable, tuple[tuple[Match, ...], Ints]] = {}

    def attribute_launches(self, invocation: Invocation) -> None:
        """Give the launches of one call their verdicts; those of equal calls are equal.

        Matches are known by what they are, not by what they say: a call has many. They are kept,
        so that no others can come to be the same.
        """
        call = invocation.call
        out_of_order = self._order.out_of_order_in(call.launches).tolist()
        which = invocation.graph, call.pattern, call.context
        key = (*which, id(invocation.matches), tuple(out_of_order))
        if key not in self._known:
            self._known[key] = invocation.matches, self._outcomes(invocation, out_of_order)
        self._table.assign(call.launches, self._known[key][1])
        for launch, gap in call.trials:
            outcome = self._gap_outcome(invocation, self._event(launch), gap, None)
            self._table.assign(launch, self._table.number(outcome))

    def _outcomes(self, invocation: Invocation, out_of_order: Sequence[int]) -> Ints:
        """Return the numbers of the verdicts of a call's launches."""
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
        """Yield the numbers of the verdicts of what an item of a call launched."""
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

    def _event(self, launch: int) -> DeviceEvent:
        row = int(self._enqueued.event[launch])
        return DeviceEvent(self._events.name[row], self._events.category[row])

    def _sites(self, invocation: Invocation) -> tuple[CallSite, ...]:
        return () if invocation.graph is None else self._graphs[invocation.graph].call_sites

    def _site_outcome(self, invocation: Invocation, match: Match, communicates: bool) -> LaunchAttribution:
        """Return the verdict of a site; what one op launches may compute, and communicate too."""
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
        places, weights = self._site_places(invocation, site)
        return LaunchAttribution(
            kind=_site_kind(site),
            places=places,
            weights=weights,
            kernel=site.kernel,
            graph=invocation.graph,
            call_site=site.ordinal,
            evidence=SiteEvidence.CALL_ORDER_IN_CODE
            if self._is_from_code(invocation)
            else match.evidence or "",
            in_graph=True,
        )

    def _is_from_code(self, invocation: Invocation) -> bool:
        graph = self._graph(invocation)
        return graph is not None and graph.is_told

    def _site_places(
        self, invocation: Invocation, site: CallSite
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        assert invocation.graph is not None
        if not site.nodes:
            return (self._places.add(self._nodeless(invocation, site)),), (1,)
        context = invocation.call.context
        nodes = tuple(self._places.add_node(invocation.graph, name, context) for name in site.nodes)
        return nodes, site.weights

    def _nodeless(self, invocation: Invocation, site: CallSite) -> Place:
        """Return the place of a site whose nodes capture could not tell."""
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
        return LaunchAttribution(kind, (place,), kernel=kernel, graph=invocation.graph, in_graph=True)

    def _named_reason(self, invocation: Invocation, gap: GapReason) -> GapReason:
        """Blame capture for a mismatch where it could not check its own call sites."""
        unverified = GapReason.CALL_SITES_UNVERIFIED
        graph = self._graph(invocation)
        gap_reasons = graph.gap_reasons if graph else frozenset()
        if gap is GapReason.ALIGNMENT_MISMATCH and self._is_from_code(invocation):
            return _uncaptured(graph)
        is_unverified = gap is GapReason.ALIGNMENT_MISMATCH and unverified in gap_reasons
        return unverified if is_unverified else gap

    def _graph(self, invocation: Invocation) -> GraphInstance | None:
        return None if invocation.graph is None else self._graphs[invocation.graph]


def _site_kind(site: CallSite) -> LaunchKind:
    """Tell the kind of what a call site launches; a traced collective is a library call too."""
    communicates = is_communication(site.op or "")
    return LaunchKind.COMMUNICATION if communicates else LaunchKind(site.kind)


def _uncaptured(graph: GraphInstance | None) -> GapReason:
    """Tell why nobody saw the compile of a graph."""
    reasons = {gap.reason for gap in graph.gaps} if graph else set()
    child = GapReason.COMPILED_IN_CHILD
    return child if child in reasons else GapReason.GRAPH_NOT_CAPTURED


def kind_by_name(name: str, category: str, *, is_glue: bool) -> LaunchKind:
    """Tell the kind of a launch in a graph call that no call site tells.

    Args:
        name: the event's name.
        category: the event's category.
        is_glue: the wrapper's own work rather than a library call.
    """
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
