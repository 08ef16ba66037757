"""What is kept of a Dynamo graph: where each node was called, its repeated regions, its digest."""

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
    """A call of a region that was traced for another call."""

    traced: Source  # the place of the other call
    here: Source  # the place of this call
    moved: Mapping[str, str]  # modules that it was traced on, to those of this call
    unlike: frozenset[str] = frozenset()  # those that this call replaces by other code

    def place(self, there: Source, source_fns: tuple[str, ...] = ()) -> Source:
        """Return a node's place at this call; for code that was not traced, the call's."""
        if any(module.path in self.unlike for module in there.modules):
            return self.here
        length = len(self.traced.stack)
        is_within = there.stack[:length] == self.traced.stack
        stack = (*self.here.stack, *there.stack[length:]) if is_within else there.stack
        return replace(there, stack=stack, modules=self._of_modules(there.modules))

    def _of_modules(self, modules: tuple[ModuleFrame, ...]) -> tuple[ModuleFrame, ...]:
        """Return the modules on the way, as far as this call determines them."""
        around = tuple(module for module in self.traced.modules if module.path)
        inner = modules[len(around) :] if modules[: len(around)] == around else modules
        renamed = [(self.module(module.path), module.class_name) for module in inner]
        known = takewhile(lambda each: each[0] is not None, renamed)
        moved = tuple(ModuleFrame(path, name) for path, name in known if path is not None)
        here = tuple(module for module in self.here.modules if module.path)
        return (*here, *moved) or self.here.modules

    def module(self, path: str) -> str | None:
        """Return the module of this call in place of one that the region was traced on."""
        if path in self.moved:
            return self.moved[path]
        parents = (each for each in self.moved if path.startswith(each + "."))
        there = max(parents, key=len, default="")
        here = self.moved.get(there, there)
        return None if here == there else here + path[len(there) :]


@dataclass(frozen=True, slots=True)
class RetracedCall:
    """A call of a region whose trace torch dropped, as it had an equal graph."""

    here: Source  # the place of the call
    by_name: Mapping[tuple[str, ...], Source]  # by source functions of the region's own nodes
    by_stack: Mapping[tuple[Frame, ...], Source]  # by the stack in the kept trace

    def place(self, there: Source, source_fns: tuple[str, ...] = ()) -> Source:
        """Return a node's place at this call; if it is ambiguous, the call's."""
        named = self.by_name.get(source_fns)
        return named or self.by_stack.get(there.stack) or self.here


Again = RegionCall | RetracedCall
"""A call of a region whose graph was traced for another call."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a region."""

    names: tuple[tuple[str, ...], ...]  # source functions of the calls on the way, outermost first
    call: Source  # in the kept trace
    again: tuple[Again | None, ...]  # the calls that were not traced, innermost first

    def place(self, there: Source, source_fns: tuple[str, ...] = ()) -> Source:
        """Return a node's place in this run."""
        for call in self.again:
            there = call.place(there, source_fns) if call else there
            source_fns = ()  # an outer region may reuse the name
        return there

    def is_on(self, way: Iterable[tuple[str, ...]]) -> bool:
        """Tell whether calls lead to it, of which passes may have removed outer ones."""
        names = iter(self.names)
        return all(name in names for name in way)


NodeKey = tuple[tuple[str, ...], tuple[Frame, ...]]
"""The source functions of a node, and its stack."""


@dataclass(frozen=True, slots=True)
class RegionRuns:
    """The runs of the regions that run more often than they were traced."""

    of_call: Mapping[tuple[str, ...], Sequence[Run]] = field(default_factory=dict)
    """By the source functions of the innermost call."""
    of_node: Mapping[NodeKey, Sequence[Run]] = field(default_factory=dict)
    """By a node of the region's own graph."""

    def places_of(self, there: Source) -> list[Source]:
        """Return a node's places in all runs."""
        runs = [each for (_, stack), each in self.of_node.items() if stack == there.stack]
        return [run.place(there) for each in runs for run in each] or [there]


def common_source(places: Sequence[Source]) -> Source:
    """Return the common part of the places of which one is right."""
    if len(set(places)) == 1:
        return places[0]
    stacks, modules = [each.stack for each in places], [each.modules for each in places]
    return replace(places[0], stack=_common(stacks), modules=_common(modules))


def _common(rows: Sequence[tuple[_Each, ...]]) -> tuple[_Each, ...]:
    """Return the common prefix of all rows."""
    columns = takewhile(lambda each: len(set(each)) == 1, zip(*rows, strict=False))
    return tuple(each[0] for each in columns)


CopySources = Mapping[str, Lineage]
"""The lineage of the nodes of compiled autograd's graph; for a copy, of what it copies."""


Inlined = tuple[tuple[str, ...], tuple[Source, ...]]
"""The operators of a carried graph, and where each was called."""


@dataclass(frozen=True, slots=True)
class DynamoGraph:
    """What is kept of one Dynamo graph.

    A cached artifact knows its nodes by source-function names. They lead to this process's lines
    only if the Dynamo graph is the same: same names, same order, same edges.
    """

    digest: str  # of its source functions in order, and of its edges
    roots: tuple[str, ...]  # variables with the user's models
    own: ModuleFrame | None  # the module whose method was compiled
    sources: Mapping[tuple[str, ...], Source]  # by unique source functions called once
    places: tuple[Source, ...] = ()  # of its nodes in order, then of calls traced for another
    arguments: tuple[tuple[str, ...], ...] = ()  # the name in ``sources`` of each input
    runs: RegionRuns = field(default_factory=RegionRuns)
    inlined: Mapping[tuple[str, ...], tuple[Inlined, ...]] = field(default_factory=dict)
    """The graphs that a call carries (a ``score_mod``), by the call's source function."""
    copy_sources: CopySources = field(default_factory=dict)  # if it is compiled autograd's
    takes_gradient: bool = False  # inside, so backward nodes are among the forward's
    held: Mapping[str, str | None] = field(default_factory=dict)
    """Modules that were reached by another path than the model holds them under."""
    lost: frozenset[str] = frozenset()  # findings whose mechanism failed, such as ``runs``
    tensor_paths: Mapping[str, str] = field(default_factory=dict)  # by source and by input
    parameter_inputs: Mapping[int, str] | None = None
    """For a separately compiled part, the path of each input that a module holds, by position."""
    inputs: int = 0  # how many a part has

    def inlined_source(self, call: tuple[str, ...], ops: tuple[str, ...], at: int) -> Source | None:
        """Return where the node of a carried graph was called, by its position in that graph."""
        same = [sources for names, sources in self.inlined.get(call, ()) if names == ops]
        return same[0][at] if len(same) == 1 else None

    def only_source(self, call: tuple[str, ...], graph: int) -> Source | None:
        """Return where all of a carried graph was called, if it was in one place."""
        carried = self.inlined.get(call, ())[graph:][:1]
        places = {source for _, sources in carried for source in sources}
        return places.pop() if len(places) == 1 else None
