"""Owns the lineage of a gradient that is handed in: where the output was made that it is of."""

from __future__ import annotations

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.capture.traces.metadata import NodeSnapshot
from profiler_ext.records import ForwardEvidence, Lineage, Mechanism
from profiler_ext.torch_compat import inputs


def gradient_of_output(stage: Stage) -> Lineages:
    """Say of a gradient from outside that it stands where the output was made that it is of."""
    made = stage.joint.findings.outputs if stage.joint else {}
    outputs = {node.name: inputs.output_of_gradient(node) for node in stage.inputs if made}
    return {n: _of_output(made[at]) for n, at in outputs.items() if at is not None and at in made}


def _of_output(made: NodeSnapshot) -> Lineage:
    return Lineage(
        stack=made.lineage.stack,
        modules=made.lineage.modules,
        source_fns=made.lineage.source_fns,
        forward_node=made.name,
        forward_evidence=ForwardEvidence.GRADIENT_OF_OUTPUT,
    ).by(Mechanism.GRADIENT_OF_OUTPUT)
