"""Owns the lineage of what compiled autograd copies: that of the node of a backward graph.

AOTAutograd loses the copies' stacks: https://github.com/pytorch/pytorch/issues/133567.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch.fx

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.records import FxNode, Lineage, Mechanism
from profiler_ext.torch_compat import compiled_autograd, fx
from profiler_ext.torch_compat.compiled_autograd import CopiedNode


def copied_from_backward(stage: Stage) -> Lineages:
    """Say of a copy where the node of the backward graph comes from, and of which call it is."""
    lineages: dict[str, Lineage] = {}
    for node in stage.nodes:
        copy = compiled_autograd.copied_node(node.name)
        backwards = stage.compilation.backwards
        origin = _of_results(node, backwards) if copy is None else _origin(copy, backwards)
        if origin is not None:
            lineages[node.name] = origin
    return lineages


def _origin(copy: CopiedNode, backwards: Mapping[int, Mapping[str, FxNode]]) -> Lineage | None:
    node = backwards[copy.aot_id].get(copy.name)
    return None if node is None else _of_call(node, copy)


def _of_results(
    node: torch.fx.Node, backwards: Mapping[int, Mapping[str, FxNode]]
) -> Lineage | None:
    """Return the origin of a copied op with several results: Dynamo names only those."""
    for user in node.users:
        copy = compiled_autograd.copied_node(user.name)
        nodes = backwards[copy.aot_id] if copy else {}
        result = nodes.get(copy.name) if copy else None
        read = result.inputs[:1] if result else ()
        origin = next((each for each in nodes.values() if (each.name,) == read), None)
        if origin is not None and copy and origin.target == fx.target_name(node.target):
            return _of_call(origin, copy)
    return None


def _of_call(node: FxNode, copy: CopiedNode) -> Lineage:
    return replace(node.lineage, copied_call=copy.call).by(Mechanism.COPIED)
