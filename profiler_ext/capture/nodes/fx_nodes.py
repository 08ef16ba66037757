"""Owns the turning of FX nodes into records: what each is in its graph, and its lineage."""

from __future__ import annotations

from collections.abc import Iterable

import torch.fx

from profiler_ext.capture.lineage.order import find_lineages
from profiler_ext.capture.lineage.stage import Compilation
from profiler_ext.capture.traces.metadata import main_of, tensor_specs
from profiler_ext.records import FxNode, Lineage, TensorSpec
from profiler_ext.torch_compat import fx, random_calls


def describe_nodes(nodes: Iterable[torch.fx.Node], compilation: Compilation) -> tuple[FxNode, ...]:
    """Return the records of a graph's call nodes, in graph order.

    Args:
        nodes: nodes of one graph.
        compilation: what is known of its compile.
    """
    calls = [node for node in nodes if node.op == "call_function"]
    lineages = find_lineages(calls, compilation)
    return tuple(describe_node(node, lineages[node.name], compilation) for node in calls)


def nodes_with_lineage(nodes: Iterable[torch.fx.Node], compilation: Compilation) -> tuple[FxNode, ...]:
    """Return a graph's call nodes with where they come from alone, in graph order.

    Of a graph whose code a cache had, the record of that tells the rest.

    Args:
        nodes: nodes of one graph.
        compilation: what is known of its compile.
    """
    calls = [node for node in nodes if node.op == "call_function"]
    lineages = find_lineages(calls, compilation)
    return tuple([FxNode(n.name, fx.target_name(n.target), lineages[n.name]) for n in calls])


def describe_node(node: torch.fx.Node, lineage: Lineage, compilation: Compilation) -> FxNode:
    """Return the record of one FX node that comes from somewhere.

    Args:
        node: the node.
        lineage: where it comes from.
        compilation: what is known of its compile.
    """
    return FxNode(
        name=node.name,
        target=fx.target_name(node.target),
        lineage=lineage,
        inputs=tuple(value.name for value in node.all_input_nodes),
        entry_name=node.name if node.name in compilation.entered else None,
        replaced=tuple(row.name for row in compilation.represented_nodes(node)),
        outputs=_outputs(node, compilation),
        is_random=random_calls.draws(node),
    )


def _outputs(node: torch.fx.Node, compilation: Compilation) -> tuple[TensorSpec, ...]:
    """Return a node's tensors; of one that a pass made without any, those that it replaced."""
    main = None if fx.has_value(node.meta) else main_of(compilation.represented_nodes(node))
    return tensor_specs(node.meta) if main is None else main.outputs
