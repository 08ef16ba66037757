"""Owns what a pattern's node takes from what it replaced: a pattern keeps no number, no stack.

What FX tells of replacements is in :mod:`profiler_ext.capture.traces.replacements`.
Upstream: https://github.com/pytorch/pytorch/pull/160542 (metadata of what is traced, where asked),
https://github.com/pytorch/pytorch/pull/179113 (of every replacement).
"""

from __future__ import annotations

from profiler_ext.capture.lineage.stage import Lineages, Stage
from profiler_ext.capture.traces.metadata import main_of
from profiler_ext.records import Lineage, Mechanism


def replaced_by_pattern(stage: Stage) -> Lineages:
    """Fill what a node does not say from the node that it mainly replaced."""
    lineages: dict[str, Lineage] = {}
    for node in stage.nodes:
        main = main_of(stage.compilation.replaced_by(node))
        if main is not None:
            own = stage.lineages[node.name]
            filled = own.filled_by(main.lineage)
            lineages[node.name] = filled if own.stack else filled.by(Mechanism.REPLACED)
    return lineages
