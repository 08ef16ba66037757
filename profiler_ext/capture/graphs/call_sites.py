"""The call sites of a graph while Inductor writes its wrapper, each with its exact nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch.fx

from profiler_ext.capture.graphs import kernel_cost
from profiler_ext.capture.lineage.nested_graphs import inner_prefix
from profiler_ext.isolation.hook_protocols import TryRun, unguarded
from profiler_ext.recall.wrapper_calls import generated_kind, spelled_op
from profiler_ext.records.provenance import CallSite, NestedIn
from profiler_ext.records.vocabulary import SiteKind
from profiler_ext.torch_compat import fusions, fx, inductor, ops, schedules, traffic

Node = TypeVar("Node")


# Inductor's ``origins`` are a superset. The exact nodes are ``origins`` cut by the backward slice
# from the node whose value the buffer holds, stopping at values read from buffers. Upstream:
# https://github.com/pytorch/pytorch/issues/95022 (origins of other kernels) and
# https://github.com/pytorch/pytorch/issues/189270 (a request for the ops of each kernel).
def exact_nodes(
    origins: Set[Node],
    written: Node | None,
    read: Set[Node],
    inputs: Callable[[Node], Iterable[Node]],
) -> set[Node]:
    """Return the nodes that one scheduler node computes; ``origins`` if ``written`` is unknown."""
    if written is None:
        return set(origins)
    # The second stage of a split reduction reads and writes the value of one node, which it is.
    if written in read:
        return {written} & set(origins)
    computed: set[Node] = set()
    todo = [written]
    while todo:
        node = todo.pop()
        if node in computed or node in read:
            continue
        computed.add(node)
        todo.extend(inputs(node))
    # For a buffer that is filled and then written into, Inductor lists the later writer only.
    return computed & set(origins) or {written}


def value_inputs(node: torch.fx.Node) -> tuple[torch.fx.Node, ...]:
    """Return the nodes that a node's value is computed from."""
    # An output of a foreach op (a ``getitem``) is computed from one element of each input list.
    if node.op != "call_function" or _is_foreach(node):
        return ()
    source = node.args[0] if fx.target_name(node.target) == "getitem" else None
    if isinstance(source, torch.fx.Node) and _is_foreach(source):
        return (source, *_part(source, node.args[1]))
    return tuple(node.all_input_nodes)


def _is_foreach(node: torch.fx.Node) -> bool:
    return fx.target_name(node.target).startswith("aten._foreach_")


def _part(foreach: torch.fx.Node, index: Any) -> tuple[torch.fx.Node, ...]:
    """The inputs of one output: its element of each list, and everything that is not a list."""
    given = (*foreach.args, *foreach.kwargs.values())
    picked = (a[index] if isinstance(a, list | tuple) else a for a in given)
    return tuple(value for value in picked if isinstance(value, torch.fx.Node))


_SHARES = "the shares of the nodes of a kernel in its time"
_FLOPS = "floating-point operations"
_WORK = "moved bytes, and floating-point operations"
_VALUES = "the values in the buffers of a kernel"
_INLINED = "the nodes of the graphs that a template has inlined"


@dataclass(frozen=True, slots=True)
class PendingSite:
    """A call site with its live FX nodes, until the graph is sealed."""

    kind: SiteKind
    kernel: str
    op: str | None  # an extern's, in the profiler's spelling
    nodes: tuple[torch.fx.Node, ...]
    reads: tuple[str, ...] = ()  # buffers
    writes: tuple[str, ...] = ()
    inlined: tuple[tuple[str, torch.fx.Node], ...] = ()  # by its template, by qualified name
    graph: torch.fx.Graph | None = None  # ``None`` if that does not matter
    moved_bytes: int | None = None  # loaded and stored, if its schedule says
    limits: tuple[int, ...] = ()  # how many elements of each node it computes at most, if known
    is_commented: bool = True  # the comment above the launch lists the ops of all its nodes
    stored: frozenset[torch.fx.Node] | None = None  # the nodes whose values it stores, if known
    # Of each buffer of ``writes`` the node of the site whose value it holds, if known
    values: tuple[torch.fx.Node | None, ...] = ()
    is_work_known: bool = True  # its bytes and operations
    operations: frozenset[str] = frozenset()  # of the scheduler

    def sealed(
        self,
        ordinal: int,
        path: str,
        prefix: str,
        within: tuple[NestedIn, ...] = (),
        try_run: TryRun = unguarded,
    ) -> CallSite:
        """Return the site as a record; ``prefix`` names its graph, ``""`` the outermost."""
        inlined, reported = tuple(node for _, node in self.inlined), self.moved_bytes
        counted = try_run(_FLOPS, kernel_cost.counted_operations, self.nodes)
        flops = None if counted is None else try_run(_FLOPS, self._flops, inlined, counted)
        moved = (
            try_run("moved bytes", kernel_cost.moved_bytes, self.nodes)
            if reported is None
            else reported
        )
        named = {node: name for name, node in self.qualified(prefix)}
        names = tuple(name for name, _ in self.qualified(prefix))
        weights = try_run(_SHARES, kernel_cost.weights, self.nodes, inlined, self.stored, counted)
        return CallSite(
            ordinal=ordinal,
            path=path,
            kind=self.kind,
            kernel=self.kernel,
            op=self.op,
            nodes=names,
            weights=(1,) * len(names) if weights is None else weights,
            reads=self.reads,
            writes=self.writes,
            bytes_moved=str(moved) if self.is_work_known and moved is not None else None,
            flops=str(flops) if self.is_work_known and flops is not None else None,
            within=within,
            values=tuple("" if node is None else named.get(node, "") for node in self.values),
        )

    def _flops(
        self, inlined: tuple[torch.fx.Node, ...], counted: Mapping[torch.fx.Node, int]
    ) -> int:
        own = kernel_cost.all_operations(self.nodes, self.limits, counted)
        return own + kernel_cost.all_operations(inlined)

    def qualified(self, prefix: str) -> tuple[tuple[str, torch.fx.Node], ...]:
        """Return its nodes with their qualified names."""
        outer = prefix.rpartition("/")[0].rpartition("/")[0]
        outer = outer + "/" if outer else ""
        graphs = (self.graph or node.graph for node in self.nodes)
        own = (
            ((prefix if node.graph is graph else outer) + node.name, node)
            for node, graph in zip(self.nodes, graphs, strict=True)
        )
        return (*own, *((prefix + name, node) for name, node in self.inlined))


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call of nested graphs (``invoke_subgraph``, ``cond``), replaced by their sites."""

    node: torch.fx.Node | None
    graphs: tuple[inductor.NestedGraph, ...]


def generated_site(node_schedule: Iterable[Any], kernel: str, try_run: TryRun) -> PendingSite:
    """Describe the launch of a generated kernel."""
    scheduled = list(schedules.scheduled_nodes(node_schedule))
    computed: Counter[torch.fx.Node] = Counter()
    is_commented = schedules.is_commented(node_schedule)
    for one in scheduled:
        inputs = value_inputs if one.copied is None else partial(_copy_of, one)
        exact = exact_nodes(one.origins, one.written, one.read, inputs)
        computed.update(dict.fromkeys(exact, one.iterations))
        computed.update(dict.fromkeys(one.requested_by, one.iterations))
        is_commented = is_commented and exact <= one.origins and not one.requested_by
    graph = inductor.current_fx_graph()
    nodes = {node for node in computed if node.graph is graph} or set(computed)
    kind, ordered = generated_kind(kernel), _in_graph_order(nodes)
    written = tuple(sorted({name for one in scheduled for name in one.writes}))
    held = try_run(_VALUES, _values, scheduled, ordered)
    read = {name for one in scheduled for name in one.reads}.difference(written)
    is_template = kind is SiteKind.TRITON_TEMPLATE
    inlined = (try_run(_INLINED, _inlined, ordered) if is_template else None) or ()
    work = try_run(_WORK, _work, scheduled)
    (moved,) = work or (None,)
    is_open = moved is None or is_template
    return PendingSite(
        kind,
        kernel,
        None,
        ordered,
        tuple(sorted(read)),
        written,
        inlined,
        graph,
        moved,
        # A template's body runs once for each of its outputs, and loops over what it sums.
        () if is_open else tuple(computed[node] for node in ordered),
        is_commented,
        try_run(_SHARES, _stored, scheduled, ordered, kind),
        values=() if held is None else tuple(held[name] for name in written),
        is_work_known=work is not None,
        operations=frozenset(name for one in scheduled for name in one.operations),
    )


def _work(scheduled: Iterable[schedules.ScheduledNode]) -> tuple[int | None]:
    return (traffic.moved_bytes(one.traffic for one in scheduled),)


def _stored(
    scheduled: list[schedules.ScheduledNode], nodes: tuple[torch.fx.Node, ...], kind: SiteKind
) -> frozenset[torch.fx.Node] | None:
    """The nodes whose values leave the kernel, according to its schedule."""
    reported = traffic.storing(one.traffic for one in scheduled)
    if reported is None:
        return None
    held = {one: _computed(one.written, nodes) for one in scheduled}
    stored = {held[one] for one, leaves in zip(scheduled, reported, strict=True) if leaves}
    if kind is SiteKind.CPP:
        # Loops of one C++ kernel may pass a buffer through memory.
        stored |= set(held.values()) & kernel_cost.read_outside(set(nodes))
    # A buffer of unknown value, or of a node outside the kernel, makes the result unknown.
    known = frozenset(node for node in stored if node is not None)
    return known if known == stored else None


def _computed(
    value: torch.fx.Node | None, nodes: tuple[torch.fx.Node, ...]
) -> torch.fx.Node | None:
    """The kernel's node that a value is, or is a view of."""
    while value is not None and value not in nodes:
        value = value.all_input_nodes[0] if kernel_cost.is_view(value) else None
    return value


def _values(
    scheduled: Iterable[schedules.ScheduledNode], nodes: tuple[torch.fx.Node, ...]
) -> dict[str, torch.fx.Node | None]:
    """The kernel's node whose value each buffer holds, or that asked for the copy in it."""
    return {
        name: _computed(value, nodes) or _only(one.requested_by)
        for one in scheduled
        for name, value in one.values()
    }


def _only(nodes: frozenset[torch.fx.Node]) -> torch.fx.Node | None:
    """The op that a graph input is copied for, if it is one alone."""
    return next(iter(nodes)) if len(nodes) == 1 else None


def _copy_of(one: schedules.ScheduledNode, node: torch.fx.Node) -> Iterable[torch.fx.Node]:
    """The inputs of a node; in a buffer that holds one input of an op, that input."""
    if node is one.written and one.copied is not None:
        return (one.copied,)
    return value_inputs(node)


def extern_site(kernel: Any, name: str) -> PendingSite:
    """Describe a library call, or the launch of a user-written Triton kernel."""
    origin = inductor.extern_origin(kernel)
    nodes = {origin} if origin is not None else _outputs_of(inductor.extern_origins(kernel))
    user_triton = inductor.is_user_triton(kernel)
    ordered = _in_graph_order({drawn for node in nodes for drawn in ops.drawn_for(node)})
    last = next(iter(ordered[-1:]), None)
    computed = origin if origin in ordered else last if len(ordered) == 1 else None
    writes = inductor.extern_writes(kernel)
    op = None if user_triton else inductor.extern_op(kernel, last) or spelled_op(name)
    return PendingSite(
        kind=SiteKind.USER_TRITON if user_triton else SiteKind.EXTERN,
        kernel=name,
        op=op,
        nodes=ordered,
        reads=inductor.extern_reads(kernel),
        writes=writes,
        graph=inductor.current_fx_graph(),
        values=(computed,) * len(writes),
        operations=frozenset(fusions.extern_operations(kernel)),
    )


def nested_call(kernel: Any) -> PendingCall | None:
    """Describe the call of nested graphs; ``None`` for any other extern kernel."""
    graphs = inductor.nested_graphs(kernel)
    if not graphs:
        return None
    origin = inductor.extern_origin(kernel)
    nodes = {origin} if origin is not None else _outputs_of(inductor.extern_origins(kernel))
    return PendingCall(next(iter(_in_graph_order(nodes)[-1:]), None), graphs)


def predicate_site(node: torch.fx.Node) -> PendingSite:
    """Describe the read of the predicate that chooses between nested graphs."""
    return PendingSite(SiteKind.EXTERN, "aten::item", "aten::item", (node,))


def partial_sum_site(node: torch.fx.Node, buffer: str, operation: str) -> PendingSite:
    """Describe the eager reduction that finishes a mix-order reduction's partial values."""
    op = f"aten::{operation}"
    return PendingSite(SiteKind.EXTERN, op, op, (node,), writes=(buffer,), values=(node,))


def _inlined(nodes: tuple[torch.fx.Node, ...]) -> tuple[tuple[str, torch.fx.Node], ...]:
    """The nodes of the graphs in a template's node: a ``score_mod``, a mask."""
    return tuple(
        (inner_prefix(outer.name, name, len(graphs)) + inner.name, inner)
        for outer in nodes
        for graphs in [list(fx.nested(outer))]
        for name, module in graphs
        for inner in fx.call_nodes(module.graph)
    )


def _outputs_of(origins: frozenset[torch.fx.Node]) -> set[torch.fx.Node]:
    """The nodes whose value leaves the set."""
    graph = inductor.current_fx_graph()
    called = {node for node in origins if node.op == "call_function"}
    called = {node for node in called if node.graph is graph} or called
    return {node for node in called if not set(node.users) & called}


def _in_graph_order(nodes: set[torch.fx.Node]) -> tuple[torch.fx.Node, ...]:
    return tuple(sorted((n for n in nodes if n.op == "call_function"), key=fx.position))
