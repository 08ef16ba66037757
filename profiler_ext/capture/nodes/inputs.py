"""Owns the records of a graph's inputs that change with each call; a CUDA graph copies those."""

from __future__ import annotations

from collections.abc import Iterable

import torch.fx

from profiler_ext.capture.lineage.order import find_lineages
from profiler_ext.capture.lineage.stage import Compilation
from profiler_ext.capture.traces.metadata import tensor_specs
from profiler_ext.recall.truths import INPUT
from profiler_ext.records import FxNode, Lineage
from profiler_ext.torch_compat import fx


def describe_inputs(given: Iterable[torch.fx.Node], compilation: Compilation) -> tuple[FxNode, ...]:
    """Return the records of inputs, those that are tensors.

    Args:
        given: inputs of the graph that Inductor compiled.
        compilation: what is known of its compile.
    """
    tensors = [node for node in given if fx.tensors(node.meta)]
    lineages = find_lineages((), compilation, inputs=tensors)
    return tuple(_describe(node, lineages.get(node.name, Lineage())) for node in tensors)


def _describe(node: torch.fx.Node, lineage: Lineage) -> FxNode:
    specs = tensor_specs(node.meta)
    return FxNode(node.name, INPUT, lineage, entry_name=node.name, outputs=specs)
