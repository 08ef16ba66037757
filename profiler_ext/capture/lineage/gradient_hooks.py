"""Owns what hooks on gradients do in a backward that is traced: where it stands.

A tensor's hook runs between two autograd nodes, where torch expects sums of gradients alone: what
it does is marked as one, and has the line of the node before. Where Dynamo kept the hook's body as
a graph, that knows better. Else a sum is an addition that is made when a node has run; what else
bears the mark is a hook's, and stands nowhere.
Source: ``torch/_functorch/_aot_autograd/logging_utils.py``, ``get_posthook``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from profiler_ext.capture.lineage.complex_sums import parts_of_sums
from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.capture.traces.creations import Creation, Creations
from profiler_ext.capture.traces.metadata import lineage_of
from profiler_ext.records import Lineage, Mechanism


def find_gradient_hooks(creations: Creations) -> Lineages:
    """Return what is known of the nodes that hooks on gradients made, by their names.

    Args:
        creations: how the nodes of a graph were made, in order.
    """
    hook_nodes: dict[str, None] = {}
    for node, group in groupby(creations, key=lambda name: creations[name].autograd_node):
        if node is not None:
            names = list(group)
            known = [name for name in names if creations[name].hook is not None]
            hook_nodes |= dict.fromkeys(known or _hook_nodes_among(creations, names))
    return {name: _hook_lineage(creations[name]) for name in hook_nodes}


def _hook_lineage(creation: Creation) -> Lineage:
    own = replace(creation.lineage, stack=(), is_gradient_acc=False)
    return own.with_place_of(lineage_of(creation.hook or {})).by(Mechanism.HOOK)


def _hook_nodes_among(creations: Creations, names: Sequence[str]) -> Iterator[str]:
    """Find them among the nodes that were made while one autograd node ran: before its own."""
    names = [name for name in names if creations[name].replays is None]  # a view is made anew late
    marked = [creations[name].lineage.is_gradient_acc for name in names]
    own = max((at for at, is_marked in enumerate(marked) if not is_marked), default=-1)
    parts = parts_of_sums(creations, names[own + 1 :])
    of_sums = parts.keys() | {part for each in parts.values() for part in each}
    hook_nodes: set[str] = set()
    for at, name in enumerate(names):
        is_addition = creations[name].target == "aten.add.Tensor" or name in of_sums
        is_sum = is_addition and at > own
        if marked[at] and (not is_sum or not hook_nodes.isdisjoint(creations[name].inputs)):
            hook_nodes.add(name)
            yield name


def hook_on_gradient(stage: Stage) -> Lineages:
    """Say of what a hook on a gradient did that it stands in the hook, or nowhere."""
    known = stage.joint.findings.hooks if stage.joint else {}
    names = {node.name: stage.compilation.traced_name(node) or "" for node in stage.nodes if known}
    return {name: known[traced] for name, traced in names.items() if traced in known}
