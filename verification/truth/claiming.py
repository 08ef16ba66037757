"""What capture claims of a compiled training step: the place of each node of its graphs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.utils import counters

import profiler_ext
from profiler_ext.attribution.places import SourceRoots, with_modules_of_gradient_sums
from profiler_ext.profiling import switch
from profiler_ext.records.evidence import ForwardEvidence, Mechanism
from profiler_ext.records.provenance import FxNode, Gap, GraphInstance
from profiler_ext.records.recording import Settings
from profiler_ext.source_paths import library_roots
from verification.oracle.stubs import stubbed
from verification.truth.computing import by_graphs
from verification.truth.ops import Op, Place, plain_name
from verification.truth.running import differentiable, differentiate
from verification.truth.standing import first_names

InJoint = tuple[str | None, str | None, str | None]
"""The compile, its joint graph, and a node's name there."""

_BY_PATTERN = re.compile(r"_(default|tensor)(_\d+)?$")
"""Patterns name what they make by the overload too."""

_ROOTS = SourceRoots(Settings(library_roots=library_roots()))


@dataclass(frozen=True, slots=True)
class Claim:
    """What is claimed of a node.

    Attributes:
        node: the node.
        op: what it does, and where it comes from.
        is_of_a_pass: a pass of Inductor's made it, so that no op of it need have run.
        is_unique: it stands for one op that ran; one that is computed again does not.
        writes_back: it writes an input that the program mutated, by an op of any name.
        is_of_input: it sums gradients of a value that its graph is given.
        linked: the place of the forward node that it differentiates.
    """

    node: FxNode
    op: Op
    is_of_a_pass: bool
    is_unique: bool
    writes_back: bool
    is_of_input: bool
    linked: Place | None


@dataclass(frozen=True, slots=True)
class Claims:
    """What is claimed of all graphs of a step.

    Attributes:
        each: the claims, of each graph in order.
        gaps: what capture said that it does not know.
        is_whole: one forward graph is the whole model; else a graph knows no modules by itself,
            or by their paths in another one, whose ``forward`` it begins in.
        is_broken: the rest ran as it is, or in other graphs.
    """

    each: tuple[Claim, ...]
    gaps: tuple[Gap, ...]
    is_whole: bool
    is_broken: bool


def claim(model: Callable[..., Any], inputs: tuple[Any, ...], device: str = "cpu") -> Claims:
    """Compile a model and run it forward and backward, with capture on.

    Args:
        model: the model.
        inputs: what it is called on.
        device: where both are; on the CPU no code is compiled.
    """
    torch._dynamo.reset()
    counters.clear()
    profiler_ext.disable()
    with stubbed(device), by_graphs(), torch._dynamo.config.patch(allow_rnn=True):
        try:
            profiler_ext.enable(cpu_events=False)
            differentiate(differentiable(torch.compile(model)(*inputs)))
            capture = switch.current()
            assert capture is not None
            return _claims(capture.graphs, capture.gaps, first_names(model))
        finally:
            profiler_ext.disable()


def _claims(
    graphs: tuple[GraphInstance, ...], gaps: tuple[Gap, ...], names: Mapping[str, str]
) -> Claims:
    backwards = _of_joints(graph for graph in graphs if graph.is_backward)
    forwards = _of_joints(graph for graph in graphs if not graph.is_backward)
    places = {at: _place(node, names) for at, node in (backwards | forwards).items()}
    again = backwards.keys() & forwards.keys()
    each = tuple(claim for graph in graphs for claim in _of_graph(graph, places, again, names))
    own = (gap for graph in graphs for gap in graph.gaps)
    is_one = sum(not graph.is_backward for graph in graphs) == 1
    is_whole = is_one and _is_of_model(each, names)
    return Claims(each, (*gaps, *own), is_whole, is_broken=counters["frames"]["total"] > 1)


def _is_of_model(claims: tuple[Claim, ...], names: Mapping[str, str]) -> bool:
    """Tell whether modules have paths in the model, if in any."""
    paths = {each.op.place.module for each in claims if each.op.place is not None} - {""}
    return not paths or not paths.isdisjoint(names)


def _of_joints(graphs: Iterable[GraphInstance]) -> dict[InJoint, FxNode]:
    nodes = ((graph, node) for graph in graphs for node in graph.nodes)
    known = ((graph, node) for graph, node in nodes if node.lineage.joint_name is not None)
    return {_in_joint(graph, node.lineage.joint_name): node for graph, node in known}


def _in_joint(graph: GraphInstance, name: str | None) -> InJoint:
    """Tell where a node is in a joint graph; several compiles may have made equal ones."""
    return graph.compile_id, graph.joint, name


def _of_graph(
    graph: GraphInstance,
    places: Mapping[InJoint, Place | None],
    again: Set[InJoint],
    names: Mapping[str, str],
) -> Iterator[Claim]:
    for node in with_modules_of_gradient_sums(graph.nodes):
        if not _is_constant(node):
            linked = places.get(_in_joint(graph, node.lineage.forward_node))
            is_again = _is_again(node) or _in_joint(graph, node.lineage.joint_name) in again
            is_first = not (graph.is_backward and is_again)
            is_unique = is_first and (_differentiates(node) or not graph.is_backward)
            yield Claim(
                node=node,
                op=_op(node, names),
                is_of_a_pass=_is_of_a_pass(node, is_unique),
                is_unique=is_unique,
                writes_back=node.lineage.mechanism is Mechanism.MUTATED,
                is_of_input=node.lineage.is_gradient_acc and node.lineage.forward_node is None,
                linked=linked,
            )


def _is_constant(node: FxNode) -> bool:
    """Tell what no op ran for: a value that torch made a constant, an output of a node."""
    return node.target == "getitem" or not (node.inputs or node.is_random)


def _op(node: FxNode, names: Mapping[str, str]) -> Op:
    return Op(
        name=plain_name(node.target),
        is_backward=_differentiates(node) and not _is_again(node),
        outputs=tuple((tuple(each.size), _plain(each.dtype)) for each in node.outputs),
        place=_place(node, names),
    )


def _differentiates(node: FxNode) -> bool:
    lineage = node.lineage
    is_tagged = lineage.partitioner_tag == "is_backward"  # what a hook does differentiates nothing
    return is_tagged or lineage.is_gradient_acc or lineage.forward_node is not None


def _is_again(node: FxNode) -> bool:
    return node.lineage.forward_evidence == ForwardEvidence.RECOMPUTED


def _is_of_a_pass(node: FxNode, is_unique: bool) -> bool:
    """Tell so; a region that is run again has been through the passes of its forward."""
    is_made = not is_unique and _BY_PATTERN.search(node.name) is not None
    # A softmax of a product has other ops than the softmax that ran.
    is_other = bool(node.replaced) and node.lineage.original_aten not in (None, node.target)
    return (
        is_made
        or is_other
        or node.entry_name is None
        or node.lineage.mechanism is Mechanism.REPLACED
    )


def _plain(dtype: str) -> str:
    return dtype.removeprefix("torch.")


def _place(node: FxNode, names: Mapping[str, str]) -> Place | None:
    frame = _ROOTS.model_frame(node.lineage.stack)
    if frame is None:
        return None
    module = "".join(each.path for each in node.lineage.modules[-1:])
    return Place(frame.file, frame.line, names.get(module, module))
