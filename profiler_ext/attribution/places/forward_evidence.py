"""Owns how a node of a compiled graph is tied to forward work, in a word for the tables."""

from __future__ import annotations

from profiler_ext.kineto.communication import is_communication
from profiler_ext.records import ForwardEvidence, FxNode, GraphInstance, Mechanism, Phase


def forward_evidence(node: FxNode, graph: GraphInstance, phase: Phase) -> str | None:
    """Return the rule that tied a node to the forward node it differentiates, or why none did.

    Args:
        node: the node.
        graph: the graph it ran in.
        phase: its phase.

    Returns:
        A :class:`ForwardEvidence`; ``None`` for work that is its own: forward, optimizer.
    """
    if node.lineage.forward_evidence is not None:
        return node.lineage.forward_evidence
    if phase in (Phase.FORWARD, Phase.BACKWARD) and node.target.startswith("aten.copy_"):
        return ForwardEvidence.MUTATION
    if phase is Phase.FORWARD:
        return ForwardEvidence.REPLACED if node.replaced else None
    if phase is Phase.BACKWARD:
        return ForwardEvidence.HOOK if _is_of_hook(node, graph) else ForwardEvidence.NOT_LINKED
    return _OF_PHASES.get(phase)


def eager_forward_evidence(op: str, forward_op: str | None, phase: Phase) -> str | None:
    """Return the same for an ATen op that ran outside compiled graphs.

    Args:
        op: the op; what communicates differentiates nothing.
        forward_op: the forward op that the trace links it to.
        phase: its phase.
    """
    if forward_op is not None:
        return ForwardEvidence.AUTOGRAD_SEQUENCE
    if phase is Phase.BACKWARD and not is_communication(op):
        return ForwardEvidence.NOT_LINKED
    return _OF_PHASES.get(phase)


_OF_PHASES = {
    Phase.RECOMPUTE: ForwardEvidence.RECOMPUTED,
    Phase.GRADIENT_ACCUMULATION: ForwardEvidence.GRADIENT_SUM,
}


def _is_of_hook(node: FxNode, graph: GraphInstance) -> bool:
    """Tell whether it is a hook's; what compiled autograd copies names its joint graph."""
    if node.lineage.mechanism is Mechanism.HOOK:
        return True
    return graph.is_of_compiled_autograd and node.lineage.joint is None and bool(node.lineage.stack)
