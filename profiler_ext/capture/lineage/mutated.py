"""Owns the ``copy_`` nodes that AOTAutograd appends for mutated inputs: who mutated, and where.

Such a node has no stack, and its number means nothing. What it copies is the value of the op
that mutated, but only until the joint graph's passes: they take ``buffer.copy_(x)`` for a
no-op, and then ``x`` seems to be what mutated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch.fx

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.capture.traces.metadata import lineage_of
from profiler_ext.records import Lineage, Mechanism
from profiler_ext.torch_compat import fx


def _own(node: torch.fx.Node) -> Lineage:
    return lineage_of(node.meta)


def find_mutations(
    gm: torch.fx.GraphModule, lineage_before: Callable[[torch.fx.Node], Lineage] = _own
) -> Lineages:
    """Return where each epilogue copy's value was made.

    Args:
        gm: a joint graph, or one that asks for no gradient, before its passes.
        lineage_before: where a node comes from, with what an earlier pass lost.

    Returns:
        The names of the copies, each with the lineage of what mutated.
    """
    copies = (n for n in gm.graph.nodes if fx.is_input_copy(n))
    return {copy.name: _source(copy.args[1], lineage_before) for copy in copies}


def mutated_input(stage: Stage) -> Lineages:
    """Say of an epilogue copy that it stands where the mutation does, with its number."""
    known = stage.joint.findings.mutated if stage.joint else {}
    copies = (n.name for n in stage.nodes if n.name in known and fx.is_input_copy(n))
    return {name: _copy_of(stage.lineages[name], known[name]) for name in copies}


def _copy_of(own: Lineage, mutating: Lineage) -> Lineage:
    lineage = replace(
        own.with_place_of(mutating),
        modules=mutating.modules or own.modules,
        source_fns=mutating.source_fns or own.source_fns,
        seq_nr=own.seq_nr if mutating.seq_nr is None else mutating.seq_nr,
        copied_from=mutating.copied_from or own.copied_from,
    )
    return lineage.by(Mechanism.MUTATED) if mutating.stack else lineage


def _source(value: torch.fx.Node, lineage_before: Callable[[torch.fx.Node], Lineage]) -> Lineage:
    """Where a value was made; what functionalization inserted says it of its input."""
    while not _is_known(lineage := lineage_before(value)) and value.all_input_nodes:
        value = value.all_input_nodes[0]
    return lineage


def _is_known(lineage: Lineage) -> bool:
    return bool(lineage.stack) or lineage.copied_from is not None
