"""The calls of repeated regions (``invoke_subgraph``), and the place of their nodes at each call.

Source: ``torch/_dynamo/variables/invoke_subgraph.py``, ``install_subgraph_in_output_graph``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

import torch.fx

from profiler_ext.capture.traces import module_paths
from profiler_ext.capture.traces.module_paths import is_within
from profiler_ext.recall import dynamo_graph, lines
from profiler_ext.records.lineage import Frame
from profiler_ext.torch_compat import fx, process

_OF_MODULE = re.compile(r"_(?:parameters|buffers)_")
_Pair = tuple[torch.fx.Node, torch.fx.Node]


def moved_modules(traced: torch.fx.Node, call: torch.fx.Node) -> Mapping[str, str]:
    """Map the modules of one call to those of another, without ambiguous ones."""
    # Dynamo traces a region on the modules of its first call; other calls pass other parameters in
    # the same positions, whose placeholders are named after their source:
    # ``l_self_modules_blocks_modules_3_modules_norm_parameters_weight_``.
    pairs = [*zip(traced.all_input_nodes, call.all_input_nodes, strict=False)]
    all_targets: dict[str, set[str]] = {}
    for traced_path, call_path in filter(None, map(_modules_of, pairs)):
        all_targets.setdefault(traced_path, set()).add(call_path)
    moved = {path: targets.pop() for path, targets in all_targets.items() if len(targets) == 1}
    kept = {path for one, other in pairs if one is other for path in _prefixes_of(one)}
    outside = (path for path in kept if not any(is_within(path, each) for each in all_targets))
    return moved | {path: path for path in outside}


def _differ(traced_path: str, call_path: str, models: Collection[torch.nn.Module]) -> bool:
    """Tell whether two modules have different code, or one of them is in no model."""
    traced, called = (set(map(_code_of, _held_at(p, models))) for p in (traced_path, call_path))
    return len(traced) != 1 or traced != called


def _held_at(path: str, models: Collection[torch.nn.Module]) -> Iterator[torch.nn.Module]:
    for held in models:
        for name in path.split("."):
            inner = dict(module_paths.held_modules(held)).get(name)
            if inner is None:
                break
            held = inner
        else:
            yield held


def _code_of(module: torch.nn.Module) -> tuple[object, ...]:
    """Return a module's class name (a parametrized module has a class of its own) and code."""
    kind = type(module)
    return kind.__module__, kind.__qualname__, *process.methods_of(module, "forward")


def _modules_of(pair: _Pair) -> tuple[str, str] | None:
    """Return the modules that hold two parameters, without their common last names."""
    traced_path, call_path = (_module_of(node.name) for node in pair)
    if not traced_path or not call_path or traced_path == call_path:
        return None
    while len(traced_path) > 1 and len(call_path) > 1 and traced_path[-1] == call_path[-1]:
        traced_path, call_path = traced_path[:-1], call_path[:-1]
    return ".".join(traced_path), ".".join(call_path)


def _prefixes_of(parameter: torch.fx.Node) -> list[str]:
    names = _module_of(parameter.name)
    return [".".join(names[:length]) for length in range(1, len(names) + 1)]


def _module_of(placeholder: str) -> list[str]:
    """Return the names on the way to a parameter's module; none if they are ambiguous."""
    parts = _OF_MODULE.split(placeholder)
    return parts[0].split("_modules_")[1:] if len(parts) == 2 else []


class DroppedTraces:
    """The traces that Dynamo dropped, as it had an equal graph, by the graph it kept."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[torch.fx.GraphModule, list[torch.fx.GraphModule]] = (
            WeakKeyDictionary()
        )

    def keep(self, kept: torch.fx.GraphModule, dropped: torch.fx.GraphModule) -> None:
        """Keep a dropped trace."""
        self._of.setdefault(kept, []).append(dropped)

    def forget(self, gm: torch.fx.GraphModule) -> None:
        """Forget the traces for a graph and those nested in it."""
        for kept in fx.graph_modules(gm):
            self._of.pop(kept, None)

    def of(self, kept: torch.fx.GraphModule) -> Sequence[torch.fx.GraphModule]:
        """Return the traces dropped for a graph."""
        return self._of.get(kept, ())

    def of_call(
        self, call: torch.fx.Node, kept: torch.fx.GraphModule
    ) -> torch.fx.GraphModule | None:
        """Return the trace of a call: the call's node has the very values of its trace."""
        traces = self.of(kept)
        yielded = _values([call]) if traces else set()
        return next((each for each in traces if yielded and yielded <= _yields(each)), None)


def _yields(trace: torch.fx.GraphModule) -> set[int]:
    """Return the values a trace returns; torch 2.11 returns more than its call does."""
    output = next(node for node in reversed(trace.graph.nodes) if node.op == "output")
    return _values(output.all_input_nodes)


def _values(nodes: Sequence[torch.fx.Node]) -> set[int]:
    return {id(value) for node in nodes for value in fx.tensors(node.meta)}


SourceOf = Callable[[torch.fx.Node], dynamo_graph.Source]
_Named = tuple[tuple[str, ...], tuple[Frame, ...]]


class RegionCalls:
    """The calls of regions in one Dynamo graph, and in the traces dropped for it."""

    def __init__(
        self,
        nodes: Sequence[torch.fx.Node],
        source_of: SourceOf,
        models: Collection[torch.nn.Module],
        dropped: DroppedTraces,
    ) -> None:
        self._source_of, self._models, self._dropped = source_of, models, dropped
        self._retraced: dict[torch.fx.Node, dynamo_graph.Again] = {}
        self._at: dict[torch.fx.Node, list[dynamo_graph.Source]] = {}
        self._own: dict[torch.fx.Node, torch.fx.GraphModule] = {}
        self._calls: dict[torch.fx.GraphModule, list[torch.fx.Node]] = {}
        self._bodies: set[torch.fx.GraphModule] = set()
        self._gather(nodes)

    def again(self, call: torch.fx.Node) -> dynamo_graph.Again | None:
        """Return how a call relates to the call that its region was traced for."""
        for _, body in fx.nested(call):
            if body not in self._bodies:
                self._bodies.add(body)
                self._find(body, self._calls[body])
        return self._retraced.get(call)

    def places_at(self, call: torch.fx.Node) -> list[dynamo_graph.Source]:
        """Return the places, at a call, of the nodes of the graphs that it calls."""
        if call not in self._at:
            self._at[call] = list(self._nodes_at(call))
        return self._at[call]

    def _nodes_at(self, call: torch.fx.Node) -> Iterator[dynamo_graph.Source]:
        again = self.again(call)
        own = self._own.get(call)
        bodies = [own] if own else [body for _, body in fx.nested(call)]
        for body in bodies:
            for place in self._of_graph(body.graph):
                yield again.place(place) if again and own is None else place

    def _of_graph(self, graph: torch.fx.Graph) -> Iterator[dynamo_graph.Source]:
        for node in calls_in(graph):
            yield self._source_of(node)
            yield from self.places_at(node)

    def _gather(self, nodes: Sequence[torch.fx.Node]) -> None:
        """Note the calls of each graph, dropped traces included."""
        for node in nodes:
            for _, body in fx.nested(node):
                is_new = body not in self._calls
                self._calls.setdefault(body, []).append(node)
                for trace in self._dropped.of(body) if is_new else ():
                    self._gather([n for g in fx.graph_modules(trace) for n in calls_in(g.graph)])

    def _find(self, body: torch.fx.GraphModule, calls: Sequence[torch.fx.Node]) -> None:
        """Relate the calls of a graph to those that it was traced for."""
        # A call without a trace is similar to one of those with a trace.
        own = {call: trace for call in calls if (trace := self._dropped.of_call(call, body))}
        self._own.update(own)
        for call in own:
            self._retraced[call] = self._table(call, body.graph, self.places_at(call))
        rest = [call for call in calls if call not in own]
        first = next((call for call in rest if self._is_traced_for(call, body.graph)), None)
        is_all = first is not None and len(own) == len(self._dropped.of(body))
        known = [first, *own] if first and is_all else []
        for call in rest:
            if call is not first:
                self._retraced[call] = self._similar_call(call, body.graph, known)

    def _is_traced_for(self, call: torch.fx.Node, body: torch.fx.Graph) -> bool:
        """Tell whether a graph was traced for a call: its nodes are in the call's frames."""
        stack = self._source_of(call).stack
        return any(self._source_of(n).stack[: len(stack)] == stack for n in calls_in(body))

    def _similar_call(
        self, call: torch.fx.Node, body: torch.fx.Graph, known: Sequence[torch.fx.Node]
    ) -> dynamo_graph.Again:
        """Relate a call to the similar ones among several that were traced."""
        moved = {there: self._moved(there, call) for there in known}
        similar = [there for there in known if not moved[there].unlike] or known
        if len(similar) == 1 and similar[0] not in self._own:
            return moved[similar[0]]
        rows = [[moved[there].place(at) for at in self.places_at(there)] for there in similar]
        places = [dynamo_graph.common_source(each) for each in zip(*rows, strict=True)]
        return self._table(call, body, places)

    def _moved(self, traced: torch.fx.Node, call: torch.fx.Node) -> dynamo_graph.RegionCall:
        moved = moved_modules(traced, call)
        unlike = frozenset(
            traced_path
            for traced_path, call_path in moved.items()
            if _differ(traced_path, call_path, self._models)
        )
        return dynamo_graph.RegionCall(
            self._source_of(traced), self._source_of(call), moved, unlike
        )

    def _table(
        self, call: torch.fx.Node, kept: torch.fx.Graph, places: Sequence[dynamo_graph.Source]
    ) -> dynamo_graph.RetracedCall:
        """Return the places of a graph's nodes at a call, given in their order."""
        rows = list(zip(self._named(kept), places, strict=True)) if places else []
        by_name = lines.unambiguous((names, place) for (names, _), place in rows if names)
        by_stack = lines.unambiguous((stack, place) for (_, stack), place in rows)
        return dynamo_graph.RetracedCall(self._source_of(call), by_name, by_stack)

    def _named(self, graph: torch.fx.Graph) -> Iterator[_Named]:
        """Yield the source functions (of the graph's own nodes) and the stack of each node."""
        for node in calls_in(graph):
            yield fx.source_fns(node.meta), self._source_of(node).stack
            for place in self.places_at(node):
                yield (), place.stack


def calls_in(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Return the calls among a graph's nodes."""
    # A ``getitem`` of a region's result is none: torch 2.11 drops most of them in the kept graph.
    calls = (node for node in graph.nodes if node.op.startswith("call_"))
    return [node for node in calls if not _is_getitem_of_region(node)]


def _is_getitem_of_region(node: torch.fx.Node) -> bool:
    whole = node.args[0] if node.target is operator.getitem else None
    return isinstance(whole, torch.fx.Node) and any(fx.nested(whole))


_Names = tuple[tuple[str, ...], ...]


class RunsOfGraph:
    """The runs of the regions of one Dynamo graph."""

    def __init__(self, graph: torch.fx.Graph, regions: RegionCalls, source_of: SourceOf) -> None:
        self._regions, self._source_of = regions, source_of
        runs: dict[torch.fx.Graph, list[dynamo_graph.Run]] = {}
        for body, run in self._runs_in(graph, (), ()):
            runs.setdefault(body, []).append(run)
        # The graphs of regions that run more often than they were traced.
        self.bodies = {b: each for b, each in runs.items() if any(any(r.again) for r in each)}
        self._all = [run for each in runs.values() for run in each]

    def records(self) -> dynamo_graph.RegionRuns:
        """Return the runs by call and by node."""
        of_call: dict[tuple[str, ...], list[dynamo_graph.Run]] = {}
        of_node: dict[dynamo_graph.NodeKey, list[dynamo_graph.Run]] = {}
        for run in self._all if self.bodies else ():
            of_call.setdefault(run.names[-1], []).append(run)
        for body, runs in self.bodies.items():
            for node in calls_in(body):
                key = fx.source_fns(node.meta), self._source_of(node).stack
                of_node.setdefault(key, []).extend(runs)
        return dynamo_graph.RegionRuns(of_call, of_node)

    def _runs_in(
        self, graph: torch.fx.Graph, names: _Names, again: tuple[dynamo_graph.Again | None, ...]
    ) -> Iterator[tuple[torch.fx.Graph, dynamo_graph.Run]]:
        for call in calls_in(graph):
            for _, body in fx.nested(call):
                call_path = (*names, fx.source_fns(call.meta))
                known = (self._regions.again(call), *again)
                yield body.graph, dynamo_graph.Run(call_path, self._source_of(call), known)
                yield from self._runs_in(body.graph, call_path, known)
