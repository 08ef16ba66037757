"""Owns where the nodes of a repeated region stand at each of its runs, as Dynamo's graph tells.

Torch traces a region once, so its nodes have the lines and modules of one call. The calls on the
way to a run tell its own; passes may have put the graph of an outer one in the place of its call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TypeVar

from profiler_ext.recall.places import Source
from profiler_ext.records import Frame, ModuleFrame

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
        """Return where a node stands at this call; of other code than was traced, at the call.

        Args:
            there: where it stands at the call that was traced.
            source_fns: its source functions, of a node of the region's own graph.
        """
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
        """Return the module that this call runs in place of one that the region was traced on.

        Args:
            path: the latter's; what nothing tells of this call is ``None``.
        """
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
        """Return where a node stands at this call; where that may be two places, at the call.

        Args:
            there: where it stands in the trace that was kept.
            source_fns: its source functions, of a node of the region's own graph.
        """
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
        """Return where a node stands in this run.

        Args:
            there: where it stands in the trace that was kept.
            source_fns: its source functions, of a node of the region's own graph.
        """
        for call in self.again:
            there = call.place(there, source_fns) if call else there
            source_fns = ()  # an outer region may have the same name in its own graph
        return there

    def is_on(self, way: Iterable[tuple[str, ...]]) -> bool:
        """Tell whether it is led to by calls, of which passes may have left out outer ones.

        Args:
            way: source functions of the calls, from the outermost one inwards.
        """
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
        """Return where a node stands in all runs, which is one place where it runs but once.

        Args:
            there: where it stands in the trace that was kept.
        """
        runs = [each for (_, stack), each in self.of_node.items() if stack == there.stack]
        return [run.place(there) for each in runs for run in each] or [there]


def common_source(places: Sequence[Source]) -> Source:
    """Return where a node stands of which one of several places is true: as far as they agree.

    Args:
        places: at least one.
    """
    if len(set(places)) == 1:
        return places[0]
    stacks, modules = [each.stack for each in places], [each.modules for each in places]
    return replace(places[0], stack=_common(stacks), modules=_common(modules))


def _common(rows: Sequence[tuple[_Each, ...]]) -> tuple[_Each, ...]:
    """Return what all rows begin with."""
    columns = takewhile(lambda each: len(set(each)) == 1, zip(*rows, strict=False))
    return tuple(each[0] for each in columns)
