"""Owns what is kept of a joint graph, which is cut into a forward and a backward."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch.fx

from profiler_ext.capture.nodes.births import Births, as_made
from profiler_ext.capture.nodes.bodies import Bodies, is_traced_again
from profiler_ext.capture.nodes.gradients import asks, find_gradients
from profiler_ext.capture.nodes.links import Link, find_links, is_forward
from profiler_ext.capture.nodes.mutations import Mutations
from profiler_ext.records import ForwardEvidence
from profiler_ext.torch_compat import fx, inputs, plausible
from profiler_ext.torch_compat.names import fx_names

Marks = frozenset[tuple[str, int | None]]
"""A graph's nodes by their names and numbers; names alone are those of many graphs."""

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
        sources: where nodes come from that say something else: those of gradients that are
            taken inside the traced function, and what a pass overwrote.
        bodies: nodes of the backward bodies of higher-order ops, by qualified names.
        random: the random calls, by operator and inputs; the partitioner wraps them anew.
        marks: what tells a half of it.
        outputs: the nodes that yield the outputs of Dynamo's graph, with their metadata.
        is_inference: no gradient was asked for, so it is the forward alone.
        traced_from: of a region that is compiled by itself, its nodes to those of the graph that
            it is a part of; ``None`` of any other graph.
        whole: the nodes of the joint graph that a region was cut from.
    """

    id: str
    names: frozenset[str]
    links: Mapping[str, Link]
    forward: Mapping[str, fx.Meta]
    replaced: Mapping[str, tuple[tuple[str, fx.Meta], ...]] = field(default_factory=dict)
    mutations: Mutations = field(default_factory=dict)
    sources: Mapping[str, fx.Meta] = field(default_factory=dict)
    bodies: Bodies = field(default_factory=dict)
    marks: Marks = frozenset()
    random: Mapping[Call, tuple[str, fx.Meta]] = field(default_factory=dict)
    outputs: Mapping[int, tuple[str, fx.Meta]] = field(default_factory=dict)
    is_inference: bool = False
    traced_from: Mapping[str, str] | None = None
    whole: frozenset[str] = frozenset()

    def joint_name(self, name: str) -> str | None:
        """Return the name that a node of this graph has in the joint graph."""
        if self.traced_from is None:
            return name
        found = self.traced_from.get(name)
        return found if found in self.whole else None

    def source_of(self, name: str | None) -> fx.Meta:
        """Return what a node's own metadata does not say, or says of something else."""
        # The number that a region's node was traced anew with is of no joint graph.
        unknown: fx.Meta = {} if self.traced_from is None else {fx_names.SEQ_NR.text: None}
        return self.sources.get(name or "", unknown)

    def holds(self, marks: Marks) -> bool:
        """Tell whether a graph is a part of this one, by numbers that torch did not wipe."""
        return marks < self.marks and all(number is not None for _, number in marks)

    def part(self, joint: JointGraph) -> JointGraph:
        """Return a part of this graph with what only the whole tells.

        The body of a region is cut in halves, and the passes for joint graphs run on each of them
        once more (``torch/_functorch/_aot_autograd/graph_compile.py``,
        ``run_joint_graph_passes_on_hops``).
        """
        links = {name: link for name, link in self.links.items() if name in joint.names}
        return replace(
            joint,
            id=self.id,
            links={**joint.links, **links},
            forward={**self.forward, **joint.forward},
            replaced={**self.replaced, **joint.replaced},
            mutations={**self.mutations, **joint.mutations},
            sources={**self.sources, **joint.sources},
            random={**self.random, **joint.random},
        )

    def shared(self, marks: Marks) -> int:
        """Tell how many nodes of a graph are its own; where torch wiped the numbers, by name."""
        if any(number is not None for _, number in marks):
            return len(self.marks & marks)
        return sum(name in self.names for name, _ in marks)


def describe_joint(
    gm: torch.fx.GraphModule,
    replaced: Mapping[str, tuple[tuple[str, fx.Meta], ...]],
    mutations: Mutations | None = None,
    births: Births | None = None,
    overwritten: Mapping[str, fx.Meta] | None = None,
) -> JointGraph:
    """Describe a joint graph after its passes and before it is cut.

    Args:
        gm: the graph.
        replaced: what the nodes that its passes made replaced.
        mutations: where its epilogue copies' values were made, looked up before the passes.
        births: how its nodes were made.
        overwritten: what nodes said of their origin before a pass overwrote it.
    """
    plausible.check_told(gm.graph)
    nodes = [node for node in gm.graph.nodes if node.op == "call_function"]
    was = overwritten or {}
    metas: dict[str, fx.Meta] = {n.name: {**n.meta, **was.get(n.name, {})} for n in nodes}
    metas = {name: filled_meta(meta, replaced.get(name, ())) for name, meta in metas.items()}
    gradients = find_gradients(as_made(births or {}, was))
    links = {} if is_traced_again(births or {}) else find_links(nodes, metas)
    return JointGraph(
        id=_digest(nodes),
        names=frozenset(node.name for node in nodes),
        links={**links, **_of_calls(nodes, links, gradients.made), **gradients.links},
        forward={name: meta for name, meta in metas.items() if is_forward(meta)},
        replaced=replaced,
        mutations=mutations or {},
        marks=marks_of(gm.graph),
        sources=_merged(was, gradients.sources),
        random={_call(n.target, n.args): (n.name, n.meta) for n in nodes if fx.is_random(n)},
        outputs={
            at: (node.name, metas[node.name])
            for at, node in inputs.outputs(gm.graph).items()
            if node.name in metas
        },
    )


def _of_calls(
    nodes: Iterable[torch.fx.Node], links: Mapping[str, Link], made: Mapping[str, str]
) -> dict[str, Link]:
    """Lead the backward calls of higher-order ops that a line alone tells: it may be a loop's.

    FlexAttention's call has no number of its forward's on torch 2.11.
    """
    told = {node.name for node in nodes if any(fx.nested(node))} & links.keys() & made.keys()
    by_line = (name for name in told if links[name].evidence is ForwardEvidence.STACK)
    return {name: Link(made[name], ForwardEvidence.AUTOGRAD_NODE) for name in by_line}


def marks_of(graph: torch.fx.Graph) -> Marks:
    """Return what tells which joint graph a graph was cut from."""
    nodes = (node for node in graph.nodes if node.op == "call_function")
    return frozenset((node.name, fx.integer(node.meta, fx_names.SEQ_NR)) for node in nodes)


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
    row = main_row(replaced)
    if row is None or (fx_names.SEQ_NR.text in meta and fx_names.STACK_TRACE.of(meta)):
        return meta
    return {**row[1], **{key: value for key, value in meta.items() if value is not None}}


def main_row(replaced: Iterable[tuple[str, fx.Meta]]) -> tuple[str, fx.Meta] | None:
    """Return the replaced node that a new node stands for: the last one with a source.

    A product that a pattern merged with a sum of gradients stands for the product, and so does
    an op of a gradient that it merged with what the same graph does with that gradient.
    """
    rows = [
        row for row in replaced if fx_names.STACK_TRACE.of(row[1]) or fx_names.SEQ_NR.text in row[1]
    ]
    work = [row for row in rows if not fx_names.IS_GRADIENT_ACC.of(row[1])]
    gradient = [row for row in work if asks(fx.source_fns(row[1]))]
    return next(reversed(gradient or work or rows), None)


def _merged(one: Mapping[str, fx.Meta], other: Mapping[str, fx.Meta]) -> dict[str, fx.Meta]:
    return {name: {**one.get(name, {}), **other.get(name, {})} for name in (*one, *other)}


def _digest(nodes: list[torch.fx.Node]) -> str:
    text = "\n".join(f"{node.name} {fx.target_name(node.target)}" for node in nodes)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
