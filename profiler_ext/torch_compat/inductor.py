"""Owns typed access to Inductor's objects while it generates code, and to its artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from profiler_ext.torch_compat.fx import position

RIDING = "_profiler_ext_v1"


@dataclass(frozen=True, slots=True)
class ScheduledNode:
    """What one scheduler node says of itself.

    Attributes:
        origins: FX nodes that Inductor lists for it: a superset of what it computes.
        written: the node whose value its buffer holds, if it can be told.
        read: the nodes whose values it reads from buffers.
        partial: the buffer holds a partial value (first stage of a split reduction).
        reads: names of the buffers read.
        writes: names of the buffers written.
    """

    origins: frozenset[torch.fx.Node]
    written: torch.fx.Node | None
    read: frozenset[torch.fx.Node]
    partial: bool
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def current_graph() -> Any:
    """Return the ``GraphLowering`` that code is being generated for (the innermost one)."""
    from torch._inductor.virtualized import V

    return V.graph


@dataclass(frozen=True, slots=True)
class NestedGraph:
    """A graph that an extern kernel calls: a branch of ``cond``, a nested compile region.

    Attributes:
        name: its attribute in the graph module around it.
        graph: its ``GraphLowering``.
        function: name of its function in the generated wrapper.
    """

    name: str
    graph: Any
    function: str


def nested_graphs(kernel: Any) -> tuple[NestedGraph, ...]:
    """Return the graphs that an extern kernel calls, in the order of its attributes.

    Source: ``torch/_inductor/ir.py``: ``InvokeSubgraph``, ``Conditional`` (``Switch`` from
    2.14), ``WhileLoop`` hold ``Subgraph`` objects.
    """
    from torch._inductor.ir import Subgraph

    values = [v for value in vars(kernel).values() for v in _items(value)]
    found = [value for value in values if isinstance(value, Subgraph)]
    return tuple(
        NestedGraph(str(s.name), graph, str(graph.name))
        for s in found
        if (graph := s.graph) is not None
    )


def current_fx_graph() -> torch.fx.Graph:
    """Return the FX graph that code is being generated for (the innermost one)."""
    graph: torch.fx.Graph = current_graph().graph
    return graph


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def scheduled_nodes(node_schedule: Iterable[Any]) -> Iterator[ScheduledNode]:
    """Open a kernel's schedule up to its leaves; reduction markers are passed over.

    Source: ``torch/_inductor/scheduler.py``: ``BaseSchedulerNode.get_nodes`` opens fused,
    foreach, combo and grouped nodes.
    """
    seen: set[int] = set()
    for entry in node_schedule:
        for leaf in entry.get_nodes() if hasattr(entry, "get_nodes") else ():
            if getattr(leaf, "node", None) is not None and id(leaf) not in seen:
                seen.add(id(leaf))
                yield _describe(leaf)


def _describe(leaf: Any) -> ScheduledNode:
    graph = current_graph()
    buffers = [dep for dep in leaf.read_writes.reads if _moves_data(dep)]
    written, partial = _value(graph, leaf.node)
    read = {_value(graph, _buffer(graph, dep.name))[0] for dep in buffers}
    owner = leaf.node.get_origin_node()
    if leaf.is_template():
        written = _template_node(leaf.node)
        read = set(written.all_input_nodes) if written is not None else set()
    elif owner is not None and owner is not written and written in read:
        # A plain copy, made so that ``owner`` can write into it: ``owner`` and nothing else.
        written, read = owner, read | set(owner.all_input_nodes)
    return ScheduledNode(
        origins=frozenset(leaf.node.origins),
        written=written,
        read=frozenset(node for node in read if node is not None),
        partial=partial,
        reads=tuple(sorted({dep.name for dep in buffers})),
        writes=tuple(sorted(dep.name for dep in leaf.read_writes.writes)),
    )


def _template_node(buffer: Any) -> torch.fx.Node | None:
    """The node that a template computes: what yields, of the nodes Inductor lists for it.

    A template with several outputs has a ``getitem`` as its origin node, which computes
    nothing and is not among them.
    """
    own = {node for node in buffer.origins if node.op == "call_function"}
    exact = buffer.get_origin_node()
    yields = (node for node in own if not set(node.users) & own)
    return exact if exact in own else max(yields, key=position, default=None)


def _moves_data(dep: Any) -> bool:
    """Whether a dependency reads a buffer; a ``WeakDep`` only asks to run after another."""
    return type(dep).__name__ != "WeakDep"


def _buffer(graph: Any, name: str) -> Any:
    found = graph.name_to_buffer.get(name)
    return graph.graph_inputs.get(name) if found is None else found


def _value(graph: Any, buffer: Any) -> tuple[torch.fx.Node | None, bool]:
    """The FX node whose value a buffer holds, and whether it is only a part of that value."""
    if buffer is None:
        return None, False
    exact = buffer.get_origin_node() if hasattr(buffer, "get_origin_node") else None
    if exact is not None:
        return _before_writers(exact, _writers(graph, buffer)), False
    last = _last_origin(buffer)
    return last, last is not None


def _last_origin(buffer: Any) -> torch.fx.Node | None:
    own = set(getattr(buffer, "origins", ()) or ())
    last = [node for node in own if not set(node.users) & own]
    return max(last, key=position, default=None)


def _writers(graph: Any, buffer: Any) -> set[torch.fx.Node | None]:
    """The FX nodes that write into a buffer after it was made."""
    scheduler = getattr(graph, "scheduler", None)
    real: dict[str, str] = getattr(scheduler, "mutation_real_name", {})
    names = [name for name, made in real.items() if made == buffer.get_name()]
    return {_last_origin(_buffer(graph, name)) for name in names}


def _before_writers(
    origin: torch.fx.Node, writers: set[torch.fx.Node | None]
) -> torch.fx.Node | None:
    """The value that a buffer is made with.

    Torch names the last node that writes into a buffer (a scatter) as its origin; what the
    buffer holds at first is what that node writes into, its first argument.
    """
    node: Any = origin
    while node in writers:
        node = node.args[0] if node.args else None
    return node if isinstance(node, torch.fx.Node) else None


def extern_origin(kernel: Any) -> torch.fx.Node | None:
    """Return the FX node that an extern kernel computes, exactly."""
    node: torch.fx.Node | None = kernel.origin_node
    return node


def extern_origins(kernel: Any) -> frozenset[torch.fx.Node]:
    """Return all FX nodes that Inductor lists for an extern kernel."""
    return frozenset(kernel.origins)


def extern_reads(kernel: Any) -> tuple[str, ...]:
    """Return the names of the buffers that an extern kernel reads."""
    if is_user_triton(kernel):  # it has no buffer of its own, and asserts when asked for one
        return tuple(sorted({str(value.get_name()) for value in kernel.inputs}))
    return tuple(sorted(dep.name for dep in kernel.get_read_writes().reads))


def extern_writes(kernel: Any) -> tuple[str, ...]:
    """Return the names of the buffers that an extern kernel writes."""
    if is_user_triton(kernel):
        return tuple(sorted(str(name) for name in kernel.get_mutation_names()))
    own = kernel.maybe_get_name() if hasattr(kernel, "maybe_get_name") else None
    outputs = [output.maybe_get_name() for output in kernel.get_outputs()]
    return tuple(sorted({str(name) for name in (own, *outputs) if name is not None}))


def extern_name(kernel: Any) -> str:
    """Return the name by which the wrapper calls it: ``extern_kernels.mm``, ``aten.sort``."""
    name = kernel.try_get_kernel_name() if hasattr(kernel, "try_get_kernel_name") else None
    return str(name or getattr(kernel, "python_kernel_name", None) or type(kernel).__name__)


def extern_op(kernel: Any, node: torch.fx.Node | None) -> str | None:
    """Return the ATen op of an extern kernel as the profiler spells it: ``aten::mm``.

    A higher-order op is no operator at run time; the one that its node carries is.
    """
    carried = node.args if node is not None else ()
    for overload in (getattr(kernel, "op_overload", None), *carried):
        if isinstance(overload, torch._ops.OpOverload):
            return str(overload._schema.name)
    return None


def is_extern(node: Any) -> bool:
    """Tell whether an IR node is an extern kernel."""
    from torch._inductor.ir import ExternKernel

    return isinstance(node, ExternKernel)


_SILENT_LAUNCHES = frozenset(
    {
        "DeviceCopy",
        "IndexPutFallback",
        "InplaceBernoulliFallback",
        "InplaceCopyFallback",
        "MutatingFirstArgExternKernel",
        "ScatterFallback",
    }
)


def launches_silently(node: Any) -> bool:
    """Tell whether an extern kernel launches work without reporting its call site.

    Source: ``torch/_inductor/ir.py``: the classes whose ``codegen`` calls no
    ``codegen_comment``.
    """
    return type(node).__name__ in _SILENT_LAUNCHES


def is_user_triton(node: Any) -> bool:
    """Tell whether an extern kernel is a Triton kernel that the user wrote."""
    from torch._inductor.ir import UserDefinedTritonKernel

    return isinstance(node, UserDefinedTritonKernel)


def buffer_value(graph: Any, name: str) -> torch.fx.Node | None:
    """Return the FX node whose value a named buffer of a graph holds."""
    return _value(graph, _buffer(graph, name))[0]


def graph_is_inference(graph: Any) -> bool:
    """Tell whether a graph was compiled with no gradient asked for."""
    return bool(getattr(graph, "is_inference", False))


def cache_key(artifact: Any) -> str | None:
    """Return the FX graph cache key of an artifact, as its marker in the trace prints it."""
    key = getattr(artifact, "_fx_graph_cache_key", None)
    return None if key is None else str(key)


def caches_enabled() -> bool:
    """Tell whether the FX graph cache is on."""
    from torch._inductor import config

    on: Any = config.fx_graph_cache
    return bool(on) and not config.force_disable_caches


def cache_dir() -> str:
    """Return Inductor's cache folder."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir as inductor_cache_dir

    return str(inductor_cache_dir())


def output_module(artifact: Any) -> str | None:
    """Return the path of the generated module that holds a graph's wrapper."""
    from torch._inductor.codecache import get_path

    key = getattr(artifact, "cache_key", None)
    return None if not key else str(get_path(key, "py")[2])


def wrapper_source(artifact: Any) -> str | None:
    """Return the text of the generated module."""
    text = getattr(artifact, "source_code", None)
    return text if isinstance(text, str) else None


def loaded_modules() -> tuple[Any, ...]:
    """Return the generated modules that this process has loaded."""
    from torch._inductor.codecache import PyCodeCache

    return tuple(PyCodeCache.modules)
