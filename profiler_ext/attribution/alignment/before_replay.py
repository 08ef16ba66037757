"""Owns the work that torch adds to a call before it replays a CUDA graph.

It copies the inputs that change with each call to where the graph reads them, and sets the
seed and the offset of the random numbers that the graph draws. Which inputs a graph copies
was noted when it was recorded; what that note does not explain remains glue. A graph that was
recorded several times may copy others each time: how many copies a call runs may tell which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from profiler_ext.attribution.alignment.matching import Match
from profiler_ext.attribution.calls.patterns import WorkItem
from profiler_ext.records import FxNode, GapReason, GraphInstance, SiteEvidence

_COPY = "aten::_foreach_copy_"
_FILL = "aten::fill_"


@dataclass(frozen=True, slots=True)
class WorkBeforeReplay:
    """What an item of a call does for which nodes.

    Attributes:
        nodes: the inputs that it copies, or the nodes that draw.
        weights: one integer for each, its part of the work.
        evidence: the rule that led to them.
    """

    nodes: tuple[str, ...]
    weights: tuple[int, ...]
    evidence: SiteEvidence


def work_before_replay(
    items: Sequence[WorkItem], matches: Sequence[Match], graph: GraphInstance
) -> Mapping[int, WorkBeforeReplay]:
    """Return what the items that precede the replay do, by their place in the call.

    Args:
        items: what the call ran, in order.
        matches: where the alignment led each.
        graph: the graph that was called.
    """
    if not any(item.replayed for item in items):
        return {}
    glue = [match.gap is GapReason.WRAPPER_GLUE for match in matches]
    nodes = {node.name: node for node in graph.nodes}
    return {**_copies(items, glue, graph, nodes), **_seeds(items, glue, graph)}


def _copies(
    items: Sequence[WorkItem],
    glue: Sequence[bool],
    graph: GraphInstance,
    nodes: Mapping[str, FxNode],
) -> dict[int, WorkBeforeReplay]:
    """Lead the copies, one for each recorded graph that copies anything, to their inputs."""
    copies = [at for at, item in enumerate(items) if glue[at] and item.name == _COPY]
    # Work without its operator may be one more copy, so that their number tells nothing.
    is_open = any(g and u.on_device and not u.replayed for g, u in zip(glue, items, strict=True))
    noted = () if is_open and graph.copied_otherwise else _noted(graph, len(copies))
    pairs = zip(copies, noted, strict=True) if noted else ()
    return {at: _copy([nodes[n] for n in names]) for at, names in pairs if set(names) <= set(nodes)}


def _noted(graph: GraphInstance, copies: int) -> tuple[tuple[str, ...], ...]:
    """Return the inputs of each copy of a call; none where its recordings do not agree on them."""
    recorded = (graph.copied_inputs, *graph.copied_otherwise)
    copying = {tuple(filter(None, inputs)) for inputs in recorded}
    fitting = [noted for noted in copying if len(noted) == copies]
    return fitting[0] if len(fitting) == 1 else ()


def _copy(copied: Sequence[FxNode]) -> WorkBeforeReplay:
    sizes = [_elements(node) for node in copied]
    weights = tuple(size for size in sizes if size) if all(sizes) else (1,) * len(copied)
    return WorkBeforeReplay(tuple(node.name for node in copied), weights, SiteEvidence.RUNNER_COPY)


def _elements(node: FxNode) -> int:
    """Return the number of elements of an input; 0 where a dimension has no fixed size."""
    dimensions = [size for spec in node.outputs for size in spec.size]
    fixed = [size for size in dimensions if isinstance(size, int)]
    return math.prod(fixed) if len(fixed) == len(dimensions) else 0


def _seeds(
    items: Sequence[WorkItem], glue: Sequence[bool], graph: GraphInstance
) -> dict[int, WorkBeforeReplay]:
    """Lead the fills right before a replay to the nodes that draw random numbers in it.

    Of several recorded graphs nobody knows which one a node is in.
    """
    drawing = tuple(node.name for node in graph.nodes if node.is_random)
    if not drawing or (len(graph.copied_inputs) != 1 and len(drawing) > 1):
        return {}
    work = WorkBeforeReplay(drawing, (1,) * len(drawing), SiteEvidence.RUNNER_SEED)
    fills: dict[int, WorkBeforeReplay] = {}
    is_before_replay = False
    for at in reversed(range(len(items))):
        is_fill = glue[at] and items[at].name == _FILL
        is_before_replay = items[at].replayed or (is_before_replay and is_fill)
        if is_fill and is_before_replay:
            fills[at] = work
    return fills
