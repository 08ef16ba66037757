"""Owns the records of nodes in nested graphs, by qualified names: ``cond/true_graph_0/sin``.

A region that is compiled once for several calls (``invoke_subgraph``) has a joint graph of its
own; its nodes stand in the outer one once for each call, so the calls are part of their names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch.fx

from profiler_ext.capture.nodes.bodies import inner_prefix
from profiler_ext.capture.nodes.dynamo_graphs import DynamoGraph, Source
from profiler_ext.capture.nodes.fx_nodes import Surroundings, describe_node, modules_of
from profiler_ext.capture.nodes.joint import main_row
from profiler_ext.capture.nodes.links import differentiates
from profiler_ext.capture.nodes.stacks import parse_stack
from profiler_ext.records import ForwardEvidence, FxNode, ModuleFrame
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.names import fx_names


@dataclass(frozen=True, slots=True)
class Nested:
    """A node of a nested graph, and the node of the outermost graph that calls it."""

    node: torch.fx.Node
    caller: torch.fx.Node | None


def describe_nested(nodes: Mapping[str, Nested], around: Surroundings) -> tuple[FxNode, ...]:
    """Return the records of nodes in nested graphs, by qualified names.

    Args:
        nodes: ``cond/true_graph_0/sin`` and the like, each with its node and its caller.
        around: what the records need.
    """
    names = _JointNames(around)
    return tuple(_nested(name, nested, around, names) for name, nested in nodes.items())


def nested_nodes(
    gm: torch.fx.GraphModule, prefix: str = "", caller: torch.fx.Node | None = None
) -> dict[str, Nested]:
    """Return the call nodes of the graphs nested in a graph, by qualified names."""
    found: dict[str, Nested] = {}
    for outer in gm.graph.nodes:
        graphs = list(fx.nested(outer)) if outer.op == "call_function" else []
        for attribute, module in graphs:
            inside = prefix + inner_prefix(outer.name, attribute, len(graphs))
            called = (n for n in module.graph.nodes if n.op == "call_function")
            found.update((inside + node.name, Nested(node, caller or outer)) for node in called)
            found.update(nested_nodes(module, inside, caller or outer))
    return found


def _nested(name: str, nested: Nested, around: Surroundings, names: _JointNames) -> FxNode:
    prefix = name.rpartition("/")[0]
    own = _in_body(prefix, nested, around, names)
    source = _carried_source(nested, own, around)
    return dataclasses.replace(
        own,
        name=name,
        stack=own.stack if source is None else source.stack,
        entry_name=name,
        inputs=tuple(f"{prefix}/{value}" for value in own.inputs),
        replaced=tuple(f"{prefix}/{replaced}" for replaced in own.replaced),
        joint_name=_joint_name(prefix, nested, around, names),
        modules=_moved(own.modules, nested.caller, around.dynamo),
    )


def _joint_name(
    prefix: str, nested: Nested, around: Surroundings, names: _JointNames
) -> str | None:
    own = nested.node.name
    if nested.caller is None or own in around.replaced.get(nested.node.graph, {}):
        return None
    return names.of(own, prefix, nested.caller, forward=False)


class _JointNames:
    """The names in the joint graph of nested graphs, all calls on the way to them included."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._known: dict[tuple[str, bool], str | None] = {}

    def of(self, name: str, prefix: str, caller: torch.fx.Node, *, forward: bool) -> str | None:
        """Return the name of a body's node, ``None`` where a call on the way has none there.

        Args:
            name: its name in the body.
            prefix: what names the body: ``cond/true_graph_0/invoke_subgraph``.
            caller: the node of the outermost graph that this begins with.
            forward: of a backward's calls take the forward's.
        """
        if (prefix, forward) not in self._known:
            named = self._around.forward_name if forward else self._around.joint_name
            self._known[prefix, forward] = _path(_calls(prefix, caller, named))
        path = self._known[prefix, forward]
        return None if path is None else f"{path}/{name}"


def _calls(
    prefix: str, outermost: torch.fx.Node, named: Callable[[torch.fx.Node], str | None]
) -> Iterator[str | None]:
    """Yield the names of the calls, and which of its graphs each calls where it has several."""
    parts = iter(prefix.split("/"))
    graph: torch.fx.Graph | None = outermost.graph
    for name in parts:
        node = next((node for node in graph.nodes if node.name == name), None) if graph else None
        graphs = dict(fx.nested(node)) if node else {}
        which = next(iter(graphs), None) if len(graphs) < 2 else next(parts, None)
        graph = graphs[which].graph if which in graphs else None
        yield named(node) if node and graph else None
        if len(graphs) > 1:
            yield which


def _path(names: Iterable[str | None]) -> str | None:
    parts = list(names)
    return None if None in parts else "/".join(part for part in parts if part)


def _in_body(prefix: str, nested: Nested, around: Surroundings, names: _JointNames) -> FxNode:
    """Return a node of a body; of a backward body, with the forward body's source."""
    own = describe_node(nested.node, around)
    joint = around.joint_of(nested.caller.graph) if nested.caller else None
    row = main_row(around.rows(nested.node))
    led = joint.bodies.get(f"{prefix}/{row[0] if row else own.name}") if joint else None
    if led is None:
        return _with_link(own, prefix, nested, around, names)
    return dataclasses.replace(
        own,
        stack=parse_stack(fx.text(led.meta, fx_names.STACK_TRACE)),
        source_fns=fx.source_fns(led.meta),
        modules=modules_of(led.meta, around.dynamo),
        forward_node=led.link.forward_node if led.link else None,
        forward_evidence=led.link.evidence if led.link else None,
    )


def _with_link(
    own: FxNode, prefix: str, nested: Nested, around: Surroundings, names: _JointNames
) -> FxNode:
    """Return a node of a region, its forward node named by the region's call in the forward.

    A body whose own trace tells nothing differentiates what its call does.
    """
    caller, link = nested.caller, own.forward_node
    if caller is None:
        return dataclasses.replace(own, forward_node=None, forward_evidence=None)
    forward = names.of(link, prefix, caller, forward=True) if link is not None else None
    evidence = None if forward is None else own.forward_evidence
    if forward is None and differentiates(nested.node, nested.node.meta):
        call = around.link(caller, ())
        forward = call.forward_node if call else None
        evidence = ForwardEvidence.OF_CALL if call else None
    return dataclasses.replace(own, forward_node=forward, forward_evidence=evidence)


_NOWHERE = Source((), ())


def _carried_source(nested: Nested, own: FxNode, around: Surroundings) -> Source | None:
    """Return where a node of a ``score_mod`` was called; retracing left it its caller's line.

    The derivative of a ``score_mod`` has other operators; its line is known where all of the
    ``score_mod`` stands on one, else it has none. A call that a pass made carries other graphs.
    """
    dynamo = around.dynamo
    if dynamo is None or nested.caller is None or around.rows(nested.caller):
        return None
    call = fx.source_fns(nested.caller.meta)
    if own.source_fns != call or call not in dynamo.inlined:
        return None
    inner = [node for node in nested.node.graph.nodes if node.op == "call_function"]
    ops = tuple(fx.op_name(node) for node in inner)
    graphs = [module.graph for _, module in fx.nested(nested.caller)]
    is_mask = len(graphs) > 1 and nested.node.graph is graphs[-1]
    same = dynamo.inlined_source(call, ops, inner.index(nested.node))
    return same or dynamo.only_source(call, int(is_mask)) or _NOWHERE


def _moved(
    modules: tuple[ModuleFrame, ...], caller: torch.fx.Node | None, dynamo: DynamoGraph | None
) -> tuple[ModuleFrame, ...]:
    """Lead the modules of a region that was traced on one module to the module of this call."""
    if dynamo is None or caller is None:
        return modules
    here = dynamo.called_on.get(fx.source_fns(caller.meta))
    traced = [path for path in dynamo.called_on.values() if modules and _leads(path, modules)]
    if here is None or not traced:
        return modules
    length = len(max(traced, key=len))
    return tuple(dataclasses.replace(m, path=here + m.path[length:]) for m in modules)


def _leads(path: str, modules: tuple[ModuleFrame, ...]) -> bool:
    return all(module.path == path or module.path.startswith(path + ".") for module in modules)
