"""What is kept of a Dynamo graph: where each node was called, its repeated regions, its digest.

Torch traces a region once, so its nodes have the lines and modules of one call. The calls on the
way to a run tell its own; passes may have put the graph of an outer one in the place of its call.

A cached artifact knows its nodes by source-function names. They lead to this process's
lines only if the Dynamo graph is the same: same names, same order, same edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TypeVar

from profiler_ext.records.lineage import Frame, Lineage, ModuleFrame


@dataclass(frozen=True, slots=True)
class Source:
    """Where a source function was called."""

    stack: tuple[Frame, ...]
    modules: tuple[ModuleFrame, ...]
    annotation: tuple[tuple[str, str], ...] = ()


_Each = TypeVar("_Each")


@dataclass(frozen=True, slots=True)
class RegionCall:
    """A call of a region that was traced for another call.

    Attributes:
        traced: where that other call stands.
        here: where this one stands.
        moved: the modules that it was traced on, to those that this call runs it on.
        unlike: those of them in whose place this call has one of another class, so other code.
    """

    traced: Source
    here: Source
    moved: Mapping[str, str]
    unlike: frozenset[str] = frozenset()

    def place(self, there: Source, source_fns: tuple[str, ...] = ()) -> Source:
        """Return where a node stands at this call; of other code than was traced, at the call."""
        if any(module.path in self.unlike for module in there.modules):
            return self.here
        length = len(self.traced.stack)
        is_within = there.stack[:length] == self.traced.stack
        stack = (*self.here.stack, *there.stack[length:]) if is_within else there.stack
        return replace(there, stack=stack, modules=self._of_modules(there.modules))

    def _of_modules(self, modules: tuple[ModuleFrame, ...]) -> tuple[ModuleFrame, ...]:
        """Return the modules on the way as far as this call tells them."""
        around = tuple(module for module in self.traced.modules if module.path)
        inner = modules[len(around) :] if modules[: len(around)] == around else modules
        renamed = [(self.module(module.path), module.class_name) for module in inner]
        known = takewhile(lambda each: each[0] is not None, renamed)
        moved = tuple(ModuleFrame(path, name) for path, name in known if path is not None)
        here = tuple(module for module in self.here.modules if module.path)
        return (*here, *moved) or self.here.modules

    def module(self, path: str) -> str | None:
        """Return the module that this call runs in place of one that the region was traced on."""
        if path in self.moved:
            return self.moved[path]
        parents = (each for each in self.moved if path.startswith(each + "."))
        there = max(parents, key=len, default="")
        here = self.moved.get(there, there)
        return None if here == there else here + path[len(there) :]


@dataclass(frozen=True, slots=True)
class RetracedCall:
    """A call of a region of which torch dropped the trace, since the graph was one it had.

    Attributes:
        here: where the call stands.
        by_name: source functions of the region's own nodes, to where this call's trace has them.
        by_stack: where nodes stand in the trace that was kept, to where they do in this call's.
    """

    here: Source
    by_name: Mapping[tuple[str, ...], Source]
    by_stack: Mapping[tuple[Frame, ...], Source]

    def place(self, there: Source, source_fns: tuple[str, ...] = ()) -> Source:
        """Return where a node stands at this call; where that may be two places, at the call."""
        named = self.by_name.get(source_fns)
        return named or self.by_stack.get(there.stack) or self.here


Again = RegionCall | RetracedCall
"""A call of a region whose graph was traced for another call."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a region.

    Attributes:
        names: source functions of the calls on the way to it, from the outermost one inwards.
        call: where its own call stands in the trace that was kept.
        again: of those calls, from the innermost one outwards, the ones that were not traced.
    """

    names: tuple[tuple[str, ...], ...]
    call: Source
    again: tuple[Again | None, ...]

    def place(self, there: Source, source_fns: tuple[str, ...] = ()) -> Source:
        """Return where a node stands in this run."""
        for call in self.again:
            there = call.place(there, source_fns) if call else there
            source_fns = ()  # an outer region may have the same name in its own graph
        return there

    def is_on(self, way: Iterable[tuple[str, ...]]) -> bool:
        """Tell whether it is led to by calls, of which passes may have left out outer ones."""
        names = iter(self.names)
        return all(name in names for name in way)


NodeKey = tuple[tuple[str, ...], tuple[Frame, ...]]
"""The source functions of a node, and its stack."""


@dataclass(frozen=True, slots=True)
class RegionRuns:
    """The runs of those regions of a Dynamo graph that run more often than they were traced.

    Attributes:
        of_call: by the source functions of the innermost call.
        of_node: by the source functions and the stack of a node of the region's own graph.
    """

    of_call: Mapping[tuple[str, ...], Sequence[Run]] = field(default_factory=dict)
    of_node: Mapping[NodeKey, Sequence[Run]] = field(default_factory=dict)

    def places_of(self, there: Source) -> list[Source]:
        """Return where a node stands in all runs, which is one place where it runs but once."""
        runs = [each for (_, stack), each in self.of_node.items() if stack == there.stack]
        return [run.place(there) for each in runs for run in each] or [there]


def common_source(places: Sequence[Source]) -> Source:
    """Return where a node stands of which one of several places is true: as far as they agree."""
    if len(set(places)) == 1:
        return places[0]
    stacks, modules = [each.stack for each in places], [each.modules for each in places]
    return replace(places[0], stack=_common(stacks), modules=_common(modules))


def _common(rows: Sequence[tuple[_Each, ...]]) -> tuple[_Each, ...]:
    """Return what all rows begin with."""
    columns = takewhile(lambda each: len(set(each)) == 1, zip(*rows, strict=False))
    return tuple(each[0] for each in columns)


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
        """Return where the node of a carried graph was called, by its place in that graph."""
        same = [sources for names, sources in self.inlined.get(call, ()) if names == ops]
        return same[0][at] if len(same) == 1 else None

    def only_source(self, call: tuple[str, ...], graph: int) -> Source | None:
        """Return where all of a carried graph was called, if it was in one place."""
        carried = self.inlined.get(call, ())[graph:][:1]
        places = {source for _, sources in carried for source in sources}
        return places.pop() if len(places) == 1 else None
