"""The kernels that a graph's library calls launch, from stored records and other calls.

A library has other kernels for other sizes, but a split product still ends in the kernel that sums
its parts, and that never begins a call. A memset may be part of the next call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from profiler_ext.attribution.alignment.loops import is_in_loop
from profiler_ext.attribution.graph_calls import GraphCall, Match, Pattern
from profiler_ext.kineto import classify
from profiler_ext.records import provenance, vocabulary

_KernelNames = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelFamilies:
    """How calls of libraries begin and continue."""

    followers: frozenset[str] = frozenset()  # names that were seen in a call, and never first
    # Operators whose calls all began once: one kernel, and its followers
    plain_ops: frozenset[str] = frozenset()

    def parts(self, names: Sequence[str]) -> list[int] | None:
        """Return for each name its part, from 0; ``None`` where that is open."""
        # That is where the first one is a follower, and where a memset may be of either side.
        begins = [name not in self.followers for name in names]
        if not any(begins[:1]) or any(map(classify.is_memory_work, names)):
            return None
        return [sum(begins[: at + 1]) - 1 for at in range(len(begins))]


@dataclass(frozen=True, slots=True)
class KnownKernels:
    """Which device events library calls launch, from other calls of their graph.

    Attributes:
        elsewhere: the sites that only another run observed.
    """

    # Their names in order, by index of the call site
    kernels: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    from_store: frozenset[int] = frozenset()
    # The call ran other kernels than known because the libraries chose again, and nothing was lost:
    # for example, another call ran the very same
    is_reselected: bool = False
    is_contradicted: bool = False  # other calls ran something else, and none the same
    # How the calls of libraries begin and continue in this session
    families: KernelFamilies = field(default_factory=KernelFamilies)


def kernel_families(graphs: Iterable[provenance.GraphInstance]) -> KernelFamilies:
    """Collect which kernels only continue calls, and whose operators' calls each began once."""
    ran: dict[str | None, set[_KernelNames]] = defaultdict(set)
    for graph in graphs:
        sites = graph.call_sites
        for at, names in (*graph.stored_kernels, *graph.library_kernels):
            if names and at < len(sites):
                ran[sites[at].op].add(names)
    every = [names for own in ran.values() for names in own]
    later = {name for names in every for name in names[1:] if not classify.is_memory_work(name)}
    followers = later - {names[0] for names in every}
    plain = [op for op, own in ran.items() if all(followers.issuperset(n[1:]) for n in own)]
    return KernelFamilies(frozenset(followers), frozenset(op for op in plain if op))


def ran_at_sites(pattern: Pattern, matches: Sequence[Match]) -> dict[int, _KernelNames]:
    """Return the names of what each call site launched in a call, in order."""
    ran_at: dict[int, _KernelNames] = {}
    for match, names in zip(matches, pattern.event_names, strict=True):
        if match.site is not None:
            ran_at[match.site] = ran_at.get(match.site, ()) + names
    return ran_at


class ObservedKernels:
    """The observed kernels of each graph's library calls."""

    def __init__(self, graphs: Sequence[provenance.GraphInstance]) -> None:
        self._graphs = graphs
        self._kernels: dict[object, dict[int, _KernelNames | None]] = {}
        self._seen: dict[Hashable, Sequence[Match]] = {}
        self._current: dict[object, dict[int, tuple[KnownKernels, int]]] = {}
        self._states: dict[object, int] = {}

    def observe(self, graph: int, call: GraphCall, matches: Sequence[Match]) -> None:
        """Record which device events each library call launched; a conflict removes them."""
        # An equal call adds nothing. Its matches are kept, as their id is the key.
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
            if sites[site].kind is vocabulary.SiteKind.EXTERN:
                known[site] = ran if known.setdefault(site, ran) == ran else None
        self._current.pop(identity, None)

    def of_graph(self, graph: int) -> tuple[KnownKernels, int]:
        """Return the known kernels of a graph's library calls, and a number for equal ones."""
        current = self._current.setdefault(self._identity(graph), {})
        if graph not in current:
            instance = self._graphs[graph]
            here = dict(instance.library_kernels)
            called = self._kernels.get(self._identity(graph), {})
            others = {at: ran for at, ran in called.items() if at not in here}
            stored = {
                at: ran for at, ran in instance.stored_kernels if at not in {**others, **here}
            }
            known = {**stored, **others, **here}
            kernels = {at: ran for at, ran in known.items() if ran is not None}
            known_kernels = KnownKernels(kernels, frozenset(stored))
            state = tuple(sorted(known_kernels.kernels.items()))
            current[graph] = known_kernels, self._states.setdefault(state, len(self._states))
        return current[graph]

    def _identity(self, graph: int) -> object:
        return self._graphs[graph].record.digest or graph
