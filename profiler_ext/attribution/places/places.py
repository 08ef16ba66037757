"""Owns places: an FX node as it was called, an eager op, a gap; equal places are one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from profiler_ext.attribution.calls.enclosing import CallContext
from profiler_ext.attribution.places.forward_evidence import forward_evidence
from profiler_ext.attribution.places.lines import SourceRoots
from profiler_ext.attribution.places.modules import ModulesOfJointGraphs, module_of, with_modules_of_gradient_sums
from profiler_ext.attribution.places.phases import is_leaked, is_traced_gradient, node_phase
from profiler_ext.records import (
    ForwardEvidence,
    FxNode,
    GapReason,
    GraphInstance,
    Level,
    LineEvidence,
    ModuleFrame,
    Phase,
    Place,
    Settings,
)


class PlaceTable:
    """The places of an analysis, each once."""

    def __init__(
        self,
        graphs: Sequence[GraphInstance],
        settings: Settings,
        forwards: ModulesOfJointGraphs | None = None,
    ) -> None:
        """Take what places are of.

        Args:
            graphs: the graph instances; places name them by their place here.
            settings: which folders hold the user's source and libraries.
            forwards: the modules of each joint graph's forward nodes, as far as they are known.
        """
        self._graphs = graphs
        self._forwards = forwards or {}
        self._roots = SourceRoots(settings)
        self._index: dict[Place, int] = {}
        self._of_node: dict[tuple[int, str, CallContext], int] = {}
        self._open: dict[int, bool] = {}
        named = ({n.name: n for n in with_modules_of_gradient_sums(graph.nodes)} for graph in graphs)
        self._nodes = list(named)

    @property
    def places(self) -> tuple[Place, ...]:
        """The places in the order of their indices."""
        return tuple(self._index)

    def add(self, place: Place) -> int:
        """Return the index of a place, which may be new."""
        return self._index.setdefault(place, len(self._index))

    def add_node(self, graph: int, node: str, context: CallContext) -> int:
        """Return the index of the place of a graph's node, as the graph was called.

        Args:
            graph: index of the graph.
            node: the node's name there.
            context: where the graph was called.
        """
        key = (graph, node, context)
        if key not in self._of_node:
            self._of_node[key] = self.add(self.of_node(graph, node, context))
        return self._of_node[key]

    def add_input(self, graph: int, node: str, context: CallContext, op: str) -> int:
        """Return the index of the place of a graph's input, on which an operator works.

        Args:
            graph: index of the graph.
            node: the input's name there.
            context: where the graph was called.
            op: the operator, as the profiler spells it.
        """
        return self.add(dataclasses.replace(self.of_node(graph, node, context), aten_op=op))

    def _module_of(
        self, node: FxNode, graph: GraphInstance, context: CallContext
    ) -> ModuleFrame | None:
        return module_of(node, graph, context, self._forwards)

    def has_unknown_places(self, graph: int) -> bool:
        """Tell whether a graph has nodes whose line or module nothing tells but its call."""
        if graph not in self._open:
            places = (self.of_node(graph, name, CallContext()) for name in self._nodes[graph])
            self._open[graph] = any(p.line is None or p.module is None for p in places)
        return self._open[graph]

    def _unknown(self, graph: int, name: str) -> Place:
        """Return the place of a node that the graph's record does not have."""
        is_capture_lost = self._graphs[graph].is_partly_captured
        reason = GapReason.PARTLY_CAPTURED if is_capture_lost else GapReason.NO_SOURCE_LINE
        return Place(graph=graph, node=name, gap=reason)

    def of_node(self, graph: int, name: str, context: CallContext) -> Place:
        """Return the place of a graph's node, as the graph was called.

        Args:
            graph: index of the graph.
            name: the node's name there.
            context: where the graph was called.
        """
        if name not in self._nodes[graph]:
            return self._unknown(graph, name)
        node, instance = self._nodes[graph][name], self._graphs[graph]
        evidence = node.lineage.evidence or LineEvidence.ABSENT
        is_open = _is_of_any_module(node, instance)
        module = None if is_open else self._module_of(node, instance, context)
        if not node.lineage.modules and module is None:
            module = context.called_in
        in_torch_optim = instance.runs_optimizer and node.lineage.is_of_optimizer
        phase = node_phase(node, instance, context, in_torch_optim)
        is_stale = evidence is LineEvidence.STALE
        stack = (*(context.caller.stack if context.caller else ()), *node.lineage.stack)
        has_own_line = not is_stale and not _is_unlinked_gradient(node)
        located = self._roots.with_line(Place(), stack if has_own_line else ())
        if located.line is None and has_own_line and context.called_from:
            stack = (*context.called_from, *stack)
            located, evidence = self._roots.with_line(Place(), stack), LineEvidence.CALLED
        has_line = located.line is not None
        place = dataclasses.replace(
            located,
            graph=graph,
            node=node.name,
            aten_op=node.lineage.original_aten or node.target,
            seq_nr=node.lineage.seq_nr,
            phase=phase,
            autograd_backward=node.lineage.autograd_backward,
            forward_node=node.lineage.forward_node,
            forward_evidence=forward_evidence(node, instance, phase),
            stack=() if is_stale else stack,
            module=module.path if module else None,
            module_class=module.class_name if module else None,
            annotation=annotation_text(node),
            level=Level.LINE if has_line else Level.OP,
            evidence=evidence,
            mechanism=node.lineage.mechanism if has_line else None,
            gap=None if has_line else _no_line(node, instance, evidence),
            is_phase_corrected=is_leaked(node, instance),
        )
        return place if context.caller is None else _called_from(place, context.caller)


def _called_from(place: Place, caller: Place) -> Place:
    """Return the place of a node whose graph an op of another graph's call runs."""
    linked, evidence = place.forward_node, place.forward_evidence
    if linked is None and place.phase is not Phase.FORWARD:
        linked, evidence = caller.forward_node, caller.forward_evidence
        evidence = evidence if linked is None else ForwardEvidence.OF_CALL
    return dataclasses.replace(
        place,
        forward_node=linked,
        forward_evidence=evidence,
        caller_file=caller.file,
        caller_line=caller.line,
        module=caller.module,
        module_class=caller.module_class,
        annotation=place.annotation or caller.annotation,
    )


def gap_place(
    gap: GapReason, phase: Phase, graph: int | None = None, op: str | None = None
) -> Place:
    """Return the place of what could not be led back, with the op that is known of it.

    Args:
        gap: why it could not be led back.
        phase: the phase that it is of.
        graph: index of the graph that ran it, if that is known.
        op: the ATen op, if that is known.
    """
    return Place(graph=graph, aten_op=op, phase=phase, gap=gap)


def _is_of_any_module(node: FxNode, graph: GraphInstance) -> bool:
    """Tell whether a node's module is not known: what is told of a graph leaves it out.

    So does a mechanism that failed, with the line or, where that tells modules, of all nodes.
    """
    if node.lineage.modules:
        return False
    if not graph.is_partly_captured:
        return graph.is_told
    has_any = any(each.lineage.modules for each in graph.nodes)
    return not has_any or not node.lineage.stack


def _is_unlinked_gradient(node: FxNode) -> bool:
    """Tell whether the stack leads to where the gradient is asked for, not to what it is of."""
    return is_traced_gradient(node)


def _no_line(node: FxNode, graph: GraphInstance, evidence: LineEvidence) -> GapReason:
    if evidence is LineEvidence.STALE:
        return GapReason.STALE_SOURCE_LINE
    if evidence is LineEvidence.EAGER_BACKWARD:
        return GapReason.EAGER_BACKWARD
    if _is_unlinked_gradient(node):
        return GapReason.TRACED_GRADIENT
    # What such a graph copies is known by its own joint graph; nothing else can tell the line.
    if graph.is_of_compiled_autograd and node.lineage.joint is None:
        return GapReason.COMPILED_AUTOGRAD
    is_capture_lost = graph.is_partly_captured and not node.lineage.stack
    return GapReason.PARTLY_CAPTURED if is_capture_lost else GapReason.NO_SOURCE_LINE


def annotation_text(node: FxNode) -> str | None:
    """Return the user's own labels of a node as one text."""
    return ", ".join(f"{key}={value}" for key, value in node.lineage.annotation) or None
