"""Owns what a pattern's node takes from what it replaced: a pattern keeps no number, no stack.

What FX tells of replacements is in :mod:`profiler_ext.capture.traces.replacements`.
Upstream: https://github.com/pytorch/pytorch/pull/160542 (metadata of what is traced, where asked),
https://github.com/pytorch/pytorch/pull/179113 (of every replacement).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.capture.traces.metadata import NodeSnapshot, main_of
from profiler_ext.records import Lineage, Mechanism


def replaced_by_pattern(stage: Stage) -> Lineages:
    """Fill what a node does not say from the node that it mainly replaced."""
    lineages: dict[str, Lineage] = {}
    for node in stage.nodes:
        rows = stage.compilation.replaced_by(node)
        main = main_of(rows)
        if main is not None:
            own = _without_sum(stage.lineages[node.name], main.lineage, rows)
            filled = own.filled_by(main.lineage)
            lineages[node.name] = filled if own.stack else filled.by(Mechanism.REPLACED)
    return lineages


def _without_sum(own: Lineage, main: Lineage, rows: Iterable[NodeSnapshot]) -> Lineage:
    """Return what a node says of itself, but for what a pattern copied from a sum beside its work.

    The gradient of a tied weight is ``addmm``, of a product and of the sum with the other use's.
    """
    sums = [row.lineage.stack for row in rows if row.lineage.is_gradient_acc]
    is_of_sum = own.seq_nr is None and own.stack in sums and not main.is_gradient_acc
    return replace(own, stack=(), original_aten=None) if is_of_sum else own
