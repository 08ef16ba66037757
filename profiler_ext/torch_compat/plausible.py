"""Owns the second look at keys of metadata: a graph that has a backward must say where it is.

That a module's code has a key as a text says that torch knows it, not that it still puts it on
nodes. One node may lack it for reasons of torch's; all nodes of a joint graph may not.

Source: ``torch/fx/experimental/proxy_tensor.py`` for values and ops, and
``torch/_functorch/_aot_autograd/graph_capture_wrappers.py`` for tags.
"""

from __future__ import annotations

import torch.fx

from profiler_ext.torch_compat.names import fx_names
from profiler_ext.torch_compat.regional_inductor import has_tangents

_ON_SOME_NODE = (fx_names.VAL, fx_names.ORIGINAL_ATEN, fx_names.PARTITIONER_TAG)


def check_told(graph: torch.fx.Graph) -> None:
    """Look whether the nodes of a joint graph say what torch puts on nodes that it traces.

    Graphs that take no gradient of an output are left alone, and so are those of compiled
    autograd, which copies nodes without it; there the name of the copied node tells.

    Raises:
        PrivateNameError: No node has one of the keys.
    """
    calls = [node for node in graph.nodes if node.op == "call_function"]
    if not calls or not has_tangents(graph):
        return
    ops = [node for node in calls if fx_names.OP_OVERLOAD.is_type_of(node.target)]
    for key in _ON_SOME_NODE:
        # A graph whose work is all in the bodies of calls, its regions', has no op of its own.
        nodes = ops if key is fx_names.ORIGINAL_ATEN else calls
        if nodes and not any(key.text in node.meta for node in nodes):
            key.refuse(f"none of {len(nodes)} traced nodes has {key.name!r}")
