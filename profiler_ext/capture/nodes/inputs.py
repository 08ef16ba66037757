"""Owns the records of a graph's inputs that change with each call; a CUDA graph copies those."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch.fx

from profiler_ext.capture.lineage.order import find_lineages
from profiler_ext.capture.lineage.stage import Compilation
from profiler_ext.capture.traces.metadata import tensor_specs
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.recall.truths import INPUT
from profiler_ext.records import FxNode, Lineage
from profiler_ext.torch_compat import fx, inputs


def describe_inputs(given: Iterable[torch.fx.Node], compilation: Compilation) -> tuple[FxNode, ...]:
    """Return the records of inputs, those that are tensors.

    Args:
        given: inputs of the graph that Inductor compiled.
        compilation: what is known of its compile.
    """
    tensors = [node for node in given if fx.tensors(node.meta)]
    lineages = find_lineages((), compilation, inputs=tensors)
    return tuple(_describe(node, lineages.get(node.name, Lineage())) for node in tensors)


def held_inputs(
    given: Sequence[torch.fx.Node], dynamo: DynamoGraph | None
) -> tuple[tuple[int, int, str], ...] | None:
    """Return the inputs of a part's graph that modules hold; ``None`` of a graph that is no part.

    Args:
        given: the inputs of the graph that Inductor compiles.
        dynamo: what it was traced from.
    """
    if dynamo is None or dynamo.held_inputs is None:
        return None
    arguments = [(at, inputs.argument_of(node)) for at, node in enumerate(given)]
    held = dynamo.held_inputs
    return tuple((at, of, held[of]) for at, of in arguments if of is not None and of in held)


def _describe(node: torch.fx.Node, lineage: Lineage) -> FxNode:
    specs = tensor_specs(node.meta)
    return FxNode(node.name, INPUT, lineage, entry_name=node.name, outputs=specs)
