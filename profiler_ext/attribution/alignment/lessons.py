"""Owns what the calls of a recording teach of library calls, as they are aligned one by one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from profiler_ext.attribution.alignment.learnt import KnownKernels
from profiler_ext.attribution.alignment.loops import is_in_loop
from profiler_ext.attribution.alignment.matching import Match
from profiler_ext.attribution.calls.graph_calls import GraphCall
from profiler_ext.attribution.calls.patterns import Pattern
from profiler_ext.records import GraphInstance, SiteKind

_EventNames = tuple[str, ...]


def ran_at_sites(pattern: Pattern, matches: Sequence[Match]) -> dict[int, _EventNames]:
    """Return the names of what each call site launched in a call, in order.

    Args:
        pattern: what a call of a graph ran.
        matches: for each piece of its work the call site that it was led to.
    """
    ran_at: dict[int, _EventNames] = {}
    for match, names in zip(matches, pattern.event_names, strict=True):
        if match.site is not None:
            ran_at[match.site] = ran_at.get(match.site, ()) + names
    return ran_at


class ObservedKernels:
    """What was learnt of each graph's library calls so far."""

    def __init__(self, graphs: Sequence[GraphInstance]) -> None:
        """Take the graphs.

        Args:
            graphs: the graph instances of the process.
        """
        self._graphs = graphs
        self._kernels: dict[object, dict[int, _EventNames | None]] = {}
        self._seen: dict[Hashable, Sequence[Match]] = {}
        self._current: dict[object, dict[int, tuple[KnownKernels, int]]] = {}
        self._states: dict[object, int] = {}

    def observe(self, graph: int, call: GraphCall, matches: Sequence[Match]) -> None:
        """Note which device events each library call launched; a dispute unlearns it.

        The same call teaches nothing more; its matches are kept, so that no others can come to be
        the same.

        Args:
            graph: index of the graph that was called.
            call: the call.
            matches: for each piece of its work the call site that it was led to.
        """
        key = (graph, call.pattern, id(matches))
        if key not in self._seen:
            self._seen[key] = matches
            self._record(graph, call.pattern, matches)

    def _record(self, graph: int, pattern: Pattern, matches: Sequence[Match]) -> None:
        sites, identity = self._graphs[graph].call_sites, self._identity(graph)
        if any(map(is_in_loop, sites)):
            return  # what a site launches differs from call to call
        known = self._kernels.setdefault(identity, {})
        for site, ran in ran_at_sites(pattern, matches).items():
            if sites[site].kind is SiteKind.EXTERN:
                known[site] = ran if known.setdefault(site, ran) == ran else None
        self._current.pop(identity, None)

    def of_graph(self, graph: int) -> tuple[KnownKernels, int]:
        """Return what was learnt of a graph's library calls, and a number: equal ones have one."""
        current = self._current.setdefault(self._identity(graph), {})
        if graph not in current:
            known_kernels = self._known(graph)
            state = tuple(sorted(known_kernels.kernels.items()))
            current[graph] = known_kernels, self._states.setdefault(state, len(self._states))
        return current[graph]

    def _known(self, graph: int) -> KnownKernels:
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
        return KnownKernels(kernels, frozenset(stored))

    def _identity(self, graph: int) -> object:
        return self._graphs[graph].record.digest or graph
