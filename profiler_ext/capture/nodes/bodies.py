"""Owns the backward bodies of higher-order ops: their nodes lead to the forward body's lines.

The backward of a branch (``torch.cond``) is traced while autograd runs, with the branch's forward
work in it once more; that graph is then traced again to become the body, and torch gives all of
it the line of the call. The first trace has the autograd nodes, and the forward's own body has
the lines; bodies that are not the same op by op are left as torch has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch.fx

from profiler_ext.capture.nodes.births import Births
from profiler_ext.capture.nodes.gradients import forward_source, made_by
from profiler_ext.capture.nodes.links import HAND_ON, Link
from profiler_ext.records import ForwardEvidence
from profiler_ext.torch_compat import fx


@dataclass(frozen=True, slots=True)
class Led:
    """Where a node of a backward body comes from, and the forward node it differentiates."""

    meta: fx.Meta
    link: Link | None


Bodies = Mapping[str, Led]
Graph = tuple[str, torch.fx.GraphModule]
"""A nested graph, and the attribute of its caller that names it."""


def inner_prefix(outer: str, attribute: str, graphs: int) -> str:
    """Return what names a nested graph: its caller, and which one where there are several."""
    return f"{outer}/{attribute}/" if graphs > 1 else f"{outer}/"


def is_traced_again(births: Births) -> bool:
    """Tell whether a whole graph was made while one autograd node ran: its numbers are that one's.

    No number was given between its nodes, so none of them was differentiated there.
    """
    running = {birth.running for birth in births.values()}
    return len(running) == 1 and None not in running and not _numbers_given(births)


def _numbers_given(births: Births) -> bool:
    ordered = list(births.values())
    return any(birth.until > birth.since for birth in ordered[1:])


def find_bodies(
    gm: torch.fx.GraphModule,
    links: Mapping[str, Link],
    births_of: Callable[[torch.fx.Graph], Births],
    traced: Iterable[Births],
) -> Bodies:
    """Lead the nodes of a joint graph's backward bodies, by qualified names.

    Args:
        gm: the joint graph.
        links: its backward nodes, calls of higher-order ops included, to their forward nodes.
        births_of: how the nodes of a nested graph were made.
        traced: how those of the graphs were made that were traced lately.
    """
    calls = {node.name: tuple(fx.nested(node)) for node in gm.graph.nodes}
    found: dict[str, Led] = {}
    for name, graphs in calls.items():
        forward = links[name].forward_node if name in links else ""
        if not graphs or len(graphs) != len(calls.get(forward, ())):
            found.update(_run_again(forward, calls.get(forward, ()), name, graphs))
            continue
        for (inner, theirs), (attribute, ours) in zip(calls[forward], graphs, strict=True):
            there = inner_prefix(forward, inner, len(graphs))
            here = inner_prefix(name, attribute, len(graphs))
            led = _lead(births_of(theirs.graph), births_of(ours.graph), traced, there)
            found.update((here + node, where) for node, where in led)
    return found


def _run_again(
    forward: str, theirs: Sequence[Graph], backward: str, ours: Sequence[Graph]
) -> Iterator[tuple[str, Led]]:
    """Lead bodies that a backward runs once more: FlexAttention makes its scores again."""
    for attribute, body in ours:
        same = [(inner, graph) for inner, graph in theirs if _targets(graph) == _targets(body)]
        for inner, graph in same if len(same) == 1 else ():
            here = inner_prefix(backward, attribute, len(ours))
            there = inner_prefix(forward, inner, len(theirs))
            for own, original in zip(_calls(body), _calls(graph), strict=True):
                link = Link(there + original.name, ForwardEvidence.RECOMPUTED)
                yield here + own.name, Led(own.meta, link)


def _targets(graph: torch.fx.GraphModule) -> list[object]:
    return [node.target for node in _calls(graph)]


def _calls(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "call_function"]


def _lead(
    forward: Births, body: Births, traced: Iterable[Births], prefix: str
) -> Iterator[tuple[str, Led]]:
    first = _first_trace(body, traced) if is_traced_again(body) else None
    if first is None:
        return
    made = made_by(first)
    around = next(iter(first.values())).running
    again = list(takewhile(lambda name: first[name].running == around, _ops(first)))
    originals = _ops(forward)
    if [first[n].target for n in again] != [forward[n].target for n in originals]:
        return
    original = dict(zip(again, originals, strict=True))
    for node, same in original.items():
        yield node, Led(forward[same].meta, Link(prefix + same, ForwardEvidence.RECOMPUTED))
    for node, differentiated in made.items():
        if node not in original and (there := original.get(differentiated)) is not None:
            link = Link(prefix + there, ForwardEvidence.AUTOGRAD_NODE_OF_BODY)
            yield node, Led(forward_source(forward[there].meta), link)


def _first_trace(body: Births, traced: Iterable[Births]) -> Births | None:
    """Return the trace in which autograd made a body, of the same ops with the same inputs."""
    same = (t for t in traced if t.keys() == body.keys() and _shape(t) == _shape(body))
    found = [births for births in same if len({birth.running for birth in births.values()}) > 1]
    made = [made_by(births) for births in found]
    return found[0] if found and all(links == made[0] for links in made) else None


def _shape(births: Births) -> list[tuple[str, tuple[str, ...]]]:
    return [(birth.target, birth.inputs) for birth in births.values()]


def _ops(births: Births) -> list[str]:
    """The nodes that do more than hand a value on."""
    return [name for name, birth in births.items() if birth.target not in HAND_ON]
