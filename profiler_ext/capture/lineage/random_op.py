"""Owns what a random call takes from the call that the partitioner wrapped to replay its numbers.

Source: ``torch/_functorch/partitioners.py``, ``functionalize_rng_ops``, which copies no metadata.
"""

from __future__ import annotations

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.records import Lineage, Mechanism


def random_op(stage: Stage) -> Lineages:
    """Fill what a wrapping call does not say, which is all, from the call that it wraps."""
    lineages: dict[str, Lineage] = {}
    for node in stage.nodes:
        wrapped = stage.compilation.wrapped_by(node)
        if wrapped is not None and wrapped.lineage.is_known:
            own = stage.lineages[node.name]
            filled = own.filled_by(wrapped.lineage)
            lineages[node.name] = filled if own.stack else filled.by(Mechanism.RANDOM)
    return lineages
