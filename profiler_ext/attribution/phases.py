"""The phase of an FX node: by its graph, its tags, and the graph's call."""

from __future__ import annotations

import re

from profiler_ext.attribution.enclosing import CallContext
from profiler_ext.records.evidence import ForwardEvidence
from profiler_ext.records.provenance import FxNode, GraphInstance
from profiler_ext.records.vocabulary import Phase

_FORWARD_TAGS = frozenset({"is_forward", "must_be_in_forward"})
_BACKWARD_TAGS = frozenset({"is_backward", "must_be_in_backward"})
_FUNCTIONAL_GRADIENT = re.compile(r"_autograd_grad(_\d+)?")  # inside torch.func.grad
_GRADIENT = re.compile(r"grad(_\d+)?")  # torch.autograd.grad; .backward() is traced as it


def node_phase(
    node: FxNode, graph: GraphInstance, context: CallContext, in_torch_optim: bool
) -> Phase:
    """Return the phase of a node."""
    if context.caller is not None:
        return context.caller.phase
    if context.in_optimizer or in_torch_optim or (runs_update(graph) and not node.lineage.stack):
        return Phase.OPTIMIZER
    if node.lineage.is_gradient_acc:
        return Phase.GRADIENT_ACCUMULATION
    if node.lineage.forward_evidence == ForwardEvidence.RECOMPUTED:
        return Phase.RECOMPUTE
    phase = _phase_by_graph(node, graph)
    return _forward_or_recompute(context) if phase is Phase.FORWARD else phase


def joint_phase(node: FxNode) -> Phase:
    """Return the phase of a node of a joint graph, which holds forward and backward."""
    # torch tags every node that exists when the forward ends, so an untagged one was made while
    # autograd ran: the backward of an autograd.Function.
    if node.lineage.is_gradient_acc:
        return Phase.GRADIENT_ACCUMULATION
    is_gradient = is_traced_gradient(node) or node.lineage.forward_node is not None
    is_forward = node.lineage.partitioner_tag in _FORWARD_TAGS and not is_gradient
    return Phase.FORWARD if is_forward else Phase.BACKWARD


def is_leaked(node: FxNode, graph: GraphInstance) -> bool:
    """Tell whether torch tagged a forward node with ``autograd_backward``."""
    # Builds that kept the tag among the nodes' shared labels spread it, where a gradient was traced
    # inside the forward (FlexAttention). A backward node in a forward graph has the partitioner's
    # tag, or differentiates another node, or comes from a call of ``grad``; any other is forward.
    # Upstream: https:
    # github.com/pytorch/pytorch/issues/182400, of ``local_map``.
    if not node.lineage.autograd_backward or graph.runs_backward or _is_backward(node, graph):
        return False
    return bool(node.lineage.source_fns) or not _is_untagged(graph)


def differentiates(node: FxNode, graph: GraphInstance) -> bool:
    """Tell whether a node of a backward graph has a forward node that it differentiates."""
    # A gradient sum and the copy that ends a mutation have none.
    phase = node_phase(node, graph, CallContext(), in_torch_optim=False)
    return phase is Phase.BACKWARD and not node.target.startswith("aten.copy_")


def call_phase(graph: GraphInstance | None, context: CallContext) -> Phase:
    """Return the phase of work in a graph's call that belongs to no node."""
    if context.caller is not None:
        return context.caller.phase
    if context.in_optimizer or (graph is not None and runs_update(graph)):
        return Phase.OPTIMIZER
    if context.is_backward or (graph is not None and graph.runs_backward):
        return Phase.BACKWARD
    if graph is None and not context.is_forward and not context.in_engine:
        return Phase.OTHER
    return _forward_or_recompute(context)


def runs_update(graph: GraphInstance) -> bool:
    """Tell whether a graph runs an optimizer's step, not a backward with a step in its hooks."""
    return graph.runs_optimizer and not graph.is_of_compiled_autograd


def _phase_by_graph(node: FxNode, graph: GraphInstance) -> Phase:
    if graph.runs_backward:
        return Phase.RECOMPUTE if _is_recomputed(node) else Phase.BACKWARD
    is_tagged = bool(node.lineage.autograd_backward) and not is_leaked(node, graph)
    return Phase.BACKWARD if is_tagged or _is_backward(node, graph) else Phase.FORWARD


def _is_backward(node: FxNode, graph: GraphInstance) -> bool:
    """Tell whether a node of a forward graph is backward work, whatever its tag says."""
    # Hoisted nodes have the partitioner's tag. The backward of an autograd.Function has none, and a
    # gradient that the function takes has a forward's: these differentiate a node.
    if is_traced_gradient(node) or node.lineage.forward_node is not None:
        return True
    return node.lineage.partitioner_tag in _BACKWARD_TAGS and not _is_untagged(graph)


def _forward_or_recompute(context: CallContext) -> Phase:
    """Return the phase of forward work: in the engine a forward only runs as recomputation."""
    if not context.in_engine:
        return Phase.FORWARD
    return Phase.RECOMPUTE if context.is_forward else Phase.BACKWARD


def _is_recomputed(node: FxNode) -> bool:
    if node.lineage.partitioner_tag in _FORWARD_TAGS:
        return node.lineage.partitioner_tag == "is_forward"
    return node.lineage.recompute is not None and node.lineage.partitioner_tag not in _BACKWARD_TAGS


def _is_untagged(graph: GraphInstance) -> bool:
    """Tell whether tags mean nothing: the graph requires no gradient."""
    return graph.is_inference


def is_traced_gradient(node: FxNode) -> bool:
    """Tell whether the node differentiates inside a graph that holds forward work too."""
    innermost = node.lineage.source_fns[-1] if node.lineage.source_fns else ""
    if _FUNCTIONAL_GRADIENT.fullmatch(innermost):
        return True
    return bool(_GRADIENT.fullmatch(innermost)) and node.lineage.autograd_backward is not False
