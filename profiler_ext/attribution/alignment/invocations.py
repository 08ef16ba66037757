"""Owns which graph instance each call of a compiled graph ran, and the matches of what it ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from profiler_ext.attribution.alignment.aligning import align
from profiler_ext.attribution.alignment.learnt import Learnt, families_of
from profiler_ext.attribution.alignment.loops import is_in_loop
from profiler_ext.attribution.alignment.matching import Match
from profiler_ext.attribution.alignment.region_order import Regions
from profiler_ext.attribution.alignment.verification import is_plausible
from profiler_ext.attribution.calls.graph_calls import GraphCall
from profiler_ext.records import (
    CallSite,
    GapReason,
    GraphInstance,
    Lineage,
    LineEvidence,
    SiteKind,
)

_Names = tuple[str, ...]

_WITHOUT_LINE = (LineEvidence.STALE, LineEvidence.EAGER_BACKWARD, LineEvidence.ABSENT)


@dataclass(frozen=True, slots=True)
class Invocation:
    """A call of a compiled graph with what was found of it.

    Attributes:
        call: the call.
        graph: index into ``Recording.graphs``; ``None`` when not known.
        matches: one for each item of the call.
        gap: why the graph is not known.
    """

    call: GraphCall
    graph: int | None
    matches: tuple[Match, ...]
    gap: GapReason | None = None


def _which_ran(call: GraphCall) -> tuple[object, ...]:
    return call.graph, call.key, call.compile_id, call.context.is_backward


def ran_at_sites(call: GraphCall, matches: Sequence[Match]) -> dict[int, _Names]:
    """Return the names of what each call site launched in a call, in order.

    Args:
        call: a call of a graph.
        matches: for each piece of its work the call site that it was led to.
    """
    ran_at: dict[int, _Names] = {}
    for match, names in zip(matches, call.event_names, strict=True):
        if match.site is not None:
            ran_at[match.site] = ran_at.get(match.site, ()) + names
    return ran_at


class Aligner:
    """Aligns calls with graphs; equal calls of one graph are aligned once.

    Args:
        graphs: the graph instances of the process.
        calls: all calls of a trace.
        compiles: something was compiled while the calls were recorded.
    """

    def __init__(
        self,
        graphs: Sequence[GraphInstance],
        calls: Sequence[GraphCall],
        *,
        compiles: bool = False,
    ) -> None:
        self._graphs, self._compiles = graphs, compiles
        self._uses = Counter(map(_use, calls))
        self._failed = [graph for graph in graphs if graph.is_failed]
        self._known: dict[object, tuple[Match, ...]] = {}
        self._families = families_of(graphs)
        self._kernels: dict[object, dict[int, _Names | None]] = {}
        self._numbers = {work: at for at, work in enumerate({call.work for call in calls})}
        replays = [(_which_ran(call), call.work) for call in calls if call.is_replay]
        self._ran = Counter((*which, self._numbers[work]) for which, work in replays)
        self._replays = Counter(which for which, _ in replays)
        self._alike: dict[tuple[int, ...], bool] = {}
        self.regions = Regions(graphs)

    def align(self, graph: int, call: GraphCall, *, chose_anew: bool = False) -> tuple[Match, ...]:
        """Return the matches of what a call ran with a graph's call sites.

        Args:
            graph: the graph.
            call: the call.
            chose_anew: its libraries may run something else than was learnt.
        """
        work = self._numbers[call.work]
        which = _which_ran(call)
        same, every = self._ran[*which, work], self._replays[which]
        learnt = replace(
            self.learnt(graph),
            chose_anew=chose_anew or same > 1,
            is_contradicted=chose_anew or same == 1 < every,
            families=self._families,
        )
        key = (graph, work, tuple(sorted(learnt.kernels.items())), chose_anew)
        if key not in self._known:
            self._known[key] = align(self.sites(graph), call.work, learnt)
        return self._known[key]

    def in_force(self, graphs: Sequence[int]) -> list[int]:
        """Return those of the last Dynamo graph of each compiled frame, if none was made meanwhile.

        A frame that is compiled again has its id from before only after a reset of Dynamo, which
        lets go of the older code.
        """
        if self._compiles:
            return list(graphs)
        last = {self._graphs[at].compile_id: self._graphs[at].dynamo_number for at in graphs}
        numbered = ((at, self._graphs[at]) for at in graphs)
        return [at for at, graph in numbered if graph.dynamo_number == last[graph.compile_id]]

    def are_alike(self, graphs: Sequence[int]) -> bool:
        """Tell whether it does not matter which of the graphs a call ran."""
        key = tuple(graphs)
        if key not in self._alike:
            self._alike[key] = (
                len(key) <= 1 or len({_what_it_launches(self._graphs[at]) for at in key}) == 1
            )
        return self._alike[key]

    def are_too_few(self, graphs: Sequence[int], call: GraphCall) -> bool:
        """Tell whether there were more graphs: a run of a frame calls each of its graphs once.

        Args:
            graphs: indices of the graphs that a call may be of.
            call: the call.
        """
        is_told = call.graph is not None or call.key is None or call.frame_row is None
        return not is_told and self._uses[_use(call)] > len(graphs)

    def may_have_failed(self, call: GraphCall) -> bool:
        """Tell whether a call may be one of a graph of which capture lost what it knew."""
        return any(_may_be(call, graph) for graph in self._failed)

    def sites(self, graph: int) -> tuple[CallSite, ...]:
        """Return the call sites of a graph."""
        return self._graphs[graph].call_sites

    def learn(self, graph: int, call: GraphCall, matches: Sequence[Match]) -> None:
        """Note which device events each library call launched; a dispute unlearns it.

        Args:
            graph: index of the graph that was called.
            call: the call.
            matches: for each piece of its work the call site that it was led to.
        """
        if any(map(is_in_loop, self.sites(graph))):
            return  # what a site launches differs from call to call
        known = self._kernels.setdefault(self._identity(graph), {})
        for site, ran in ran_at_sites(call, matches).items():
            if self._is_library(graph, site):
                known[site] = ran if known.setdefault(site, ran) == ran else None

    def learnt(self, graph: int) -> Learnt:
        """Return what was learnt of a graph's library calls.

        What was seen here when the graph was recorded is what its replays run; then come other
        calls of this process, then another run.
        """
        instance = self._graphs[graph]
        here = dict(instance.library_kernels)
        called = self._kernels.get(self._identity(graph), {})
        others = {at: ran for at, ran in called.items() if at not in here}
        stored = {at: ran for at, ran in instance.stored_kernels if at not in {**others, **here}}
        known = {**stored, **others, **here}
        kernels = {at: ran for at, ran in known.items() if ran is not None}
        return Learnt(kernels, frozenset(stored))

    def _identity(self, graph: int) -> object:
        return self._graphs[graph].record.digest or graph

    def _is_library(self, graph: int, site: int) -> bool:
        return self.sites(graph)[site].kind is SiteKind.EXTERN


def identify(
    calls: Sequence[GraphCall], graphs: Sequence[GraphInstance], aligner: Aligner
) -> tuple[Invocation, ...]:
    """Find the graph of every call and align it.

    Calls without replay come first: they teach which kernels a library call launches.

    Args:
        calls: the calls.
        graphs: the graph instances of the process.
        aligner: aligns the calls with those graphs.

    Returns:
        One for each call, in the order of the calls.
    """
    invocations: dict[int, Invocation] = {}
    for call in sorted(calls, key=lambda call: call.is_replay):
        invocations[call.marker] = _identify(call, graphs, aligner)
        graph = invocations[call.marker].graph
        if graph is not None and not call.is_replay:
            aligner.learn(graph, call, invocations[call.marker].matches)
    return tuple(invocations[call.marker] for call in calls)


def _identify(call: GraphCall, graphs: Sequence[GraphInstance], aligner: Aligner) -> Invocation:
    if aligner.may_have_failed(call):
        return _unknown(call, GapReason.CAPTURE_FAILED)
    candidates = aligner.in_force(_candidates(call, graphs))
    candidates = aligner.regions.at_place(candidates, call)
    if not candidates:
        return _unknown(call, GapReason.GRAPH_NOT_CAPTURED)
    if aligner.are_too_few(candidates, call):
        return _unknown(call, GapReason.GRAPH_AMBIGUOUS)
    if not aligner.are_alike(candidates):
        candidates = [at for at in candidates if _fits(call, at, aligner)]
    if not aligner.are_alike(candidates):
        candidates = _as_called(call, candidates, graphs)
    if not candidates or not aligner.are_alike(candidates):
        return _unknown(call, GapReason.GRAPH_AMBIGUOUS)
    graph = candidates[-1]
    matches = aligner.align(graph, call)
    if not is_plausible(call.work, matches):
        matches = tuple(Match(gap=GapReason.ALIGNMENT_MISMATCH) for _ in call.work)
    return Invocation(call, graph, matches)


def _may_be(call: GraphCall, failed: GraphInstance) -> bool:
    if call.graph is not None:
        return call.graph == failed.index
    if call.compile_id is not None and failed.compile_id is not None:
        return call.compile_id == failed.compile_id
    return call.key == failed.key


def _candidates(call: GraphCall, graphs: Sequence[GraphInstance]) -> list[int]:
    """Return the captured graphs that the call may have run.

    The one that the process noted of it, or else those of its key, frame and direction.
    """
    candidates = [at for at, graph in enumerate(graphs) if graph.key == call.key]
    if call.graph is not None:
        return [at for at in candidates if at == call.graph and graphs[at].is_known]
    candidates = [at for at in candidates if graphs[at].is_known]
    if call.compile_id is not None:
        same_frame = [at for at in candidates if graphs[at].compile_id == call.compile_id]
        of_none = [at for at in candidates if call.key and graphs[at].compile_id is None]
        candidates = same_frame or of_none
    same_way = [at for at in candidates if graphs[at].is_backward == call.context.is_backward]
    return same_way if same_way or call.key is None else candidates


def _use(call: GraphCall) -> object:
    return call.key, call.frame_row, call.context.is_backward


def _as_called(
    call: GraphCall, candidates: list[int], graphs: Sequence[GraphInstance]
) -> list[int]:
    """Return those candidates of which a gradient was asked for, or not, as of the call."""
    is_differentiated = call.context.is_forward or call.context.is_backward
    known = (at for at in candidates if graphs[at].is_known)
    like_it = [at for at in known if graphs[at].is_inference != is_differentiated]
    return like_it or candidates


def _what_it_launches(graph: GraphInstance) -> object:
    """Return what a graph says of its launches, but for what differs from compile to compile.

    After a reset of Dynamo an equal graph has the old compile id: its trace has other numbers, and
    its lines may be known by another rule.
    """
    return graph.call_sites, tuple(
        replace(n, lineage=_of_any_compile(n.lineage)) for n in graph.nodes
    )


def _of_any_compile(lineage: Lineage) -> Lineage:
    evidence = lineage.evidence if lineage.evidence in _WITHOUT_LINE else None
    return replace(lineage, seq_nr=None, mechanism=None, evidence=evidence)


def _fits(call: GraphCall, graph: int, aligner: Aligner) -> bool:
    gaps = {match.gap for match in aligner.align(graph, call)}
    return GapReason.ALIGNMENT_MISMATCH not in gaps


def _unknown(call: GraphCall, reason: GapReason) -> Invocation:
    return Invocation(call, None, tuple(Match(gap=reason) for _ in call.work), reason)
