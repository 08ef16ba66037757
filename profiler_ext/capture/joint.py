"""Owns the joint graph: which forward node each backward node differentiates.

``seq_nr`` links within one joint graph, never across, and it is not a key: nodes that
have no gradient share the number of their neighbour. Where several forward nodes carry a
number, the source function, the modules and the stack tell them apart.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch.fx

from profiler_ext.torch_compat import fx

_FORWARD = ("is_forward", "must_be_in_forward")


Call = tuple[str, tuple[str, ...]]
"""An operator, and the names of the tensors it is called with."""


@dataclass(frozen=True, slots=True)
class Link:
    """A forward node, and the rule that found it."""

    forward_node: str
    evidence: str


@dataclass(frozen=True, slots=True)
class JointGraph:
    """What is kept of a joint graph until its halves are compiled.

    Attributes:
        id: digest of its nodes; the halves carry it.
        names: its nodes.
        links: backward node to forward node.
        forward: the forward nodes' metadata, for what a later pass lost.
        replaced: nodes that a pattern made, with the metadata of what they replaced.
        random: the random calls, by operator and inputs; the partitioner wraps them anew.
    """

    id: str
    names: frozenset[str]
    links: Mapping[str, Link]
    forward: Mapping[str, fx.Meta]
    replaced: Mapping[str, tuple[tuple[str, fx.Meta], ...]] = field(default_factory=dict)
    random: Mapping[Call, tuple[str, fx.Meta]] = field(default_factory=dict)


def describe_joint(
    gm: torch.fx.GraphModule, replaced: Mapping[str, tuple[tuple[str, fx.Meta], ...]]
) -> JointGraph:
    """Describe a joint graph after its passes and before it is cut."""
    nodes = [node for node in gm.graph.nodes if node.op == "call_function"]
    forward = {n.name: _meta(n, replaced) for n in nodes if _is_forward(_meta(n, replaced))}
    return JointGraph(
        id=_digest(nodes),
        names=frozenset(node.name for node in nodes),
        links=_links(nodes, forward, replaced),
        forward=forward,
        replaced=replaced,
        random={_call(n.target, n.args): (n.name, n.meta) for n in nodes if fx.is_random(n)},
    )


def wrapped_call(node: torch.fx.Node) -> Call | None:
    """Return the call that a higher-order op carries, ``None`` for any other node.

    To replay random numbers the partitioner puts an op into ``graphsafe_run_with_rng_state``
    and copies no metadata (``torch/_functorch/partitioners.py``, ``functionalize_rng_ops``).
    """
    carried = fx.carried_op(node)
    if carried is None:
        return None
    return _call(carried, node.args[node.args.index(carried) + 1 :])


def _call(target: object, args: Iterable[object]) -> Call:
    named = tuple(value.name for value in args if isinstance(value, torch.fx.Node))
    return fx.target_name(target), named


def filled_meta(meta: fx.Meta, replaced: Iterable[tuple[str, fx.Meta]]) -> fx.Meta:
    """Return a node's metadata, what a pattern lost taken from the node it mainly replaced.

    The last replaced node with a stack stands for all: it is the one whose value the new
    node yields.
    """
    rows = [row for _, row in replaced if row.get("stack_trace") or "seq_nr" in row]
    if not rows or ("seq_nr" in meta and meta.get("stack_trace")):
        return meta
    return {**rows[-1], **{key: value for key, value in meta.items() if value is not None}}


def _meta(node: torch.fx.Node, replaced: Mapping[str, tuple[tuple[str, fx.Meta], ...]]) -> fx.Meta:
    return filled_meta(node.meta, replaced.get(node.name, ()))


def _is_forward(meta: fx.Meta) -> bool:
    return meta.get("partitioner_tag") in _FORWARD


def _links(
    nodes: list[torch.fx.Node],
    forward: Mapping[str, fx.Meta],
    replaced: Mapping[str, tuple[tuple[str, fx.Meta], ...]],
) -> dict[str, Link]:
    by_number: dict[int, list[str]] = defaultdict(list)
    for name, meta in forward.items():
        if (number := fx.integer(meta, "seq_nr")) is not None:
            by_number[number].append(name)
    found = {}
    for node in nodes:
        meta = _meta(node, replaced)
        if node.name not in forward and _number_holds(node, meta):
            number = fx.integer(meta, "seq_nr")
            candidates = [] if number is None else by_number.get(number, [])
            if (link := _choose(meta, candidates, forward)) is not None:
                found[node.name] = link
    return found


def _number_holds(node: torch.fx.Node, meta: fx.Meta) -> bool:
    """A gradient sum's number and an epilogue copy's mean nothing."""
    is_copy = fx.target_name(node.target).startswith("aten.copy_")
    return (
        not meta.get("is_gradient_acc") and not is_copy and meta.get("partitioner_tag") is not None
    )


def _choose(meta: fx.Meta, candidates: list[str], forward: Mapping[str, fx.Meta]) -> Link | None:
    if len(candidates) <= 1:
        return Link(candidates[0], "seq_nr") if candidates else None
    told_apart = candidates
    for same in (_same_source, _same_modules, _same_stack):
        kept = [name for name in told_apart if same(meta, forward[name])]
        told_apart = kept or told_apart
    # One op decomposes into several nodes with its number; the last one yields its value.
    evidence = "seq_nr_and_source" if len(told_apart) == 1 else "seq_nr_of_decomposed_op"
    return Link(told_apart[-1], evidence)


def _same_source(backward: fx.Meta, forward: fx.Meta) -> bool:
    return fx.source_fns(backward) == fx.source_fns(forward)


def _same_modules(backward: fx.Meta, forward: fx.Meta) -> bool:
    return fx.module_stack(backward) == fx.module_stack(forward)


def _same_stack(backward: fx.Meta, forward: fx.Meta) -> bool:
    return backward.get("stack_trace") == forward.get("stack_trace")


def _digest(nodes: list[torch.fx.Node]) -> str:
    text = "\n".join(f"{node.name} {fx.target_name(node.target)}" for node in nodes)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
