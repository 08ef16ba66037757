"""Owns what is kept of a joint graph, which is cut into a forward and a backward."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch.fx

from profiler_ext.capture.links import Link, find_links, is_forward
from profiler_ext.capture.mutations import Mutations
from profiler_ext.torch_compat import fx

Call = tuple[str, tuple[str, ...]]
"""An operator, and the names of the tensors it is called with."""


@dataclass(frozen=True, slots=True)
class JointGraph:
    """What is kept of a joint graph until its halves are compiled.

    Attributes:
        id: digest of its nodes; the halves carry it.
        names: its nodes.
        links: backward node to forward node.
        forward: the forward nodes' metadata, for what a later pass lost.
        replaced: nodes that a pattern made, with the metadata of what they replaced.
        mutations: epilogue copies, with where the mutation was made.
        random: the random calls, by operator and inputs; the partitioner wraps them anew.
    """

    id: str
    names: frozenset[str]
    links: Mapping[str, Link]
    forward: Mapping[str, fx.Meta]
    replaced: Mapping[str, tuple[tuple[str, fx.Meta], ...]] = field(default_factory=dict)
    mutations: Mutations = field(default_factory=dict)
    random: Mapping[Call, tuple[str, fx.Meta]] = field(default_factory=dict)


def describe_joint(
    gm: torch.fx.GraphModule,
    replaced: Mapping[str, tuple[tuple[str, fx.Meta], ...]],
    mutations: Mutations | None = None,
) -> JointGraph:
    """Describe a joint graph after its passes and before it is cut.

    Args:
        gm: the graph.
        replaced: what the nodes that its passes made replaced.
        mutations: where its epilogue copies' values were made, looked up before the passes.
    """
    nodes = [node for node in gm.graph.nodes if node.op == "call_function"]
    metas = {n.name: filled_meta(n.meta, replaced.get(n.name, ())) for n in nodes}
    return JointGraph(
        id=_digest(nodes),
        names=frozenset(node.name for node in nodes),
        links=find_links(nodes, metas),
        forward={name: meta for name, meta in metas.items() if is_forward(meta)},
        replaced=replaced,
        mutations=mutations or {},
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


def _digest(nodes: list[torch.fx.Node]) -> str:
    text = "\n".join(f"{node.name} {fx.target_name(node.target)}" for node in nodes)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
