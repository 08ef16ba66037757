"""Owns what nodes said of their origin before a pass wrote another node's origin on them.

Where a no-op is removed beside a node, FX copies all that the no-op said onto it
(``torch/fx/node.py``, ``replace_all_uses_with(propagate_meta=True)``).
"""

from __future__ import annotations

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.records import Lineage, Mechanism


def overwritten_by_pass(stage: Stage) -> Lineages:
    """Say of a node, or what it stands for, what was said before."""
    was = stage.joint.findings.overwritten if stage.joint else {}
    return _overwritten_lineages(stage, was, Mechanism.OVERWRITTEN) if was else {}


def _overwritten_lineages(stage: Stage, known: Lineages, mechanism: Mechanism) -> Lineages:
    names = {node.name: stage.compilation.traced_name(node) or "" for node in stage.nodes}
    lineages: dict[str, Lineage] = {}
    for name, traced in names.items():
        if traced in known:
            lineages[name] = stage.lineages[name].traced_from(known[traced]).by(mechanism)
    return lineages
