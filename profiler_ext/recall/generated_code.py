"""Owns what the text of a cached artifact tells of a graph whose compile nobody saw.

torch keeps the generated code and the printed post-grad graph in the artifact. They tell the call
sites in order, and which node a library call is where it can be but one (:mod:`.library_calls`).
What a generated kernel computes, how nodes are linked and which modules share a line is left open:
a compile with capture tells that.

The line that torch printed beside a node (mechanism ``PRINTED``) is no rule of the order in
``capture/lineage/order.py``: nobody saw the graph, so there is no stage at which rules are asked.
It is the whole of this truth, ``LineEvidence.TOLD``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.recall.library_calls import library_nodes
from profiler_ext.recall.lines import from_record, known_by, with_lineage
from profiler_ext.recall.places import Source
from profiler_ext.recall.printed_graphs import PrintedGraph, PrintedNode, read_graph
from profiler_ext.recall.wrapper_calls import (
    WrapperCall,
    generated_kind,
    spelled_op,
    wrapper_calls,
)
from profiler_ext.records import (
    CallSite,
    Frame,
    FxNode,
    Lineage,
    LineEvidence,
    Mechanism,
    Provenance,
    SiteKind,
)
from profiler_ext.store import with_digest


@dataclass(frozen=True, slots=True)
class GeneratedCode:
    """The text of an artifact.

    Attributes:
        source: the generated module.
        printed: the post-grad graph as torch printed it.
        is_backward: it runs as a backward graph.
        is_inference: no gradient was asked for.
        torch_version: the torch of this process; a cache entry is never another's.
    """

    source: str
    printed: str
    is_backward: bool
    is_inference: bool
    torch_version: str


def graph_from_code(
    code: GeneratedCode, dynamo: DynamoGraph | None
) -> tuple[Provenance | None, tuple[FxNode, ...]]:
    """Return what the text of an artifact tells of its graph.

    Args:
        code: the text.
        dynamo: this process's Dynamo graph; where there is none, nothing is led to a node.

    Returns:
        The record, marked as told, and its nodes with their lines. A call that can be of one node
        is led there only if this process has the node's line, or nobody does. There is no record
        where the text is not understood, or has graphs within the graph.
    """
    graph, calls = read_graph(code.printed), wrapper_calls(code.source)
    if graph is None or not calls or any(calls[name] for name in calls if name != "call"):
        return None, ()
    lines = lines_from_code(map(_node, graph.nodes.values()), dynamo)
    stale = {node.name for node in lines if node.lineage.evidence is LineEvidence.STALE}
    library_nodes_by_call = _library_nodes(code, graph, calls["call"], dynamo)
    sites = tuple(
        _site(at, call, None if library_nodes_by_call.get(at) in stale else library_nodes_by_call.get(at))
        for at, call in enumerate(calls["call"])
    )
    return _provenance(code, graph, sites), lines


def _provenance(
    code: GeneratedCode, graph: PrintedGraph, sites: tuple[CallSite, ...]
) -> Provenance:
    return with_digest(
        Provenance(
            digest="",
            torch_version=code.torch_version,
            is_backward=code.is_backward,
            is_inference=code.is_inference,
            joint=None,
            dynamo_digest=None,
            nodes=tuple(map(_node, graph.nodes.values())),
            call_sites=sites,
            is_told=True,
        )
    )


def lines_from_code(nodes: Iterable[FxNode], dynamo: DynamoGraph | None) -> tuple[FxNode, ...]:
    """Return told nodes with the lines of this process, where its source has the told text.

    A cached graph may have come from another function with an equal graph, so a line counts
    only where this process's Dynamo graph has a frame of the same function and text.

    Args:
        nodes: nodes whose stack is the one frame that torch printed.
        dynamo: this process's Dynamo graph; where there is none, the file decides.
    """
    if dynamo is None:
        return from_record(nodes, LineEvidence.CODE_COMMENTS)
    return tuple(_with_code_line(node, dynamo) for node in nodes)


def _library_nodes(
    code: GeneratedCode,
    graph: PrintedGraph,
    calls: tuple[WrapperCall, ...],
    dynamo: DynamoGraph | None,
) -> dict[int, str]:
    """The nodes of library calls; none where the phase or the line of a node may be another's.

    A gradient that is taken inside the graph has the line that asks for it, and what compiled
    autograd copies has none of its own.
    """
    if dynamo is None or dynamo.takes_gradient or dynamo.copy_sources:
        return {}
    return library_nodes(graph, calls, is_backward=code.is_backward)


def _node(node: PrintedNode) -> FxNode:
    lineage = Lineage(stack=(node.frame,) if node.frame else ())
    return FxNode(
        name=node.name,
        target=node.target,
        lineage=lineage.by(Mechanism.PRINTED),
        inputs=tuple(dict.fromkeys(node.inputs)),
        entry_name=node.name,
    )


def _site(number: int, call: WrapperCall, node: str | None) -> CallSite:
    kernel, op = call.callee, None
    if call.generated:
        is_own = kernel.startswith(("triton_", "cpp_"))
        kind = generated_kind(kernel) if is_own else SiteKind.USER_TRITON
    else:
        kind, op = SiteKind.EXTERN, f"aten::{kernel}" if call.partial else spelled_op(kernel)
    nodes = () if node is None else (node,)
    return CallSite(number, str(number), kind, kernel, op, nodes, (1,) * len(nodes))


def _with_code_line(node: FxNode, dynamo: DynamoGraph) -> FxNode:
    stack = node.lineage.stack
    places = _places_of(stack[-1], dynamo) if stack else []
    if len({place.stack[-1] for place in places}) != 1:
        return known_by(LineEvidence.STALE, node)
    modules = {place.modules for place in places}
    return with_lineage(
        node,
        stack=_common_end([place.stack for place in places]),
        modules=modules.pop() if len(modules) == 1 else (),
        evidence=LineEvidence.CODE_COMMENTS,
    )


def _places_of(recorded_frame: Frame, dynamo: DynamoGraph) -> list[Source]:
    """The places with that very frame, else those with its function and text elsewhere."""
    ending = [place for place in dynamo.places if place.stack]
    exact = [place for place in ending if place.stack[-1] == recorded_frame]
    text = (recorded_frame.function, recorded_frame.code)
    moved = [p for p in ending if recorded_frame.code and (p.stack[-1].function, p.stack[-1].code) == text]
    return [each for place in exact or moved for each in dynamo.runs.places_of(place)]


def _common_end(stacks: list[tuple[Frame, ...]]) -> tuple[Frame, ...]:
    inwards = zip(*(reversed(stack) for stack in stacks), strict=False)
    same = takewhile(lambda frames: len(set(frames)) == 1, inwards)
    return tuple(reversed([frames[0] for frames in same]))
