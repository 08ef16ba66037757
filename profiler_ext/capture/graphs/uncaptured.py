"""Owns what can be said of a cached artifact that was compiled without capture.

torch keeps the generated code and the printed post-grad graph in the artifact. They tell call
sites, nodes and the innermost line of each, but no ``seq_nr``, no module, and nothing of C++
kernels, which bear no comments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from profiler_ext.capture.graphs.correspondence import agreed
from profiler_ext.capture.graphs.instances import from_record, refreshed, with_lineage
from profiler_ext.capture.sites.call_sites import generated_kind, spelled_op
from profiler_ext.capture.sites.wrapper_calls import WrapperCall, wrapper_calls
from profiler_ext.capture.told.printed_graphs import PrintedNode, read_graph
from profiler_ext.capture.told.told_sites import told_nodes
from profiler_ext.capture.traces.dynamo_graphs import DynamoGraph, Source, Sourced
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
from profiler_ext.torch_compat import fx


def told_provenance(
    source: str, graph_text: str, *, is_backward: bool, is_inference: bool, torch_version: str
) -> Provenance | None:
    """Return what the text of an artifact tells of its graph.

    Args:
        source: the generated module.
        graph_text: the post-grad graph as torch printed it.
        is_backward: it runs as a backward graph.
        is_inference: no gradient was asked for.
        torch_version: the torch of this process; a cache entry is never another's.

    Returns:
        The record, marked as told; ``None`` where the text is not understood: C++, or graphs
        within the graph.
    """
    graph, calls = read_graph(graph_text), wrapper_calls(source)
    if graph is None or not calls or any(calls[name] for name in calls if name != "call"):
        return None
    told = told_nodes(source, graph, calls["call"], is_backward=is_backward)
    sites = zip(calls["call"], told.of_calls, strict=True)
    return with_digest(
        Provenance(
            digest="",
            torch_version=torch_version,
            is_backward=is_backward,
            is_inference=is_inference,
            joint=None,
            dynamo_digest=None,
            nodes=tuple(_node(node, told.recomputed) for node in graph.nodes.values()),
            call_sites=tuple(
                _site(number, call, nodes) for number, (call, nodes) in enumerate(sites)
            ),
            is_told=True,
        )
    )


def told_lines(
    nodes: Iterable[FxNode], dynamo: DynamoGraph | None, *, is_backward: bool
) -> tuple[Sourced, ...]:
    """Return told nodes with the lines of this process, where its source has the told text.

    A cached graph may have come from another function with an equal graph, so a line counts
    only where this process's Dynamo graph has a frame of the same function and text.

    Args:
        nodes: nodes whose stack is the one frame that torch printed.
        dynamo: this process's Dynamo graph; where there is none, the file decides.
        is_backward: they are of a backward graph.
    """
    told = (_told(node, dynamo) for node in nodes)
    return tuple(
        (_of_any_module(node) if is_backward and _may_sum(node) else node, evidence)
        for node, evidence in told
    )


def _may_sum(node: FxNode) -> bool:
    """Tell whether a node may sum gradients of a value, which has a line but no one module."""
    return node.target == "aten.add.Tensor" and node.lineage.partitioner_tag is None


def _of_any_module(node: FxNode) -> FxNode:
    return with_lineage(node, modules=())


def told_afresh(
    printed: Sequence[FxNode],
    told: Sequence[Sourced],
    fresh: Iterable[FxNode],
    frames: Mapping[str, tuple[Frame, ...]],
) -> tuple[Sourced, ...]:
    """Return told nodes with the metadata of the graph that entered Inductor just now.

    Which nodes a pass made is not printed, and a pass may give the name of a node that is gone.
    Nodes of one name are one where they have one line, or lines that always go together; and
    without a line where they do the same to the same.

    Args:
        printed: the nodes, each with the frame that torch printed.
        told: the same nodes with what is known of them without the fresh graph.
        fresh: the nodes of the fresh graph.
        frames: what torch would print of each of those.
    """
    by_name = {node.name: node for node in fresh}
    pairs = ((n.lineage.stack, frames[n.name]) for n in printed if n.name in by_name)
    lines = agreed(pair for pair in pairs if pair[0])
    return tuple(
        refreshed(node, by_name[node.name]) if _is_one(node, by_name, frames, lines) else known
        for node, known in zip(printed, told, strict=True)
    )


def _is_one(
    node: FxNode,
    fresh: Mapping[str, FxNode],
    frames: Mapping[str, tuple[Frame, ...]],
    lines: Mapping[tuple[Frame, ...], tuple[Frame, ...]],
) -> bool:
    other, stack = fresh.get(node.name), node.lineage.stack
    if other is None or bool(stack) != bool(frames[node.name]):
        return False
    if not stack:
        return (node.target, node.inputs) == (other.target, other.inputs)
    is_one_text = _texts(stack) == _texts(frames[node.name])
    return is_one_text or lines.get(stack) == frames[node.name]


def _texts(stack: tuple[Frame, ...]) -> list[tuple[str, str | None]]:
    return [(frame.function, frame.code) for frame in stack]


def _node(node: PrintedNode, recomputed: frozenset[str]) -> FxNode:
    lineage = Lineage(
        stack=(node.frame,) if node.frame else (),
        partitioner_tag="is_forward" if node.name in recomputed else None,
    )
    return FxNode(
        name=node.name,
        target=node.target,
        lineage=lineage.by(Mechanism.PRINTED),
        inputs=tuple(dict.fromkeys(node.inputs)),
        entry_name=node.name,
    )


def _site(number: int, call: WrapperCall, nodes: tuple[str, ...]) -> CallSite:
    kernel, op = call.callee, None
    if call.generated:
        is_own = kernel.startswith(("triton_", "cpp_"))
        kind = generated_kind(kernel) if is_own else SiteKind.USER_TRITON
    else:
        kind, op = SiteKind.EXTERN, f"aten::{kernel}" if call.partial else spelled_op(kernel)
    return CallSite(number, str(number), kind, kernel, op, nodes, (1,) * len(nodes))


def _told(node: FxNode, dynamo: DynamoGraph | None) -> Sourced:
    stack = node.lineage.stack
    if not stack:
        return node, LineEvidence.ABSENT
    if dynamo is None:
        [(same, evidence)] = from_record((node,))
        return same, LineEvidence.TOLD if evidence is LineEvidence.RECORDED else evidence
    places = _places_of(stack[-1], dynamo)
    if len({place.stack[-1] for place in places}) != 1:
        return node, LineEvidence.STALE
    there = (names for names, at in dynamo.sources.items() if at in places)
    if asking := [names for names in there if fx.asks_for_gradient(names)]:
        return _of_gradient(node, asking[0] if len(asking) == len(places) else ())
    modules = {place.modules for place in places}
    found = with_lineage(
        node,
        stack=_common_end([place.stack for place in places]),
        modules=modules.pop() if len(modules) == 1 else (),
    )
    return found, LineEvidence.TOLD


def _of_gradient(node: FxNode, source_fns: tuple[str, ...]) -> Sourced:
    """What stands where a gradient is asked for may be of any line that it differentiates."""
    open_node = with_lineage(node, stack=(), source_fns=source_fns, mechanism=None)
    return open_node, LineEvidence.ABSENT


def _places_of(told: Frame, dynamo: DynamoGraph) -> list[Source]:
    """The places with that very frame, else those with its function and text elsewhere."""
    ending = [place for place in dynamo.places if place.stack]
    exact = [place for place in ending if place.stack[-1] == told]
    text = (told.function, told.code)
    moved = [p for p in ending if told.code and (p.stack[-1].function, p.stack[-1].code) == text]
    return exact or moved


def _common_end(stacks: list[tuple[Frame, ...]]) -> tuple[Frame, ...]:
    inwards = zip(*(reversed(stack) for stack in stacks), strict=False)
    same = takewhile(lambda frames: len(set(frames)) == 1, inwards)
    return tuple(reversed([frames[0] for frames in same]))
