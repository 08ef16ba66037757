"""Owns what is kept of a Dynamo graph of this process: its lines by source function, its digest.

A cached artifact knows its nodes by source-function names. They lead to this process's
lines only if the Dynamo graph is the same: same names, same order, same edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from profiler_ext.recall.places import Source
from profiler_ext.recall.region_calls import RegionRuns
from profiler_ext.records import Lineage, ModuleFrame

CopySources = Mapping[str, Lineage]
"""Where the nodes of compiled autograd's graph come from: of a copy, what it copies."""


Inlined = tuple[tuple[str, ...], tuple[Source, ...]]
"""The operators of a graph that a call carries, and where each was called."""


@dataclass(frozen=True, slots=True)
class DynamoGraph:
    """What is kept of one Dynamo graph.

    Attributes:
        digest: of its source functions in order, and of its edges.
        roots: variables that hold the user's model (``capture/traces/module_paths.py``).
        own: the module whose own method was compiled, if it was one.
        sources: source-function names to where they were called; only names that are unique, and
            called once.
        places: where each of its nodes was called, in order; then those of the calls of regions
            that were traced for another call.
        arguments: for each of its inputs the name in ``sources`` that stands for it.
        runs: the runs of regions that run more often than they were traced.
        inlined: the graphs that a call carries (a ``score_mod``), by the call's source function:
            for each the names of its operators, and where they were called.
        copy_sources: what compiled autograd copied its nodes from; of its graphs only.
        takes_gradient: it differentiates in itself, so that backward nodes are among the forward's.
        held: modules that the program reached by another path than the model holds them under.
        lost: what was not found in it, as its mechanism failed: ``modules``, ``runs``, ``inlined``,
            ``arguments``.
        tensor_paths: the path of each input that a module holds, ``layers.0.up.weight``, by the
            name of its source.
        held_inputs: where it is a part that a backend compiles by itself, the path of each input
            that a module holds, ``layers.0.up.weight``, by its position; ``None`` of a whole graph.
    """

    digest: str
    roots: tuple[str, ...]
    own: ModuleFrame | None
    sources: Mapping[tuple[str, ...], Source]
    places: tuple[Source, ...] = ()
    arguments: tuple[tuple[str, ...], ...] = ()
    runs: RegionRuns = field(default_factory=RegionRuns)
    inlined: Mapping[tuple[str, ...], tuple[Inlined, ...]] = field(default_factory=dict)
    copy_sources: CopySources = field(default_factory=dict)
    takes_gradient: bool = False
    held: Mapping[str, str | None] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    tensor_paths: Mapping[str, str] = field(default_factory=dict)
    held_inputs: Mapping[int, str] | None = None

    def inlined_source(self, call: tuple[str, ...], ops: tuple[str, ...], at: int) -> Source | None:
        """Return where the node of a carried graph was called, by its place in that graph.

        Args:
            call: source function of the call that carries the graph.
            ops: names of the graph's operators, in order.
            at: the node's place among them.
        """
        same = [sources for names, sources in self.inlined.get(call, ()) if names == ops]
        return same[0][at] if len(same) == 1 else None

    def only_source(self, call: tuple[str, ...], graph: int) -> Source | None:
        """Return where all of a carried graph was called, if it was in one place.

        Args:
            call: source function of the call that carries the graph.
            graph: which of the graphs that it carries.
        """
        carried = self.inlined.get(call, ())[graph:][:1]
        places = {source for _, sources in carried for source in sources}
        return places.pop() if len(places) == 1 else None
