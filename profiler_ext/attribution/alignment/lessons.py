"""Owns what the calls of a recording teach of library calls, as they are aligned one by one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from profiler_ext.attribution.alignment.learnt import Learnt
from profiler_ext.attribution.alignment.loops import is_in_loop
from profiler_ext.attribution.alignment.matching import Match
from profiler_ext.attribution.calls.graph_calls import GraphCall
from profiler_ext.attribution.calls.patterns import Pattern
from profiler_ext.records import GraphInstance, SiteKind

_Names = tuple[str, ...]


def ran_at_sites(pattern: Pattern, matches: Sequence[Match]) -> dict[int, _Names]:
    """Return the names of what each call site launched in a call, in order.

    Args:
        pattern: what a call of a graph ran.
        matches: for each piece of its work the call site that it was led to.
    """
    ran_at: dict[int, _Names] = {}
    for match, names in zip(matches, pattern.event_names, strict=True):
        if match.site is not None:
            ran_at[match.site] = ran_at.get(match.site, ()) + names
    return ran_at


class Lessons:
    """What was learnt of each graph's library calls so far."""

    def __init__(self, graphs: Sequence[GraphInstance]) -> None:
        """Take the graphs.

        Args:
            graphs: the graph instances of the process.
        """
        self._graphs = graphs
        self._kernels: dict[object, dict[int, _Names | None]] = {}
        self._heard: dict[Hashable, Sequence[Match]] = {}
        self._current: dict[object, dict[int, tuple[Learnt, int]]] = {}
        self._states: dict[object, int] = {}

    def learn(self, graph: int, call: GraphCall, matches: Sequence[Match]) -> None:
        """Note which device events each library call launched; a dispute unlearns it.

        The same call teaches nothing more; its matches are kept, so that no others can come to be
        the same.

        Args:
            graph: index of the graph that was called.
            call: the call.
            matches: for each piece of its work the call site that it was led to.
        """
        key = (graph, call.pattern, id(matches))
        if key not in self._heard:
            self._heard[key] = matches
            self._hear(graph, call.pattern, matches)

    def _hear(self, graph: int, pattern: Pattern, matches: Sequence[Match]) -> None:
        sites, identity = self._graphs[graph].call_sites, self._identity(graph)
        if any(map(is_in_loop, sites)):
            return  # what a site launches differs from call to call
        known = self._kernels.setdefault(identity, {})
        for site, ran in ran_at_sites(pattern, matches).items():
            if sites[site].kind is SiteKind.EXTERN:
                known[site] = ran if known.setdefault(site, ran) == ran else None
        self._current.pop(identity, None)

    def of_graph(self, graph: int) -> tuple[Learnt, int]:
        """Return what was learnt of a graph's library calls, and a number: equal ones have one."""
        current = self._current.setdefault(self._identity(graph), {})
        if graph not in current:
            learnt = self._learnt(graph)
            state = tuple(sorted(learnt.kernels.items()))
            current[graph] = learnt, self._states.setdefault(state, len(self._states))
        return current[graph]

    def _learnt(self, graph: int) -> Learnt:
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
