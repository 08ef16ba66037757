"""FX nodes as records: a graph's own, its inputs, those of nested graphs and of buckets."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch.fx

from profiler_ext.capture.lineage import nested_graphs, node_rules, order
from profiler_ext.capture.lineage.stage import Compilation
from profiler_ext.capture.traces.metadata import main_of, tensor_specs
from profiler_ext.recall import dynamo_graph, provenance_lookup
from profiler_ext.records.lineage import Lineage
from profiler_ext.records.provenance import CallSite, FxNode, TensorSpec
from profiler_ext.torch_compat import fx, inputs, ops


def describe_nodes(nodes: Iterable[torch.fx.Node], compilation: Compilation) -> tuple[FxNode, ...]:
    """Return the records of a graph's call nodes, in graph order."""
    calls = [node for node in nodes if node.op == "call_function"]
    lineages = order.find_lineages(calls, compilation)
    return tuple(describe_node(node, lineages[node.name], compilation) for node in calls)


def nodes_with_lineage(
    nodes: Iterable[torch.fx.Node], compilation: Compilation
) -> tuple[FxNode, ...]:
    """Return a graph's call nodes with only their lineage, for a graph found in a cache."""
    calls = [node for node in nodes if node.op == "call_function"]
    lineages = order.find_lineages(calls, compilation)
    return tuple([FxNode(n.name, fx.target_name(n.target), lineages[n.name]) for n in calls])


def describe_node(node: torch.fx.Node, lineage: Lineage, compilation: Compilation) -> FxNode:
    """Return the record of one FX node."""
    main = None if fx.has_value(node.meta) else main_of(compilation.represented_nodes(node))
    outputs = tensor_specs(node.meta) if main is None else main.outputs
    return FxNode(
        name=node.name,
        target=fx.target_name(node.target),
        lineage=lineage,
        inputs=tuple(value.name for value in node.all_input_nodes),
        entry_name=node.name if node.name in compilation.entered else None,
        replaced=tuple(row.name for row in compilation.represented_nodes(node)),
        outputs=outputs,
        is_random=ops.draws(node),
    )


def describe_inputs(given: Iterable[torch.fx.Node], compilation: Compilation) -> tuple[FxNode, ...]:
    """Return the records of the inputs that are tensors."""
    tensors = [node for node in given if fx.tensors(node.meta)]
    lineages = order.find_lineages((), compilation, inputs=tensors)
    return tuple(
        FxNode(
            node.name,
            provenance_lookup.INPUT,
            lineages.get(node.name, Lineage()),
            entry_name=node.name,
            outputs=tensor_specs(node.meta),
        )
        for node in tensors
    )


def parameter_inputs(
    given: Sequence[torch.fx.Node], dynamo: dynamo_graph.DynamoGraph | None
) -> tuple[tuple[int, int, str], ...] | None:
    """Return the inputs of a part's graph that modules hold; ``None`` for a whole graph."""
    if dynamo is None or dynamo.parameter_inputs is None:
        return None
    arguments = [(at, inputs.argument_of(node)) for at, node in enumerate(given)]
    held = dynamo.parameter_inputs
    return tuple((at, of, held[of]) for at, of in arguments if of is not None and of in held)


@dataclass(frozen=True, slots=True)
class Nested:
    """A node of a nested graph, and the node of the outermost graph that calls it."""

    node: torch.fx.Node
    caller: torch.fx.Node | None


_Body = tuple[str, torch.fx.Node | None, torch.fx.Graph]


def describe_nested(nodes: Mapping[str, Nested], compilation: Compilation) -> tuple[FxNode, ...]:
    """Return the records of nodes in nested graphs, by qualified name."""
    bodies: dict[_Body, list[torch.fx.Node]] = defaultdict(list)
    for name, nested in nodes.items():
        bodies[_body_of(name, nested)].append(nested.node)
    described = {
        body: order.find_lineages(inner, compilation, prefix=body[0], caller=body[1])
        for body, inner in bodies.items()
    }
    lineages = {name: described[_body_of(name, n)][n.node.name] for name, n in nodes.items()}
    return tuple(_nested(name, nodes[name], lineages[name], compilation) for name in nodes)


def _body_of(name: str, nested: Nested) -> _Body:
    return name.rpartition("/")[0], nested.caller, nested.node.graph


def nested_nodes(
    gm: torch.fx.GraphModule, prefix: str = "", caller: torch.fx.Node | None = None
) -> dict[str, Nested]:
    """Return the call nodes of the graphs nested in a graph, by qualified name."""
    nested: dict[str, Nested] = {}
    for outer in gm.graph.nodes:
        graphs = list(fx.nested(outer)) if outer.op == "call_function" else []
        for attribute, module in graphs:
            inside = prefix + nested_graphs.inner_prefix(outer.name, attribute, len(graphs))
            called = fx.call_nodes(module.graph)
            nested.update((inside + node.name, Nested(node, caller or outer)) for node in called)
            nested.update(nested_nodes(module, inside, caller or outer))
    return nested


def _nested(name: str, nested: Nested, lineage: Lineage, compilation: Compilation) -> FxNode:
    prefix = name.rpartition("/")[0]
    own = describe_node(nested.node, lineage, compilation)
    return dataclasses.replace(
        own,
        name=name,
        entry_name=name,
        inputs=tuple(f"{prefix}/{value}" for value in own.inputs),
        replaced=tuple(f"{prefix}/{replaced}" for replaced in own.replaced),
    )


_FULL_WEIGHT = 1000
"""The weight of a bucket's node is split into thousandths."""


def split_buckets(
    sites: Iterable[CallSite], nodes: Iterable[torch.fx.Node], compilation: Compilation
) -> tuple[tuple[CallSite, ...], tuple[FxNode, ...]]:
    """Split the call sites of buckets into their collectives, by size.

    The records of the parts are named ``bucket/collective``.
    """
    buckets = {
        node.name: node for node in nodes if len(node_rules.bucket_members(node, compilation)) > 1
    }
    split = tuple(_split_site(site, buckets, compilation) for site in sites)
    used = {name for site in split for name in site.nodes}
    parts = [part for node in buckets.values() for part in _parts(node, compilation)]
    return split, tuple(part for part in parts if part.name in used)


def _split_site(
    site: CallSite, buckets: Mapping[str, torch.fx.Node], compilation: Compilation
) -> CallSite:
    if not set(site.nodes) & set(buckets):
        return site
    pairs: list[tuple[str, int]] = []
    for name, weight in zip(site.nodes, site.weights, strict=True):
        cut = _cut(buckets[name], compilation) if name in buckets else {name: _FULL_WEIGHT}
        pairs += [(part, weight * size) for part, size in cut.items()]
    names, weights = zip(*pairs, strict=True)
    return dataclasses.replace(site, nodes=names, weights=weights, values=())


def _cut(bucket: torch.fx.Node, compilation: Compilation) -> dict[str, int]:
    """Return the parts of a bucket's node with their share of its size, in thousandths."""
    served = node_rules.bucket_members(bucket, compilation)
    sizes = [sum(map(_elements, each.outputs)) or 1 for each in served]
    return {
        f"{bucket.name}/{each.name}": max(1, _FULL_WEIGHT * size // sum(sizes))
        for each, size in zip(served, sizes, strict=True)
    }


def _elements(value: TensorSpec) -> int:
    return math.prod(size if isinstance(size, int) else 1 for size in value.size)


def _parts(bucket: torch.fx.Node, compilation: Compilation) -> list[FxNode]:
    parts = []
    for member in node_rules.bucket_members(bucket, compilation):
        replaced = {bucket.graph: {bucket.name: (member,)}}
        (try_run,) = describe_nodes([bucket], dataclasses.replace(compilation, replaced=replaced))
        parts.append(dataclasses.replace(try_run, name=f"{bucket.name}/{member.name}"))
    return parts
