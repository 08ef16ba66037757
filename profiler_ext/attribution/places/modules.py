"""Owns which module a node belongs to, by its path from the model that the user holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import takewhile

from profiler_ext.attribution.calls.enclosing import CallContext, Called
from profiler_ext.records import FxNode, GraphInstance, ModuleFrame, PartModules

ModulesOfJointGraphs = Mapping[str, set[Called]]
"""The modules that forwards were called on, by the joint graph that they were cut from."""


def modules_of_joint_graphs(
    called: Iterable[tuple[GraphInstance, Called | None]],
) -> ModulesOfJointGraphs:
    """Collect the modules that the forward graphs of a trace were called on.

    Args:
        called: each call's graph, and the module it was called on, where that is known.

    Returns:
        By the id of each joint graph the modules that its forward was called on.
    """
    modules: dict[str, set[Called]] = defaultdict(set)
    for graph, module in called:
        if graph.joint is not None and module is not None and not graph.runs_backward:
            modules[graph.joint].add(module)
    return modules


def module_of(
    node: FxNode, graph: GraphInstance, context: CallContext, forwards: ModulesOfJointGraphs
) -> ModuleFrame | None:
    """Return the innermost module of a node, as its graph was called.

    What compiled autograd copied belongs to the module that its own forward was called on. Where
    nothing tells which forward that is, it belongs to the one module that such forwards were
    called on, and so does a backward whose own forward ran before the recording began. A part of a
    graph belongs to no module where that of its call is not known: it may run for an equal part.

    Args:
        node: the node.
        graph: its graph.
        context: where that was called.
        forwards: the modules that forwards were called on.
    """
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
    """Give each sum of gradients of a value that no op made the modules that hold all it sums.

    Torch keeps none, so that a sum has only the module that was compiled, and in a repeated region
    that of the call: a tensor is used more than once in the innermost module around its uses.
    Where an op made it, the sum has the op's.

    Args:
        nodes: the nodes of a graph, in graph order.

    Returns:
        The nodes in the same order.
    """
    known: dict[str, tuple[ModuleFrame, ...]] = {}
    for node in nodes:
        own = node.lineage.modules
        if node.lineage.is_gradient_acc and node.lineage.forward_node is None:
            enclosing = _common([known.get(name, ()) for name in node.inputs])
            if enclosing and (len(own) <= 1 or enclosing[: len(own)] == own):
                node = replace(node, lineage=replace(node.lineage, modules=enclosing))
        known[node.name] = node.lineage.modules
        yield node


def _common(modules: list[tuple[ModuleFrame, ...]]) -> tuple[ModuleFrame, ...]:
    shared = zip(*modules, strict=False)
    return tuple(each[0] for each in takewhile(lambda each: len(set(each)) == 1, shared))


def innermost_module(node: FxNode, called: Called | None) -> ModuleFrame | None:
    """Return the innermost module of a node.

    Args:
        node: the node; its modules' paths begin at the module that was compiled.
        called: that module, where it was compiled by itself and its own path is known; or the
            modules of the call, where it is a part of a graph.
    """
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
