"""The reading of Dynamo's graphs, whole or the part that a backend compiles, for recall."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch.fx

from profiler_ext.capture.traces import module_paths, nested_regions, stack_traces
from profiler_ext.capture.traces.finders import Finders
from profiler_ext.capture.traces.module_paths import (
    HeldPaths,
    held_paths,
    held_tensors,
    module_frames,
    root_modules,
)
from profiler_ext.recall.dynamo_graph import DynamoGraph, Inlined, RegionRuns, Source
from profiler_ext.records.lineage import ModuleFrame
from profiler_ext.torch_compat import fx, inputs, process
from profiler_ext.torch_compat.names import fx_names


def describe_dynamo_graph(
    output_graph: Any,
    gm: torch.fx.GraphModule,
    dropped: nested_regions.DroppedTraces,
    finders: Finders | None = None,
) -> DynamoGraph:
    """Describe the graph that Dynamo passes to the backend."""
    traced = process.traced_code(output_graph)
    # Under `nested_graph_breaks` a resume function calls others, which are traced within it.
    for code in filter(process.is_resumed, {process.dynamo_code(output_graph), *traced}):
        stack_traces.note_resumed(code)
    stack_traces.note_equal_code(traced)
    finders = finders or Finders()
    nodes = [n for g in fx.graph_modules(gm) for n in g.graph.nodes if n.op.startswith("call_")]
    resolved = finders.find("modules", _modules, output_graph, nodes) or _Modules({}, None, {})
    has_no_modules = "modules" in finders.lost
    source_of = Sources(
        tuple(resolved.models), resolved.own, resolved.held, has_no_modules=has_no_modules
    )
    places, named = [source_of(node) for node in nodes], [fx.source_fns(n.meta) for n in nodes]
    arguments = finders.find("arguments", _arguments, gm, output_graph, resolved.own) or {}
    models = resolved.models.values()
    runs = finders.find("runs", _runs, gm.graph, nodes, source_of, models, dropped) or _Runs()
    unique_names = [
        () if n.graph in runs.bodies else key for n, key in zip(nodes, named, strict=True)
    ]
    sources = {} if "runs" in finders.lost else _sources(unique_names, places)
    return DynamoGraph(
        digest_of(nodes, named),
        tuple(resolved.models),
        resolved.own,
        {**sources, **{name: place for name, place in arguments.items() if place is not None}},
        (*places, *runs.again),
        tuple(arguments),
        runs.records,
        finders.find("inlined", _inlined, nodes, source_of) or {},
        takes_gradient=any(map(fx.calls_autograd_grad, set(named))),
        held=resolved.held,
        tensor_paths=finders.find("tensors", held_tensors, gm, resolved.models, resolved.own) or {},
        lost=finders.lost,
    )


class _Modules(NamedTuple):
    """The user's outermost modules, the compiled method's module, and other paths to some."""

    models: dict[str, torch.nn.Module]
    own: ModuleFrame | None
    held: HeldPaths


def _modules(output_graph: Any, nodes: Sequence[torch.fx.Node]) -> _Modules:
    # Compiled autograd's own graph module is no user module.
    resolved = None if process.in_compiled_autograd() else process.dynamo_self(output_graph)
    own_path, module = resolved or (None, None)
    outermost = _outermost_modules(output_graph, nodes, own_path)
    models = dict([resolved] if resolved else []) | outermost
    held = held_paths({module_paths.modules_called(node.meta) for node in nodes}, models, own_path)
    own = None if module is None else ModuleFrame("", type(module).__name__)
    return _Modules(models, own, held)


def _arguments(
    gm: torch.fx.GraphModule, output_graph: Any, own: ModuleFrame | None
) -> dict[tuple[str, ...], Source | None]:
    """Return the names of inputs, with the place of those that are arguments."""
    defined = Source(
        stack_traces.parse_stack(inputs.definition(output_graph)), module_frames((), (), own)
    )
    every = inputs.all_inputs(gm)
    return {
        (f"argument {v.name}",): defined if inputs.is_function_argument(v) else None for v in every
    }


class _Runs(NamedTuple):
    """The runs of regions, their graphs, and the places of repeated calls."""

    records: RegionRuns = RegionRuns()
    bodies: Collection[torch.fx.Graph] = ()
    again: tuple[Source, ...] = ()


def _runs(
    graph: torch.fx.Graph,
    nodes: Sequence[torch.fx.Node],
    source_of: Sources,
    models: Collection[torch.nn.Module],
    dropped: nested_regions.DroppedTraces,
) -> _Runs:
    regions = nested_regions.RegionCalls(nodes, source_of, models, dropped)
    runs = nested_regions.RunsOfGraph(graph, regions, source_of)
    again = [place for node in nodes if regions.again(node) for place in regions.places_at(node)]
    return _Runs(runs.records(), runs.bodies, tuple(again))


def _outermost_modules(
    output_graph: Any, nodes: Sequence[torch.fx.Node], own_path: str | None
) -> dict[str, torch.nn.Module]:
    """Return the user's outermost modules by their names in the graph."""
    scope, names = process.dynamo_scope(output_graph), process.dynamo_globals(output_graph)
    paths = {stack[0][0] for node in nodes if (stack := fx.module_stack(node.meta))}
    return root_modules(paths | ({own_path} if own_path else set()), scope, names)


def _inlined(
    nodes: list[torch.fx.Node], source_of: Sources
) -> dict[tuple[str, ...], tuple[Inlined, ...]]:
    inlined = {}
    for call in nodes:
        graphs = [module.graph for _, module in fx.nested(call)]
        if graphs:
            inner = [[n for n in graph.nodes if n.op.startswith("call_")] for graph in graphs]
            inlined[fx.source_fns(call.meta)] = tuple(
                (tuple(_traced_name(n) for n in each), tuple(map(source_of, each)))
                for each in inner
            )
    return inlined


def _traced_name(node: torch.fx.Node) -> str:
    """The name of the ATen op that a node of a carried graph is traced to.

    Source: ``torch/_dynamo/_trace_wrapped_higher_order_op.py``, ``TransformGetItemToIndex``.
    """
    name = fx.op_name(node).strip("_")
    return _TRACED_NAMES.get(name, name)


_TRACED_NAMES = {
    "getitem": "index",
    "truediv": "div",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "invert": "bitwise_not",
    "mod": "remainder",
}


def _sources(
    named: list[tuple[str, ...]], places: Sequence[Source]
) -> dict[tuple[str, ...], Source]:
    count = Counter(named)
    pairs = zip(named, places, strict=True)
    return {key: place for key, place in pairs if key and count[key] == 1}


class Sources:
    """Reads where the nodes of one graph were called."""

    def __init__(
        self,
        roots: tuple[str, ...],
        own: ModuleFrame | None,
        held: HeldPaths,
        *,
        has_no_modules: bool,
    ) -> None:
        self._roots, self._own, self._held, self._has_no_modules = roots, own, held, has_no_modules
        self._frames: dict[tuple[tuple[str, str], ...], tuple[ModuleFrame, ...]] = {}

    def __call__(self, node: torch.fx.Node) -> Source:
        """Return where a node was called."""
        stack = fx.module_stack(node.meta)
        if stack not in self._frames:
            known = module_frames(stack, self._roots, self._own, self._held)
            self._frames[stack] = () if self._has_no_modules else known
        text = fx.text(node.meta, fx_names.STACK_TRACE)
        return Source(stack_traces.parse_stack(text), self._frames[stack], fx.annotation(node.meta))


def digest_of(nodes: list[torch.fx.Node], named: list[tuple[str, ...]]) -> str:
    """Return a digest of a graph: its ops, what each reads, and its source functions."""
    position = {node: index for index, node in enumerate(nodes)}
    rows = [
        (key, fx.target_name(n.target), [position.get(i) for i in n.all_input_nodes])
        for n, key in zip(nodes, named, strict=True)
    ]
    return hashlib.blake2b(repr(rows).encode(), digest_size=16).hexdigest()


def part_of(gm: torch.fx.GraphModule, dynamo_graph: DynamoGraph) -> DynamoGraph | None:
    """Describe a part of Dynamo's graph; ``None`` for the whole.

    A backend may cut the graph (DDP at its buckets, serving engines at attention). Equal parts
    share one cache key and perhaps one artifact, so a part is described without names, and its
    nodes correspond to those of an equal part by position.
    """
    # Passes of a backend may change nodes, but not the inputs: a part has other inputs.
    given = inputs.all_inputs(gm)
    if tuple((f"argument {node.name}",) for node in given) == dynamo_graph.arguments:
        return None
    nodes = [n for g in fx.graph_modules(gm) for n in g.graph.nodes if n.op.startswith("call_")]
    # Torch may rename inputs to p_0, p_1, ... to give equal graphs the same cache key.
    if digest_of(nodes, [fx.source_fns(node.meta) for node in nodes]) == dynamo_graph.digest:
        return None
    source_of = Sources(
        dynamo_graph.roots,
        dynamo_graph.own,
        dynamo_graph.held,
        has_no_modules="modules" in dynamo_graph.lost,
    )
    names = (inputs.source_name(node) or node.name for node in given)
    paths = map(dynamo_graph.tensor_paths.get, names)
    return dataclasses.replace(
        dynamo_graph,
        digest=digest_of(nodes, [()] * len(nodes)),
        sources={
            name: dynamo_graph.sources[name]
            for name in dynamo_graph.arguments
            if name in dynamo_graph.sources
        },
        places=tuple(map(source_of, nodes)),
        parameter_inputs={at: path for at, path in enumerate(paths) if path is not None},
        inputs=len(given),
    )
