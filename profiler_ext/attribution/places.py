"""The source places of FX nodes, eager ops and gaps: line, module and forward node, each once."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import PurePath

from profiler_ext.attribution.enclosing import CallContext, Called
from profiler_ext.attribution.phases import is_leaked, is_traced_gradient, node_phase
from profiler_ext.kineto.communication import is_communication
from profiler_ext.records.analysis import Place
from profiler_ext.records.evidence import ForwardEvidence, LineEvidence, Mechanism
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import Frame, ModuleFrame, PartModules
from profiler_ext.records.provenance import FxNode, GraphInstance
from profiler_ext.records.recording import Settings, is_cell
from profiler_ext.records.vocabulary import Level, Phase

_NOT_THE_MODEL = frozenset({"torch", "triton", "profiler_ext"})
_PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})
# The modules that forwards were called on, by the joint graph that they were cut from
ModulesOfJointGraphs = Mapping[str, set[Called]]
_OF_PHASES = {
    Phase.RECOMPUTE: ForwardEvidence.RECOMPUTED,
    Phase.GRADIENT_ACCUMULATION: ForwardEvidence.GRADIENT_SUM,
}


class SourceRoots:
    """Classifies source files: the user's, torch's, triton's or this package's."""

    def __init__(self, settings: Settings) -> None:
        self._user = tuple(PurePath(root).parts for root in settings.user_roots)
        self._library = tuple(PurePath(root).parts for root in settings.library_roots)
        self._packages: dict[str, tuple[str, ...] | None] = {}
        self._users: dict[str, bool] = {}

    def model_frame(self, stack: tuple[Frame, ...]) -> Frame | None:
        """Return the innermost frame that is outside torch, triton and this package."""
        # Without one (a compiled optimizer.step or torch.nn module) torch's own code is what the
        # user compiled: then torch's innermost.
        inwards = tuple(reversed(stack))
        outside = (frame for frame in inwards if self.is_model(frame.file))
        torchs = (
            frame for frame in inwards if ((self._package(frame.file) or ())[:1] == ("torch",))
        )
        return next(outside, None) or next(torchs, None)

    def user_frame(self, stack: tuple[Frame, ...]) -> Frame | None:
        """Return the innermost frame under the user's own roots."""
        return next((f for f in reversed(stack) if self._is_user(f.file)), None)

    def with_line(self, place: Place, stack: tuple[Frame, ...]) -> Place:
        """Return a place with the model's line and the user's own, as far as a stack has them."""
        # stack: its frames, outermost first; none where no line is its own
        frame, user = self.model_frame(stack), self.user_frame(stack)
        return dataclasses.replace(
            place,
            file=frame.file if frame else None,
            line=frame.line if frame else None,
            function=frame.function if frame else None,
            code=frame.code if frame else None,
            user_file=user.file if user else None,
            user_line=user.line if user else None,
        )

    def is_model(self, file: str) -> bool:
        """Tell whether a file is outside torch, triton and this package."""
        package = self._package(file)
        return not file.startswith("<") and (not package or package[0] not in _NOT_THE_MODEL)

    def _is_user(self, file: str) -> bool:
        if file not in self._users:
            parts = PurePath(file).parts
            is_under = any(_under(parts, root) for root in self._user)
            self._users[file] = is_cell(file) or (self._package(file) is None and is_under)
        return self._users[file]

    def _package(self, file: str) -> tuple[str, ...] | None:
        """Return a library file's path below its library root; ``None`` outside of all."""
        if file not in self._packages:
            self._packages[file] = self._find_package(PurePath(file).parts)
        return self._packages[file]

    def _find_package(self, parts: tuple[str, ...]) -> tuple[str, ...] | None:
        folders = [at + 1 for at, part in enumerate(parts) if part in _PACKAGE_FOLDERS]
        # Return how deep lie the packages of a library's root; torch's sources are one
        # themselves.
        roots = [
            (len(root) - (not _NOT_THE_MODEL.isdisjoint(root[-1:])))
            for root in self._library
            if _under(parts, root)
        ]
        deepest = max(folders + roots, default=None)
        return None if deepest is None else parts[deepest:]


def _under(parts: tuple[str, ...], root: tuple[str, ...]) -> bool:
    return len(parts) > len(root) and parts[: len(root)] == root


def modules_of_joint_graphs(
    called: Iterable[tuple[GraphInstance, Called | None]],
) -> ModulesOfJointGraphs:
    """Collect the modules that each joint graph's forward was called on."""
    # called: each call's graph, and the module it was called on, where known
    modules: dict[str, set[Called]] = defaultdict(set)
    for graph, module in called:
        if graph.joint is not None and module is not None and not graph.runs_backward:
            modules[graph.joint].add(module)
    return modules


def module_of(
    node: FxNode, graph: GraphInstance, context: CallContext, forwards: ModulesOfJointGraphs
) -> ModuleFrame | None:
    """Return the innermost module of a node, as its graph was called."""
    # What compiled autograd copied belongs to the module that its own forward was called on; where
    # that forward is unknown, to the one module that such forwards were called on, and so does a
    # backward whose forward ran before the recording. A part of a graph without a known call
    # belongs to no module: it may run for an equal part.
    if node.lineage.joint is None and context.module is not None:
        return innermost_module(node, context.module)
    joint = graph.joint if graph.runs_backward else None
    modules = forwards.get(node.lineage.joint or joint or "", set())
    copied = dict(context.copied)
    if node.lineage.copied_call is not None and node.lineage.copied_call in copied:
        own = copied[node.lineage.copied_call]
        return innermost_module(node, own) if own in modules else None
    unknown = PartModules() if graph.record.is_part else None
    return None if len(modules) > 1 else innermost_module(node, next(iter(modules), unknown))


def with_modules_of_gradient_sums(nodes: Iterable[FxNode]) -> Iterator[FxNode]:
    """Give gradient sums of graph inputs the modules that enclose all summed nodes."""
    # Torch keeps none, so such a sum has only the compiled module, or in a repeated region the
    # call's. Where an op made the value, the sum has the op's modules.
    known: dict[str, tuple[ModuleFrame, ...]] = {}
    for node in nodes:
        own = node.lineage.modules
        if node.lineage.is_gradient_acc and node.lineage.forward_node is None:
            modules = [known.get(name, ()) for name in node.inputs]
            shared = zip(*modules, strict=False)
            enclosing = tuple(
                each[0] for each in takewhile(lambda each: len(set(each)) == 1, shared)
            )
            if enclosing and (len(own) <= 1 or enclosing[: len(own)] == own):
                node = replace(node, lineage=replace(node.lineage, modules=enclosing))
        known[node.name] = node.lineage.modules
        yield node


def innermost_module(node: FxNode, called: Called | None) -> ModuleFrame | None:
    """Return the innermost module of a node; its modules' paths begin at the compiled module."""
    # called: that module, if it was compiled by itself and its path is known; or the modules of the
    # call, where the graph is a part
    if isinstance(called, PartModules):
        return called.of(node.lineage.modules[-1]) if node.lineage.modules else called.own
    if any(module.is_of_variable for module in node.lineage.modules[-1:]):
        return None
    if called is None:
        return node.lineage.modules[-1] if node.lineage.modules else None
    if not node.lineage.modules:
        return called
    inner = node.lineage.modules[-1]
    path = ".".join(part for part in (called.path, inner.path) if part)
    return ModuleFrame(path, inner.class_name)


def forward_evidence(node: FxNode, graph: GraphInstance, phase: Phase) -> str | None:
    """Return the rule that tied a node to the forward node it differentiates, or why none did."""
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
    """Return the same for an ATen op that ran outside compiled graphs."""
    if forward_op is not None:
        return ForwardEvidence.AUTOGRAD_SEQUENCE
    if phase is Phase.BACKWARD and not is_communication(op):
        return ForwardEvidence.NOT_LINKED
    return _OF_PHASES.get(phase)


def _is_of_hook(node: FxNode, graph: GraphInstance) -> bool:
    """Tell whether a node is a hook's; what compiled autograd copies names its joint graph."""
    if node.lineage.mechanism is Mechanism.HOOK:
        return True
    return graph.is_of_compiled_autograd and node.lineage.joint is None and bool(node.lineage.stack)


class PlaceTable:
    """The places of an analysis, each once."""

    def __init__(
        self,
        graphs: Sequence[GraphInstance],
        settings: Settings,
        forwards: ModulesOfJointGraphs | None = None,
    ) -> None:
        self._graphs = graphs
        self._forwards = forwards or {}
        self._roots = SourceRoots(settings)
        self._index: dict[Place, int] = {}
        self._of_node: dict[tuple[int, str, CallContext], int] = {}
        self._open: dict[int, bool] = {}
        named = (
            {n.name: n for n in with_modules_of_gradient_sums(graph.nodes)} for graph in graphs
        )
        self._nodes = list(named)

    @property
    def places(self) -> tuple[Place, ...]:
        """The places in the order of their indices."""
        return tuple(self._index)

    def add(self, place: Place) -> int:
        """Return the index of a place, which may be new."""
        return self._index.setdefault(place, len(self._index))

    def add_node(self, graph: int, node: str, context: CallContext) -> int:
        """Return the index of the place of a graph's node, as the graph was called."""
        key = (graph, node, context)
        if key not in self._of_node:
            self._of_node[key] = self.add(self.of_node(graph, node, context))
        return self._of_node[key]

    def add_input(self, graph: int, node: str, context: CallContext, op: str) -> int:
        """Return the index of the place of a graph's input, on which an operator works."""
        return self.add(dataclasses.replace(self.of_node(graph, node, context), aten_op=op))

    def has_unknown_places(self, graph: int) -> bool:
        """Tell whether a graph has nodes whose line or module only its call can show."""
        if graph not in self._open:
            places = (self.of_node(graph, name, CallContext()) for name in self._nodes[graph])
            self._open[graph] = any(p.line is None or p.module is None for p in places)
        return self._open[graph]

    def _unknown(self, graph: int, name: str) -> Place:
        is_capture_lost = self._graphs[graph].is_partly_captured
        reason = GapReason.PARTLY_CAPTURED if is_capture_lost else GapReason.NO_SOURCE_LINE
        return Place(graph=graph, node=name, gap=reason)

    def of_node(self, graph: int, name: str, context: CallContext) -> Place:
        """Return the place of a graph's node, as the graph was called."""
        if name not in self._nodes[graph]:
            return self._unknown(graph, name)
        node, instance = self._nodes[graph][name], self._graphs[graph]
        evidence = node.lineage.evidence or LineEvidence.ABSENT
        is_open = _is_of_any_module(node, instance)
        module = None if is_open else module_of(node, instance, context, self._forwards)
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
    """Return the place of unattributed time, with its op, if known."""
    return Place(graph=graph, aten_op=op, phase=phase, gap=gap)


def _is_of_any_module(node: FxNode, graph: GraphInstance) -> bool:
    """Tell whether a node's module is unknown: a graph's inferred record leaves it out."""
    # So does a mechanism that failed, with the line or, where that gives modules, of all nodes.
    if node.lineage.modules:
        return False
    if not graph.is_partly_captured:
        return graph.is_inferred
    has_any = any(each.lineage.modules for each in graph.nodes)
    return not has_any or not node.lineage.stack


def _is_unlinked_gradient(node: FxNode) -> bool:
    """Tell whether the stack leads to the call of ``grad`` instead of the differentiated op."""
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
