"""Typed access to a kernel's schedule: which FX nodes its leaves compute and read."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from profiler_ext.torch_compat import fusions, fx, inductor
from profiler_ext.torch_compat.names import fx_names, kernel_names
from profiler_ext.torch_compat.traffic import Traffic, dep_name, traffic


def copied_input(graph: Any, buffer: Any, op: torch.fx.Node | None) -> torch.fx.Node | None:
    """Return the input of an op that a buffer is a copy of, if it is one.

    Source: ``torch/_inductor/ir.py``: ``ConcatKernel.create`` writes each input into its place, and
    ``ExternKernel.copy_input`` gives a library's input the strides that it needs.
    """
    if op is None or not _is_plain_copy(buffer):
        return None
    given, own = list(_tensors((op.args, op.kwargs))), kernel_names.GET_NAME.of(buffer)()
    for kernel in _kernels(graph, op):
        names = [_buffer_name(value) for value in _flat(kernel_names.KERNEL_INPUTS.of(kernel))]
        if own in names and len(names) == len(given):
            return given[names.index(own)]
    return None


def _is_plain_copy(buffer: Any) -> bool:
    if not kernel_names.COMPUTED_BUFFER.is_type_of(buffer):
        return False
    if kernel_names.GET_ORIGIN_NODE.of(buffer)() is not None:
        return False
    return kernel_names.POINTWISE.is_type_of(kernel_names.BUFFER_DATA.of(buffer))


def _kernels(graph: Any, op: torch.fx.Node) -> Iterator[Any]:
    """The kernels of an op that Inductor generates no code for."""
    for kernel in kernel_names.OPERATIONS.of(graph):
        if _is_inputs_kernel(kernel.__class__) and op in kernel_names.GET_ORIGINS.of(kernel)():
            exact = kernel_names.GET_ORIGIN_NODE.of(kernel)()
            if exact is op or exact is None:
                yield kernel


@functools.lru_cache(maxsize=256)
def _is_inputs_kernel(kind: type) -> bool:
    """Tell whether Inductor generates no code for a class of kernels; cached."""
    return issubclass(kind, kernel_names.INPUTS_KERNEL.get())


def _buffer_name(value: Any) -> str | None:
    get_name = kernel_names.GET_NAME.maybe(value)
    return None if get_name is None else str(get_name())


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _tensors(value: Any) -> Iterator[torch.fx.Node]:
    """The tensors passed to a call, in Inductor's flattened order."""
    if isinstance(value, dict):
        value = tuple(value.values())
    for item in _flat(value):
        if isinstance(item, dict):
            yield from _tensors(item)
        elif isinstance(item, torch.fx.Node) and isinstance(
            fx_names.VAL.of(item.meta), torch.Tensor
        ):
            yield item


@dataclass(frozen=True, slots=True)
class ScheduledNode:
    """One scheduler node, in FX nodes."""

    operations: tuple[str, ...]  # its name
    origins: frozenset[torch.fx.Node]  # as Inductor lists them, a superset of what it computes
    written: torch.fx.Node | None  # whose value its buffer holds, if known
    read: frozenset[torch.fx.Node]  # from buffers
    partial: bool  # its value is partial (first stage of a split reduction)
    reads: tuple[str, ...]  # buffers
    writes: tuple[str, ...]
    buffer: str  # its own; a template may write others, too
    traffic: Traffic | None
    copied: torch.fx.Node | None = None  # the input of ``written`` that it is a copy of
    requested_by: frozenset[torch.fx.Node] = frozenset()
    """For a copy of a graph input, the ops that read it: one of them needs another layout."""

    def values(self) -> Iterator[tuple[str, torch.fx.Node | None]]:
        """Yield each buffer that it writes, with the FX node whose value is in it, if known."""
        graph = inductor.current_graph() if len(self.writes) > 1 else None
        for name in self.writes:
            is_own = graph is None or name == self.buffer
            yield name, self.written if is_own else buffer_value(graph, name)

    @property
    def iterations(self) -> int:
        """The most often that its body runs; 0 if unknown."""
        return 0 if self.traffic is None else self.traffic.iterations


def buffer_value(graph: Any, name: str) -> torch.fx.Node | None:
    """Return the FX node whose value a named buffer of a graph holds."""
    return _value(graph, _buffer(graph, name))[0]


def scheduled_nodes(node_schedule: Iterable[Any]) -> Iterator[ScheduledNode]:
    """Yield the leaves of a kernel's schedule, without reduction markers.

    Source: ``torch/_inductor/scheduler.py``: ``BaseSchedulerNode.get_nodes`` opens fused, foreach,
    combo and grouped nodes.
    """
    seen: set[int] = set()
    for entry in node_schedule:
        get_nodes = kernel_names.GET_NODES.maybe(entry)
        for leaf in () if get_nodes is None else get_nodes():
            if kernel_names.IR_NODE.of(leaf) is not None and id(leaf) not in seen:
                seen.add(id(leaf))
                yield _describe(leaf)


def template_nodes(node_schedule: Iterable[Any]) -> tuple[torch.fx.Node, ...]:
    """Return the FX nodes that the templates of a kernel's schedule compute."""
    leaves = (
        leaf
        for entry in node_schedule
        if (get_nodes := kernel_names.GET_NODES.maybe(entry)) is not None
        for leaf in get_nodes()
    )
    computed = (
        _template_node(kernel_names.IR_NODE.of(leaf))
        for leaf in leaves
        if kernel_names.IS_TEMPLATE.of(leaf)()
    )
    return tuple(dict.fromkeys(node for node in computed if node is not None))


def is_commented(node_schedule: Iterable[Any]) -> bool:
    """Tell whether the comment above a kernel's launch lists all of its schedule.

    Source: ``torch/_inductor/utils.py``, ``aggregate_origins`` does not open the fused nodes of
    foreach and combo kernels.
    """
    entries = [each for each in node_schedule if kernel_names.SCHEDULER_NODE.is_type_of(each)]
    return all(kernel_names.IR_NODE.of(entry) is not None for entry in entries)


def _describe(leaf: Any) -> ScheduledNode:
    graph, buffer = inductor.current_graph(), kernel_names.IR_NODE.of(leaf)
    touched = kernel_names.READ_WRITES.of(leaf)
    is_weak = kernel_names.WEAK_DEP.is_type_of
    reads = {dep_name(dep) for dep in kernel_names.READS.of(touched) if not is_weak(dep)}
    written, partial = _value(graph, buffer)
    read = {_value(graph, _buffer(graph, name))[0] for name in reads}
    owner: torch.fx.Node | None = kernel_names.GET_ORIGIN_NODE.of(buffer)()
    if kernel_names.IS_TEMPLATE.of(leaf)():
        written = _template_node(buffer)
        read = set(written.all_input_nodes) if written is not None else set()
    elif owner is not None and owner is not written and written in read:
        # A plain copy that ``owner`` writes into counts as ``owner``.
        written, read = owner, read | set(owner.all_input_nodes)
    return ScheduledNode(
        operations=fusions.operations_of(str(kernel_names.LEAF_NAME.of(leaf)())),
        origins=frozenset(kernel_names.ORIGINS.of(buffer)),
        written=written,
        read=frozenset(node for node in read if node is not None),
        partial=partial,
        reads=tuple(sorted(reads)),
        writes=tuple(sorted(map(dep_name, kernel_names.WRITES.of(touched)))),
        buffer=str(kernel_names.GET_NAME.of(buffer)()),
        traffic=traffic(leaf),
        copied=copied_input(graph, buffer, written),
        requested_by=_readers(graph, leaf) if _copies_input(buffer, written) else frozenset(),
    )


def _copies_input(buffer: Any, written: torch.fx.Node | None) -> bool:
    """Tell whether a buffer is a graph input in another layout.

    Source: ``torch/_inductor/ir.py``, ``ExternKernel.require_strides`` and ``copy_input``.
    """
    origins: Iterable[torch.fx.Node] = kernel_names.ORIGINS.of(buffer)
    called = any(node.op == "call_function" for node in origins)
    return not called and (written is None or written.op != "call_function")


def _readers(graph: Any, leaf: Any) -> frozenset[torch.fx.Node]:
    """Return the ops that read what a leaf writes, also through another such copy."""
    readers: set[torch.fx.Node] = set()
    for output in kernel_names.SCHEDULER_OUTPUTS.of(leaf)():
        for user in kernel_names.BUFFER_USERS.of(output):
            reader = kernel_names.USER_NODE.of(user)
            read = kernel_names.IR_NODE.maybe(reader)
            value = None if read is None else _value(graph, read)[0]
            if value is not None and value.op == "call_function":
                readers.add(value)
            elif read is not None:
                readers |= _readers(graph, reader)
    return frozenset(readers)


def _template_node(buffer: Any) -> torch.fx.Node | None:
    """The node that a template computes."""
    origins: Iterable[torch.fx.Node] = kernel_names.ORIGINS.of(buffer)
    # With several outputs its origin node is a ``getitem``, which is not among the origins.
    own = {node for node in origins if node.op == "call_function"}
    exact = kernel_names.GET_ORIGIN_NODE.of(buffer)()
    yields = (node for node in own if not set(node.users) & own)
    return exact if exact in own else max(yields, key=fx.position, default=None)


def _buffer(graph: Any, name: str) -> Any:
    buffer = kernel_names.NAME_TO_BUFFER.of(graph).get(name)
    return kernel_names.GRAPH_INPUTS.of(graph).get(name) if buffer is None else buffer


def _value(graph: Any, buffer: Any) -> tuple[torch.fx.Node | None, bool]:
    """The FX node whose value a buffer holds, and whether the value is partial."""
    if buffer is None:
        return None, False
    get_origin_node = kernel_names.GET_ORIGIN_NODE.maybe(buffer)
    exact = None if get_origin_node is None else get_origin_node()
    if exact is not None:
        own = kernel_names.GET_NAME.of(buffer)()
        names = [name for name, made in _real_names(graph).items() if made == own]
        writers = {_last_origin(_buffer(graph, name)) for name in names}
        # Torch names the last node that writes into a buffer (a scatter) as its origin; its first
        # argument is what it writes into.
        node: Any = exact
        while node in writers:
            node = node.args[0] if node.args else None
        before_writers = node if isinstance(node, torch.fx.Node) else None
        return before_writers, False
    last = _last_origin(buffer)
    return _own_output(graph, buffer, last), last is not None


def _own_output(graph: Any, buffer: Any, writer: torch.fx.Node | None) -> torch.fx.Node | None:
    """The output that a buffer holds, for a foreach op that writes into its whole first list."""
    # Torch names the op as the origin of each; the outputs are its ``getitem`` nodes.
    mutated_name = _real_names(graph).get(kernel_names.GET_NAME.of(buffer)())
    if writer is None or mutated_name is None or not _is_foreach_in_place(writer):
        return writer
    base = _value(graph, _buffer(graph, mutated_name))[0]
    outputs = (n for n in writer.users if fx.target_name(n.target) == "getitem")
    of_base = (n for n in outputs if _base(writer.args[0], n.args[1]) is base)
    return next(of_base, writer)


def _base(written: Any, index: Any) -> torch.fx.Node:
    """The value of an element's memory before any foreach op wrote into it."""
    node: torch.fx.Node = written[index]
    source = node.all_input_nodes[0] if fx.target_name(node.target) == "getitem" else None
    if source is None or not _is_foreach_in_place(source):
        return node
    return _base(source.args[0], node.args[1])


def _is_foreach_in_place(node: torch.fx.Node) -> bool:
    name = fx.target_name(node.target)
    return name.startswith("aten._foreach_") and name.split(".")[1].endswith("_")


def _last_origin(buffer: Any) -> torch.fx.Node | None:
    own = set(kernel_names.ORIGINS.maybe(buffer) or ())
    if not inductor.is_extern(buffer):  # a generated kernel computes only a collective's input
        own = {node for node in own if not fx.target_name(node.target).startswith(fx.COLLECTIVES)}
    # In the body of a branch, the outer graph's nodes for the call do not count.
    own = {node for node in own if node.graph is inductor.current_fx_graph()} or own
    last = [node for node in own if not set(node.users) & own]
    return max(last, key=fx.position, default=None)


def _real_names(graph: Any) -> dict[str, str]:
    """For each buffer written in place, the buffer whose memory it uses."""
    scheduler = kernel_names.SCHEDULER.of(graph)
    names: dict[str, str] = {}
    return names if scheduler is None else kernel_names.MUTATION_REAL_NAME.of(scheduler)
