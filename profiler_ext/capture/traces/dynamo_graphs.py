"""Owns this process's Dynamo graphs: fresh lines by source function, and a digest of the graph.

A cached artifact knows its nodes by source-function names. They lead to this process's
lines only if the Dynamo graph is the same: same names, same order, same edges.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch.fx

from profiler_ext.capture.traces.module_paths import module_frames, root_modules
from profiler_ext.capture.traces.stacks import parse_stack
from profiler_ext.records import Frame, FxNode, LineEvidence, ModuleFrame
from profiler_ext.torch_compat import fx, inputs, process
from profiler_ext.torch_compat.names import fx_names

Sourced = tuple[FxNode, LineEvidence]
"""A node, and the truth that its line comes from."""

Origins = Mapping[str, Sourced]
"""The nodes of compiled autograd's graph, each with the backward node that it copies."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a source function was called."""

    stack: tuple[Frame, ...]
    modules: tuple[ModuleFrame, ...]
    annotation: tuple[tuple[str, str], ...] = ()


Inlined = tuple[tuple[str, ...], tuple[Source, ...]]
"""The operators of a graph that a call carries, and where each was called."""


@dataclass(frozen=True, slots=True)
class DynamoGraph:
    """What is kept of one Dynamo graph.

    Attributes:
        digest: of its source functions in order, and of its edges.
        roots: variables that hold the user's model (:func:`root_modules`).
        own: the module whose own method was compiled, if it was one.
        sources: source-function names to where they were called; only names that are unique.
        places: where each of its nodes was called, in order.
        arguments: for each of its inputs the name in ``sources`` that stands for it.
        called_on: calls of nested graphs, by source function, to the module they were called on.
        inlined: the graphs that a call carries (a ``score_mod``), by the call's source function:
            for each the names of its operators, and where they were called.
        origins: what compiled autograd copied its nodes from; of its graphs only.
    """

    digest: str
    roots: tuple[str, ...]
    own: ModuleFrame | None
    sources: Mapping[tuple[str, ...], Source]
    places: tuple[Source, ...] = ()
    arguments: tuple[tuple[str, ...], ...] = ()
    called_on: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    inlined: Mapping[tuple[str, ...], tuple[Inlined, ...]] = field(default_factory=dict)
    origins: Origins = field(default_factory=dict)

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


def describe_dynamo_graph(output_graph: Any, gm: torch.fx.GraphModule) -> DynamoGraph:
    """Describe the graph that Dynamo hands to the backend."""
    nodes = [n for g in fx.graph_modules(gm) for n in g.graph.nodes if n.op.startswith("call_")]
    paths = {stack[0][0] for node in nodes if (stack := fx.module_stack(node.meta))}
    scope = process.dynamo_scope(output_graph)
    roots = root_modules(paths, scope, process.dynamo_globals(output_graph))
    # Compiled autograd's own graph module is no module of the user's.
    itself = None if process.in_compiled_autograd() else process.dynamo_self(output_graph)
    own = _own_module(itself, scope)
    called_on = _called_on(nodes)
    places = tuple(_source(node, roots, own) for node in nodes)
    defined = Source(parse_stack(inputs.definition(output_graph)), module_frames((), (), own))
    arguments = {_argument(v): inputs.is_passed_in(v) for v in inputs.all_inputs(gm)}
    passed = {name: defined for name, is_passed in arguments.items() if is_passed}
    sources = {**_sources(nodes, places), **passed}
    inlined = _inlined(nodes, roots, own)
    return DynamoGraph(
        _digest(nodes), roots, own, sources, places, tuple(arguments), called_on, inlined
    )


def _argument(given: torch.fx.Node) -> tuple[str, ...]:
    """Return the name in ``sources`` that stands for an input."""
    return (f"argument {given.name}",)


def _inlined(
    nodes: list[torch.fx.Node], roots: tuple[str, ...], own: ModuleFrame | None
) -> dict[tuple[str, ...], tuple[Inlined, ...]]:
    found = {}
    for call in nodes:
        graphs = [module.graph for _, module in fx.nested(call)]
        if graphs:
            inner = [[n for n in graph.nodes if n.op.startswith("call_")] for graph in graphs]
            found[fx.source_fns(call.meta)] = tuple(
                (tuple(_traced_name(n) for n in each), tuple(_source(n, roots, own) for n in each))
                for each in inner
            )
    return found


def _traced_name(node: torch.fx.Node) -> str:
    """The name of the operator that a node of a carried graph is traced to.

    Source: ``torch/_dynamo/_trace_wrapped_higher_order_op.py``, ``TransformGetItemToIndex``; an
    operator of Python's has another name than the ATen op.
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


def _called_on(nodes: list[torch.fx.Node]) -> dict[tuple[str, ...], str]:
    """Tell the modules of a nested region's calls apart by the parameters that they pass.

    Dynamo traces the region once, on the first module; a parameter's placeholder is named
    after its source, ``l_self_modules_blocks_modules_3_modules_norm_parameters_weight_``.
    """
    calls = [node for node in nodes if any(True for _ in fx.nested(node))]
    found = {}
    for call in calls:
        paths = [_module_of(v.name) for v in call.all_input_nodes if "_parameters_" in v.name]
        common = [names[0] for names in zip(*paths, strict=False) if len(set(names)) == 1]
        if paths and common:
            found[fx.source_fns(call.meta)] = ".".join(common)
    return found


def _module_of(placeholder: str) -> list[str]:
    return placeholder.partition("_parameters_")[0].split("_modules_")[1:]


def _own_module(variable: str | None, scope: Mapping[str, Any]) -> ModuleFrame | None:
    if variable is None:
        return None
    return ModuleFrame("", type(scope[variable[3:-2]]).__name__)


def _sources(
    nodes: list[torch.fx.Node], places: tuple[Source, ...]
) -> dict[tuple[str, ...], Source]:
    names = Counter(fx.source_fns(node.meta) for node in nodes)
    return {
        key: place
        for node, place in zip(nodes, places, strict=True)
        if (key := fx.source_fns(node.meta)) and names[key] == 1
    }


def _source(node: torch.fx.Node, roots: tuple[str, ...], own: ModuleFrame | None) -> Source:
    return Source(
        parse_stack(fx.text(node.meta, fx_names.STACK_TRACE)),
        module_frames(fx.module_stack(node.meta), roots, own),
        fx.annotation(node.meta),
    )


def _digest(nodes: list[torch.fx.Node]) -> str:
    position = {node: index for index, node in enumerate(nodes)}
    rows = [
        (
            fx.source_fns(n.meta),
            fx.target_name(n.target),
            [position.get(i) for i in n.all_input_nodes],
        )
        for n in nodes
    ]
    return hashlib.blake2b(repr(rows).encode(), digest_size=16).hexdigest()
