"""Finds the graph instance that each call of a compiled graph ran, and aligns the call.

Regions have no cache key, and those of repeated blocks are alike. But a graph calls its regions
once and in order, so the n-th call within a run of it is the n-th region.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from profiler_ext.attribution.alignment import library_kernels, verification
from profiler_ext.attribution.alignment.aligning import align
from profiler_ext.attribution.graph_calls import GraphCall, Match, Pattern
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import Lineage
from profiler_ext.records.provenance import CallSite, GraphInstance

_WITHOUT_LINE = (LineEvidence.STALE, LineEvidence.EAGER_BACKWARD, LineEvidence.ABSENT)


class Regions:
    """The regions of each graph, in the order in which it calls them."""

    def __init__(self, graphs: Sequence[GraphInstance]) -> None:
        members = defaultdict[int, list[int]](list)
        for at, graph in enumerate(graphs):
            if graph.parent_graph is not None:
                members[graph.parent_graph].append(at)
        self._place = {
            at: (place, len(own)) for own in members.values() for place, at in enumerate(own)
        }

    def at_place(self, candidates: list[int], call: GraphCall) -> list[int]:
        """Return the candidates at a call's position; all where none is."""
        in_place = [at for at in candidates if self._place.get(at, call.place) == call.place]
        return in_place or candidates


class Aligner:
    """Aligns calls with graphs; equal calls of one graph are aligned once.

    Args:
        graphs: the graph instances of the process.
        calls: all calls of a trace.
        compiles: something was compiled while the calls were recorded.
    """

    def __init__(
        self, graphs: Sequence[GraphInstance], calls: Sequence[GraphCall], *, compiles: bool = False
    ) -> None:
        self._graphs, self._compiles = graphs, compiles
        self._uses = Counter(map(_use_key, calls))
        self._failed = [graph for graph in graphs if graph.is_failed]
        self._families = library_kernels.kernel_families(graphs)
        self._known: dict[object, tuple[Match, ...]] = {}
        self._observed = library_kernels.ObservedKernels(graphs)
        works = dict.fromkeys(call.pattern for call in calls)
        numbers: dict[object, int] = {}
        self._numbers = {each: numbers.setdefault(each.work, len(numbers)) for each in works}
        replays = [(_replay_key(call), call.pattern) for call in calls if call.is_replay]
        self._replays_by_pattern = Counter(
            (*replay_key, self._numbers[pattern]) for replay_key, pattern in replays
        )
        self._replays = Counter(replay_key for replay_key, _ in replays)
        self._equivalent: dict[tuple[int, ...], bool] = {}
        self.regions = Regions(graphs)

    def align(
        self, graph: int, call: GraphCall, *, is_reselected: bool = False
    ) -> tuple[Match, ...]:
        """Return the matches of what a call ran with a graph's call sites."""
        known_kernels, state = self._observed.of_graph(graph)
        key = (graph, self._numbers[call.pattern], state, is_reselected)
        if key not in self._known:
            replay_key = _replay_key(call)
            same, every = (
                self._replays_by_pattern[*replay_key, self._numbers[call.pattern]],
                self._replays[replay_key],
            )
            known_kernels = replace(
                known_kernels,
                is_reselected=is_reselected or same > 1,
                is_contradicted=is_reselected or same == 1 < every,
                families=self._families,
            )
            self._known[key] = align(self.sites(graph), call.work, known_kernels)
        return self._known[key]

    def latest_graphs(self, graphs: Sequence[int]) -> list[int]:
        """Return those of each frame's last Dynamo graph, if none was made meanwhile."""
        # A recompiled frame has the same id only after a reset of Dynamo, which drops the older
        # code.
        if self._compiles:
            return list(graphs)
        last = {self._graphs[at].compile_id: self._graphs[at].dynamo_number for at in graphs}
        numbered = ((at, self._graphs[at]) for at in graphs)
        return [at for at, graph in numbered if graph.dynamo_number == last[graph.compile_id]]

    def are_equivalent(self, graphs: Sequence[int]) -> bool:
        """Tell whether any of the graphs gives the same result for a call."""
        key = tuple(graphs)
        if key not in self._equivalent:
            self._equivalent[key] = (
                len(key) <= 1 or len({_launch_signature(self._graphs[at]) for at in key}) == 1
            )
        return self._equivalent[key]

    def are_too_few(self, graphs: Sequence[int], call: GraphCall) -> bool:
        """Tell whether a graph is missing: a run of a frame calls each of its graphs once."""
        is_identified = call.graph is not None or call.key is None or call.frame_row is None
        return not is_identified and self._uses[_use_key(call)] > len(graphs)

    def may_have_failed(self, call: GraphCall) -> bool:
        """Tell whether a call may be one of a graph whose capture failed."""
        return any(_may_be_call_of(call, graph) for graph in self._failed)

    def sites(self, graph: int) -> tuple[CallSite, ...]:
        """Return the call sites of a graph."""
        return self._graphs[graph].call_sites

    def observe(self, graph: int, call: GraphCall, matches: Sequence[Match]) -> None:
        """Record which device events each library call launched; a conflict removes them."""
        # matches: the call site of each item of its work
        self._observed.observe(graph, call, matches)

    def known_kernels(self, graph: int) -> library_kernels.KnownKernels:
        """Return the known kernels of a graph's library calls."""
        return self._observed.of_graph(graph)[0]


def _replay_key(call: GraphCall) -> tuple[object, ...]:
    return call.graph, call.key, call.compile_id, call.context.is_backward


def _may_be_call_of(call: GraphCall, failed: GraphInstance) -> bool:
    if call.graph is not None:
        return call.graph == failed.index
    if call.compile_id is not None and failed.compile_id is not None:
        return call.compile_id == failed.compile_id
    return call.key == failed.key


def _use_key(call: GraphCall) -> object:
    return call.key, call.frame_row, call.context.is_backward


def _launch_signature(graph: GraphInstance) -> object:
    """Return a graph's launches without what differs from compile to compile."""
    # After a reset of Dynamo an equal graph has the old compile id, but other trace numbers, and
    # its lines may be known by another rule.
    return graph.call_sites, tuple(
        replace(n, lineage=_of_any_compile(n.lineage)) for n in graph.nodes
    )


def _of_any_compile(lineage: Lineage) -> Lineage:
    evidence = lineage.evidence if lineage.evidence in _WITHOUT_LINE else None
    return replace(lineage, seq_nr=None, mechanism=None, evidence=evidence)


@dataclass(frozen=True, slots=True)
class Invocation:
    """A call of a compiled graph with its result."""

    call: GraphCall
    graph: int | None  # index into ``Recording.graphs``; ``None`` when not known
    matches: tuple[Match, ...]  # one for each item of the call
    gap: GapReason | None = None  # why the graph is not known


def identify(
    calls: Sequence[GraphCall], graphs: Sequence[GraphInstance], aligner: Aligner
) -> tuple[Invocation, ...]:
    """Find the graph of every call and align it."""
    # Calls without replay come first: they show which kernels a library call launches.
    identifier = _Identifier(graphs, aligner)
    invocations: dict[int, Invocation] = {}
    for call in sorted(calls, key=lambda call: call.is_replay):
        identified = invocations[call.marker] = identifier.invocation(call)
        if identified.graph is not None and not call.is_replay:
            aligner.observe(identified.graph, call, identified.matches)
    return tuple(invocations[call.marker] for call in calls)


class _Identifier:
    """Finds the graph of each call; what equal calls share is computed once."""

    def __init__(self, graphs: Sequence[GraphInstance], aligner: Aligner) -> None:
        self._graphs, self._aligner = graphs, aligner
        self._of_key: dict[str | None, list[int]] = {}
        for at, graph in enumerate(graphs):
            self._of_key.setdefault(graph.key, []).append(at)
        self._known: dict[object, list[int] | None] = {}
        self._are_plausible: dict[object, tuple[tuple[Match, ...], bool]] = {}
        self._gaps: dict[tuple[GapReason, int], tuple[Match, ...]] = {}

    def invocation(self, call: GraphCall) -> Invocation:
        candidates = self._candidates(call)
        if candidates is None:
            return self._unknown(call, GapReason.CAPTURE_FAILED)
        if not candidates:
            return self._unknown(call, GapReason.GRAPH_NOT_CAPTURED)
        if self._aligner.are_too_few(candidates, call):
            return self._unknown(call, GapReason.GRAPH_AMBIGUOUS)
        candidates = self._fitting(call, candidates)
        if not candidates or not self._aligner.are_equivalent(candidates):
            return self._unknown(call, GapReason.GRAPH_AMBIGUOUS)
        graph = candidates[-1]
        matches = self._aligner.align(graph, call)
        if not self._is_plausible(call.pattern, matches):
            matches = self._all_gaps(call, GapReason.ALIGNMENT_MISMATCH)
        return Invocation(call, graph, matches)

    def _candidates(self, call: GraphCall) -> list[int] | None:
        """Return the graphs that a call may have run; ``None`` where capture failed for one."""
        key = (call.graph, call.key, call.compile_id, call.context.is_backward, call.place)
        if key not in self._known:
            candidates = _candidates(call, self._graphs, self._of_key.get(call.key, []))
            candidates = self._aligner.latest_graphs(candidates)
            in_place = self._aligner.regions.at_place(candidates, call)
            self._known[key] = None if self._aligner.may_have_failed(call) else in_place
        return self._known[key]

    def _fitting(self, call: GraphCall, candidates: list[int]) -> list[int]:
        if not self._aligner.are_equivalent(candidates):
            candidates = [at for at in candidates if _fits(call, at, self._aligner)]
        if not self._aligner.are_equivalent(candidates):
            candidates = _as_called(call, candidates, self._graphs)
        return candidates

    def _is_plausible(self, pattern: Pattern, matches: tuple[Match, ...]) -> bool:
        key = (pattern, id(matches))  # they are kept, so that no others can come to be the same
        if key not in self._are_plausible:
            self._are_plausible[key] = matches, verification.is_plausible(pattern.work, matches)
        return self._are_plausible[key][1]

    def _unknown(self, call: GraphCall, reason: GapReason) -> Invocation:
        return Invocation(call, None, self._all_gaps(call, reason), reason)

    def _all_gaps(self, call: GraphCall, reason: GapReason) -> tuple[Match, ...]:
        count = len(call.work)
        return self._gaps.setdefault((reason, count), (Match(gap=reason),) * count)


def _candidates(
    call: GraphCall, graphs: Sequence[GraphInstance], candidates: list[int]
) -> list[int]:
    """Return the captured graphs that the call may have run."""
    # The one that the process recorded, or else those of its key, frame and direction.
    if call.graph is not None:
        return [at for at in candidates if at == call.graph and graphs[at].is_known]
    candidates = [at for at in candidates if graphs[at].is_known]
    if call.compile_id is not None:
        same_frame = [at for at in candidates if graphs[at].compile_id == call.compile_id]
        without_compile_id = [at for at in candidates if call.key and graphs[at].compile_id is None]
        candidates = same_frame or without_compile_id
    same_direction = [at for at in candidates if graphs[at].is_backward == call.context.is_backward]
    return same_direction if same_direction or call.key is None else candidates


def _as_called(
    call: GraphCall, candidates: list[int], graphs: Sequence[GraphInstance]
) -> list[int]:
    is_differentiated = call.context.is_forward or call.context.is_backward
    known = (at for at in candidates if graphs[at].is_known)
    same_mode = [at for at in known if graphs[at].is_inference != is_differentiated]
    return same_mode or candidates


def _fits(call: GraphCall, graph: int, aligner: Aligner) -> bool:
    gaps = {match.gap for match in aligner.align(graph, call)}
    return GapReason.ALIGNMENT_MISMATCH not in gaps
