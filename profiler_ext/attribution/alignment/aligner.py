"""Owns how calls are aligned with graphs: equal ones once, with what other calls taught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from profiler_ext.attribution.alignment.aligning import align
from profiler_ext.attribution.alignment.learnt import Learnt, families_of
from profiler_ext.attribution.alignment.lessons import Lessons
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
        self._uses = Counter(map(_use, calls))
        self._failed = [graph for graph in graphs if graph.is_failed]
        self._families = families_of(graphs)
        self._known: dict[object, tuple[Match, ...]] = {}
        self._lessons = Lessons(graphs)
        works = dict.fromkeys(call.pattern for call in calls)
        numbers: dict[object, int] = {}
        self._numbers = {each: numbers.setdefault(each.work, len(numbers)) for each in works}
        replays = [(_which_ran(call), call.pattern) for call in calls if call.is_replay]
        self._ran = Counter((*which, self._numbers[pattern]) for which, pattern in replays)
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
        learnt, state = self._lessons.of_graph(graph)
        key = (graph, self._numbers[call.pattern], state, chose_anew)
        if key not in self._known:
            learnt = self._of_call(learnt, call, chose_anew)
            self._known[key] = align(self.sites(graph), call.work, learnt)
        return self._known[key]

    def _of_call(self, learnt: Learnt, call: GraphCall, chose_anew: bool) -> Learnt:
        """Return what was learnt, with what other replays of the same say of a call."""
        which = _which_ran(call)
        same, every = self._ran[*which, self._numbers[call.pattern]], self._replays[which]
        return replace(
            learnt,
            chose_anew=chose_anew or same > 1,
            is_contradicted=chose_anew or same == 1 < every,
            families=self._families,
        )

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
        self._lessons.learn(graph, call, matches)

    def learnt(self, graph: int) -> Learnt:
        """Return what was learnt of a graph's library calls."""
        return self._lessons.of_graph(graph)[0]


def _which_ran(call: GraphCall) -> tuple[object, ...]:
    return call.graph, call.key, call.compile_id, call.context.is_backward


def _may_be(call: GraphCall, failed: GraphInstance) -> bool:
    if call.graph is not None:
        return call.graph == failed.index
    if call.compile_id is not None and failed.compile_id is not None:
        return call.compile_id == failed.compile_id
    return call.key == failed.key


def _use(call: GraphCall) -> object:
    return call.key, call.frame_row, call.context.is_backward


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
