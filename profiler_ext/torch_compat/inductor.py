"""Owns typed access to Inductor's objects while it generates code, and to its artifacts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

RIDING = "_profiler_ext_v1"


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
        stands_for_caller: its nodes are the caller's op, taken apart by autotuning.
        part: what it is to its caller, as in :class:`profiler_ext.records.NestedIn`.
    """

    name: str
    graph: Any
    function: str
    stands_for_caller: bool = False
    part: str = "graph"


def nested_graphs(kernel: Any) -> tuple[NestedGraph, ...]:
    """Return the graphs that an extern kernel calls, in the order of its attributes.

    Source: ``torch/_inductor/ir.py``: ``InvokeSubgraph``, ``Conditional`` (``Switch`` from
    2.14), ``WhileLoop`` hold ``Subgraph`` objects; ``SubgraphBuffer`` (a matmul that autotuning
    splits along K) holds the graph itself.
    """
    from torch._inductor.ir import Subgraph, SubgraphBuffer

    if isinstance(kernel, SubgraphBuffer):
        name = str(kernel.subgraph.name)
        return (NestedGraph(name, kernel.subgraph, name, stands_for_caller=True),)
    values = [(at, v) for at, value in vars(kernel).items() for v in _items(value)]
    found = [(at, value) for at, value in values if isinstance(value, Subgraph)]
    is_choice = len(found) > 1
    return tuple(
        NestedGraph(str(s.name), graph, str(graph.name), part=_part(at, number, is_choice))
        for number, (at, s) in enumerate(found)
        if (graph := s.graph) is not None
    )


def _part(attribute: str, number: int, is_choice: bool) -> str:
    """Return what a nested graph is to its caller, by the attribute that holds it."""
    loop = {"cond_subgraph": "condition", "body_subgraph": "body"}
    return loop.get(attribute) or (f"branch {number}" if is_choice else "graph")


def current_fx_graph() -> torch.fx.Graph:
    """Return the FX graph that code is being generated for (the innermost one)."""
    graph: torch.fx.Graph = current_graph().graph
    return graph


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def extern_origin(kernel: Any) -> torch.fx.Node | None:
    """Return the FX node that an extern kernel computes, exactly.

    An op that returns its input's buffer (a collective in place, its wait) puts itself in the
    place of the node that filled it, but is not among the origins.
    """
    node: torch.fx.Node | None = kernel.origin_node
    return node if node in kernel.origins or not kernel.origins else None


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

    A higher-order op is no operator at run time; the one that its node carries is. The copy of
    a value to another device knows no operator: the wrapper writes ``buf1.copy_(buf0, ...)``.
    """
    if type(kernel).__name__ == "DeviceCopy":
        return "aten::copy_"
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


def graph_is_inference(graph: Any) -> bool:
    """Tell whether a graph was compiled with no gradient asked for."""
    return bool(getattr(graph, "is_inference", False))


def cache_key(artifact: Any) -> str | None:
    """Return the FX graph cache key of an artifact, as its marker in the trace prints it."""
    key = getattr(artifact, "_fx_graph_cache_key", None)
    return None if key is None else str(key)


def cached_artifacts(entry: Any) -> tuple[Any, ...]:
    """Return the artifacts that an entry of a cache holds itself.

    Source: ``torch/_functorch/_aot_autograd/aot_autograd_result.py``: a bundled result has
    them, any other names entries of the FX graph cache.
    """
    from torch._inductor.output_code import CompiledFxGraph

    halves = (getattr(entry, name, None) for name in ("compiled_fw", "compiled_bw"))
    held = (entry, *(getattr(half, "result", None) for half in halves))
    return tuple(each for each in held if isinstance(each, CompiledFxGraph))


def misses_are_errors() -> bool:
    """Tell whether the user has asked torch to raise where a cache entry is missing."""
    from torch._dynamo import config as dynamo
    from torch._functorch import config as functorch

    return bool(
        getattr(functorch, "strict_autograd_cache", False)
        or getattr(dynamo, "strict_precompile", False)
    )


def bypass_reason(prepared: Any) -> str | None:
    """Return why a graph bypasses the FX graph cache, ``None`` where it does not.

    Source: ``torch/_inductor/codecache.py``, ``FxGraphCache.prepare_key`` returns the key, and
    a ``cache_info`` with torch's reason.
    """
    info = prepared[1] if isinstance(prepared, tuple) and len(prepared) == 2 else None
    reason = info.get("cache_bypass_reason") if isinstance(info, dict) else None
    return None if reason is None else str(reason)


def caches_enabled() -> bool:
    """Tell whether the FX graph cache is on."""
    from torch._inductor import config

    on: Any = config.fx_graph_cache
    return bool(on) and not config.force_disable_caches


def autograd_cache_enabled() -> bool:
    """Tell whether AOTAutograd's cache is on."""
    from torch._functorch import config
    from torch._inductor import config as inductor_config

    on: Any = config.enable_autograd_cache
    return bool(on) and not inductor_config.force_disable_caches


def cache_misses() -> int:
    """Return how often the FX graph cache of this process has missed."""
    from torch._dynamo.utils import counters

    return int(counters["inductor"]["fxgraph_cache_miss"])


def compiles_in_child() -> bool:
    """Tell whether Inductor compiles in another process (``TORCHINDUCTOR_FX_COMPILE_MODE``).

    Source: ``torch/_inductor/compile_fx.py``, ``FxCompileMode``.
    """
    from torch._inductor import compile_fx

    return str(compile_fx.fx_compile_mode.name) == "SUBPROCESS"


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


def printed_graph(artifact: Any) -> str | None:
    """Return the post-grad graph as torch printed it.

    Source: ``torch/_inductor/compile_fx.py``, ``print_readable`` after the post-grad passes.
    """
    text = getattr(artifact, "inductor_post_grad_graph_str", None)
    return text if isinstance(text, str) else None


def artifact_is_inference(artifact: Any) -> bool:
    """Tell whether an artifact was compiled with no gradient asked for."""
    arguments = getattr(artifact, "fx_kwargs", None) or {}
    return bool(arguments.get("is_inference", False))


def loaded_modules() -> tuple[Any, ...]:
    """Return the generated modules that this process has loaded."""
    from torch._inductor.codecache import PyCodeCache

    return tuple(PyCodeCache.modules)
