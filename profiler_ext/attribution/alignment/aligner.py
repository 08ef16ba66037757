"""Owns how calls are aligned with graphs: equal ones once, with what other calls taught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from profiler_ext.attribution.alignment.aligning import align
from profiler_ext.attribution.alignment.learnt import KnownKernels, kernel_families
from profiler_ext.attribution.alignment.lessons import ObservedKernels
from profiler_ext.attribution.alignment.matching import Match
from profiler_ext.attribution.alignment.region_order import Regions
from profiler_ext.attribution.calls.graph_calls import GraphCall
from profiler_ext.records import CallSite, GraphInstance, Lineage, LineEvidence

_WITHOUT_LINE = (LineEvidence.STALE, LineEvidence.EAGER_BACKWARD, LineEvidence.ABSENT)


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
        self._uses = Counter(map(_use_key, calls))
        self._failed = [graph for graph in graphs if graph.is_failed]
        self._families = kernel_families(graphs)
        self._known: dict[object, tuple[Match, ...]] = {}
        self._observed = ObservedKernels(graphs)
        works = dict.fromkeys(call.pattern for call in calls)
        numbers: dict[object, int] = {}
        self._numbers = {each: numbers.setdefault(each.work, len(numbers)) for each in works}
        replays = [(_replay_key(call), call.pattern) for call in calls if call.is_replay]
        self._replays_by_pattern = Counter((*replay_key, self._numbers[pattern]) for replay_key, pattern in replays)
        self._replays = Counter(replay_key for replay_key, _ in replays)
        self._equivalent: dict[tuple[int, ...], bool] = {}
        self.regions = Regions(graphs)

    def align(self, graph: int, call: GraphCall, *, is_reselected: bool = False) -> tuple[Match, ...]:
        """Return the matches of what a call ran with a graph's call sites.

        Args:
            graph: the graph.
            call: the call.
            is_reselected: its libraries may run something else than was learnt.
        """
        known_kernels, state = self._observed.of_graph(graph)
        key = (graph, self._numbers[call.pattern], state, is_reselected)
        if key not in self._known:
            known_kernels = self._for_call(known_kernels, call, is_reselected)
            self._known[key] = align(self.sites(graph), call.work, known_kernels)
        return self._known[key]

    def _for_call(self, known_kernels: KnownKernels, call: GraphCall, is_reselected: bool) -> KnownKernels:
        """Return what was learnt, with what other replays of the same say of a call."""
        replay_key = _replay_key(call)
        same, every = self._replays_by_pattern[*replay_key, self._numbers[call.pattern]], self._replays[replay_key]
        return replace(
            known_kernels,
            is_reselected=is_reselected or same > 1,
            is_contradicted=is_reselected or same == 1 < every,
            families=self._families,
        )

    def latest_graphs(self, graphs: Sequence[int]) -> list[int]:
        """Return those of the last Dynamo graph of each compiled frame, if none was made meanwhile.

        A frame that is compiled again has its id from before only after a reset of Dynamo, which
        lets go of the older code.
        """
        if self._compiles:
            return list(graphs)
        last = {self._graphs[at].compile_id: self._graphs[at].dynamo_number for at in graphs}
        numbered = ((at, self._graphs[at]) for at in graphs)
        return [at for at, graph in numbered if graph.dynamo_number == last[graph.compile_id]]

    def are_equivalent(self, graphs: Sequence[int]) -> bool:
        """Tell whether it does not matter which of the graphs a call ran."""
        key = tuple(graphs)
        if key not in self._equivalent:
            self._equivalent[key] = (
                len(key) <= 1 or len({_launch_signature(self._graphs[at]) for at in key}) == 1
            )
        return self._equivalent[key]

    def are_too_few(self, graphs: Sequence[int], call: GraphCall) -> bool:
        """Tell whether there were more graphs: a run of a frame calls each of its graphs once.

        Args:
            graphs: indices of the graphs that a call may be of.
            call: the call.
        """
        is_identified = call.graph is not None or call.key is None or call.frame_row is None
        return not is_identified and self._uses[_use_key(call)] > len(graphs)

    def may_have_failed(self, call: GraphCall) -> bool:
        """Tell whether a call may be one of a graph of which capture lost what it knew."""
        return any(_may_be_call_of(call, graph) for graph in self._failed)

    def sites(self, graph: int) -> tuple[CallSite, ...]:
        """Return the call sites of a graph."""
        return self._graphs[graph].call_sites

    def observe(self, graph: int, call: GraphCall, matches: Sequence[Match]) -> None:
        """Note which device events each library call launched; a dispute unlearns it.

        Args:
            graph: index of the graph that was called.
            call: the call.
            matches: for each piece of its work the call site that it was led to.
        """
        self._observed.observe(graph, call, matches)

    def known_kernels(self, graph: int) -> KnownKernels:
        """Return what was learnt of a graph's library calls."""
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
