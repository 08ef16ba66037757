"""Owns what torch tells of regions: parts of a graph that Inductor compiles by themselves.

Source: ``torch/fx/passes/regional_inductor.py``. A region's nodes are scooped into a module of
their own, each with its name and its metadata, and that module is traced and compiled anew.
"""

from __future__ import annotations

import torch.fx

from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.names import fx_names


def has_region_marks(gm: torch.fx.GraphModule) -> bool:
    """Tell whether a graph, or one nested in it, has nodes that are marked as a region's."""
    every = (node for graph in fx.graph_modules(gm) for node in graph.graph.nodes)
    mark = fx_names.REGION_MARK.text
    return any(mark in (fx_names.CUSTOM.of(node.meta) or {}) for node in every)


def has_flat_regions(gm: torch.fx.GraphModule) -> bool:
    """Tell whether all regions are called by the graph itself, so each once and in order."""
    nested = (g.graph for g in fx.graph_modules(gm) if g is not gm)
    return not any(_calls_region(node) for graph in nested for node in graph.nodes)


def _calls_region(node: torch.fx.Node) -> bool:
    return node.op == "call_module" and str(node.target).startswith(fx_names.SCOOPED.text)


def has_tangents(graph: torch.fx.Graph) -> bool:
    """Tell whether a graph takes the gradients of outputs: a joint graph, or a backward half.

    Source: ``torch/_functorch/partitioners.py``, ``_is_tangent``.
    """
    return any("tangents" in str(n.target) for n in graph.nodes if n.op == "placeholder")


def traced_from(node: torch.fx.Node) -> str | None:
    """Return the name of the node that ran while a node was traced.

    Source: ``torch/fx/traceback.py``, ``set_current_meta``, which starts the list anew.
    """
    sources = fx_names.FROM_NODE.of(node.meta) or ()
    return str(fx_names.FROM_NAME.of(sources[-1])) if sources else None
