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
from profiler_ext.capture.traces.metadata import ADD, PRODUCTS, NodeSnapshot, main_of
from profiler_ext.records import Lineage, Mechanism


def replaced_by_pattern(stage: Stage) -> Lineages:
    """Fill what a node does not say from the node that it mainly replaced."""
    lineages: dict[str, Lineage] = {}
    for node in stage.nodes:
        rows = stage.compilation.replaced_by(node)
        main = main_of(rows)
        if main is not None:
            own = _without_addition(stage.lineages[node.name], main.lineage, rows)
            filled = own.filled_by(main.lineage)
            lineages[node.name] = filled if own.stack else filled.by(Mechanism.REPLACED)
    return lineages


def _without_addition(own: Lineage, main: Lineage, rows: Iterable[NodeSnapshot]) -> Lineage:
    """Return what a node says of itself, but for what a pattern copied from an addition to it.

    ``x + self.last(y)`` is ``addmm``, and so is the gradient of a tied weight: of a product, and of
    the sum with the other use's.
    """
    ops = {row.lineage.original_aten for row in rows}
    if main.original_aten not in PRODUCTS or ADD not in ops:
        return own
    own = replace(own, original_aten=None, seq_nr=None, is_gradient_acc=False)
    return replace(own, stack=(), modules=(), source_fns=())
