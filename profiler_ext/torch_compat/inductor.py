"""Typed access to Inductor's objects while it generates code, and to its artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch.fx

from profiler_ext.torch_compat import private
from profiler_ext.torch_compat.names import artifact_names, fx_names, kernel_names

PROVENANCE_ATTRIBUTE = "_profiler_ext_v1"


def current_graph() -> Any:
    """Return the ``GraphLowering`` of the innermost graph being generated."""
    return kernel_names.V_GRAPH.of(kernel_names.V.get())


@dataclass(frozen=True, slots=True)
class NestedGraph:
    """A graph that an extern kernel calls: a branch of ``cond``, a nested compile region."""

    name: str  # of its attribute in the outer graph module
    graph: Any  # a ``GraphLowering``
    function: str  # in the generated wrapper
    replaces_caller: bool = False  # it is the caller's op, decomposed by autotuning
    part: str = "graph"  # as in :class:`profiler_ext.records.NestedIn`


def nested_graphs(kernel: Any) -> tuple[NestedGraph, ...]:
    """Return the graphs that an extern kernel calls, in the order of its attributes.

    Source: ``torch/_inductor/ir.py``: ``InvokeSubgraph``, ``Conditional`` or ``Switch``,
    ``WhileLoop`` hold ``Subgraph`` objects; ``SubgraphBuffer`` (a matmul that autotuning splits
    along K) holds the graph.
    """
    if kernel_names.SUBGRAPH_BUFFER.is_type_of(kernel):
        graph = kernel_names.BUFFER_SUBGRAPH.of(kernel)
        name = str(kernel_names.GRAPH_NAME.of(graph))
        return (NestedGraph(name, graph, name, replaces_caller=True),)
    held: list[Any] = []
    for value in vars(kernel).values():
        held += value if isinstance(value, list | tuple) else (value,)
    subgraphs = [value for value in held if kernel_names.SUBGRAPH.is_type_of(value)]
    parts = _parts(kernel, subgraphs)
    return tuple(
        NestedGraph(str(kernel_names.SUBGRAPH_NAME.of(subgraph)), graph, function, part=part)
        for subgraph, part in zip(subgraphs, parts, strict=True)
        if (graph := kernel_names.SUBGRAPH_GRAPH.of(subgraph)) is not None
        for function in [str(kernel_names.GRAPH_NAME.of(graph))]
    )


def _parts(kernel: Any, subgraphs: list[Any]) -> list[str]:
    if kernel_names.LOOP.is_type_of(kernel):
        condition, body = kernel_names.LOOP_CONDITION.of(kernel), kernel_names.LOOP_BODY.of(kernel)
        loop = {id(condition): "condition", id(body): "body"}
        return [loop.get(id(subgraph), "graph") for subgraph in subgraphs]
    return [
        f"branch {number}" if len(subgraphs) > 1 else "graph" for number in range(len(subgraphs))
    ]


def current_fx_graph() -> torch.fx.Graph:
    """Return the innermost FX graph being generated."""
    graph: torch.fx.Graph = kernel_names.FX_GRAPH.of(current_graph())
    return graph


def extern_origin(kernel: Any) -> torch.fx.Node | None:
    """Return the FX node that an extern kernel computes, if it is exact."""
    # An op that returns its input's buffer (an in-place collective, its wait) replaces the node
    # that filled it, but is not among the origins.
    node: torch.fx.Node | None = kernel_names.ORIGIN_NODE.of(kernel)
    origins = kernel_names.ORIGINS.of(kernel)
    return node if node in origins or not origins else None


def extern_origins(kernel: Any) -> frozenset[torch.fx.Node]:
    """Return all FX nodes that Inductor lists for an extern kernel."""
    return frozenset(kernel_names.ORIGINS.of(kernel))


def extern_reads(kernel: Any) -> tuple[str, ...]:
    """Return the names of the buffers that an extern kernel reads."""
    if is_user_triton(kernel):  # it has no buffer, and asserts if asked for one
        inputs = kernel_names.KERNEL_INPUTS.of(kernel)
        return tuple(sorted({str(kernel_names.GET_NAME.of(value)()) for value in inputs}))
    reads = kernel_names.READS.of(kernel_names.GET_READ_WRITES.of(kernel)())
    return tuple(sorted(kernel_names.DEP_NAME.of(dep) for dep in reads))


def extern_writes(kernel: Any) -> tuple[str, ...]:
    """Return the names of the buffers that an extern kernel writes."""
    if is_user_triton(kernel):
        return tuple(sorted(str(name) for name in kernel_names.GET_MUTATION_NAMES.of(kernel)()))
    made = (kernel, *kernel_names.GET_OUTPUTS.of(kernel)())
    names = [kernel_names.MAYBE_GET_NAME.of(buffer)() for buffer in made]
    return tuple(sorted({str(name) for name in names if name is not None}))


def extern_name(kernel: Any) -> str:
    """Return the name in the wrapper: ``extern_kernels.mm``, ``aten.sort``."""
    name = kernel_names.KERNEL_NAME.of(kernel)() or kernel_names.PYTHON_KERNEL_NAME.of(kernel)
    return str(name or type(kernel).__name__)


def extern_op(kernel: Any, node: torch.fx.Node | None) -> str | None:
    """Return the ATen op of an extern kernel in the profiler's spelling: ``aten::mm``."""
    if kernel_names.DEVICE_COPY.is_type_of(kernel):  # the wrapper has ``buf1.copy_(buf0, ...)``
        return "aten::copy_"
    # A higher-order op is no operator at run time; the one that its node carries is.
    carried = node.args if node is not None else ()
    for overload in (kernel_names.OP_OVERLOAD.maybe(kernel), *carried):
        if fx_names.OP_OVERLOAD.is_type_of(overload):
            return str(fx_names.SCHEMA_NAME.of(fx_names.SCHEMA.of(overload)))
    return None


def is_extern(node: Any) -> bool:
    """Tell whether an IR node is an extern kernel."""
    return kernel_names.EXTERN_KERNEL.is_type_of(node)


def launches_without_comment(node: Any) -> bool:
    """Tell whether an extern kernel launches work without reporting its call site.

    Source: ``torch/_inductor/ir.py``: the classes whose ``codegen`` calls no ``codegen_comment``.
    """
    return any(type(node) is kind.get() for kind in kernel_names.WITHOUT_COMMENT)


def is_user_triton(node: Any) -> bool:
    """Tell whether an extern kernel is a user-written Triton kernel."""
    return kernel_names.USER_TRITON.is_type_of(node)


def graph_is_inference(graph: Any) -> bool:
    """Tell whether a graph was compiled for inference."""
    return bool(kernel_names.IS_INFERENCE.of(graph))


def graph_is_backward(graph: Any) -> bool:
    """Tell whether a graph being generated is a backward half."""
    return bool(kernel_names.IS_BACKWARD.of(graph))


def is_backward(graph_kwargs: Mapping[str, Any]) -> bool:
    """Tell whether an artifact is a backward half, from its graph's options."""
    return bool(artifact_names.IS_BACKWARD.of(graph_kwargs))


def awaits_backward(graph_kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a graph is a forward whose backward is compiled next."""
    is_training = artifact_names.IS_INFERENCE.of(graph_kwargs) is False
    return is_training and not is_backward(graph_kwargs)


def is_replayed(graph_kwargs: Mapping[str, Any]) -> bool:
    """Tell whether an artifact will be replayed as a CUDA graph."""
    return bool(artifact_names.CUDA_GRAPHS.of(graph_kwargs))


def skipped_replay(artifact: Any) -> str | None:
    """Return torch's reason for not replaying an artifact, where ``reduce-overhead`` asked for it.

    Source: ``torch/_inductor/output_code.py``, ``CompiledFxGraph.__init__`` and
    ``cudagraph_post_compile``, which log the same texts.
    """
    names = (artifact_names.SKIP_REASON, artifact_names.REPLAY_INFO, artifact_names.FAIL_REASONS)
    if private.unavailable(names) or not artifact_names.REPLAY_WANTED.get():
        return None
    info = artifact_names.REPLAY_INFO.of(artifact)
    failed = () if info is None else artifact_names.FAIL_REASONS.of(info)
    reason = artifact_names.SKIP_REASON.of(artifact) or next(iter(failed), None)
    return None if reason is None else str(reason)


def kernel_of(scheduler_node: Any) -> Any:
    """Return the IR node of a scheduler node."""
    return kernel_names.IR_NODE.of(scheduler_node)


def cache_key(artifact: Any) -> str | None:
    """Return the FX graph cache key of an artifact, as in the trace's marker."""
    key = artifact_names.FX_CACHE_KEY.of(artifact)
    return None if key is None else str(key)


def cache_key_if_known(artifact: Any) -> str | None:
    """Return the same for an artifact that may be gone, if this torch has the key."""
    has_key_name = artifact is not None and artifact_names.FX_CACHE_KEY.is_available()
    return cache_key(artifact) if has_key_name else None


def cached_artifacts(entry: Any) -> tuple[Any, ...]:
    """Return the artifacts in a cache entry.

    Source: ``torch/_functorch/_aot_autograd/aot_autograd_result.py``: a bundled result has them,
    any other names entries of the FX graph cache.
    """
    halves = (artifact_names.FORWARD_HALF.maybe(entry), artifact_names.BACKWARD_HALF.maybe(entry))
    held = (entry, *(artifact_names.BUNDLED_RESULT.maybe(half) for half in halves))
    return tuple(each for each in held if artifact_names.ARTIFACT.is_type_of(each))


def misses_are_errors() -> bool:
    """Tell whether torch is configured to raise on a cache miss."""
    return bool(
        artifact_names.STRICT_AUTOGRAD_CACHE.get() or artifact_names.STRICT_PRECOMPILE.get()
    )


def bypass_reason(prepared: Any) -> str | None:
    """Return why a graph bypasses the FX graph cache, if it does.

    Source: ``torch/_inductor/codecache.py``, ``FxGraphCache.prepare_key`` returns the key, and a
    ``cache_info`` with the reason.
    """
    _, info = prepared
    reason = artifact_names.BYPASS_REASON.of(info)
    return None if reason is None else str(reason)


def caches_enabled() -> bool:
    """Tell whether the FX graph cache is on."""
    return bool(artifact_names.CACHE_ON.get()) and not artifact_names.CACHES_OFF.get()


def autograd_cache_enabled() -> bool:
    """Tell whether AOTAutograd's cache is on."""
    return bool(artifact_names.AUTOGRAD_CACHE_ON.get()) and not artifact_names.CACHES_OFF.get()


def cache_misses() -> int:
    """Return how often this process's FX graph cache has missed."""
    return int(artifact_names.MISSES.of(artifact_names.COUNTERS.get()["inductor"]) or 0)


def compiles_in_child() -> bool:
    """Tell whether Inductor compiles in another process (``TORCHINDUCTOR_FX_COMPILE_MODE``).

    Source: ``torch/_inductor/compile_fx.py``, ``FxCompileMode``.
    """
    return artifact_names.COMPILE_MODE.get() is artifact_names.MODE_SUBPROCESS.get()


def cache_dir() -> str:
    """Return Inductor's cache folder."""
    return str(artifact_names.CACHE_DIR.get()())


def output_module(artifact: Any) -> str | None:
    """Return the path of the generated module with a graph's wrapper."""
    key = artifact_names.CODE_KEY.of(artifact)
    return None if not key else str(artifact_names.GET_PATH.get()(key, "py")[2])


def wrapper_source(artifact: Any) -> str | None:
    """Return the text of the generated module."""
    text = artifact_names.SOURCE_CODE.of(artifact)
    return text if isinstance(text, str) else None


def printed_graph(artifact: Any) -> str | None:
    """Return the post-grad graph as torch printed it.

    Source: ``torch/_inductor/compile_fx.py``, ``print_readable`` after the post-grad passes.
    """
    text = artifact_names.PRINTED_GRAPH.of(artifact)
    return text if isinstance(text, str) else None


def artifact_is_inference(artifact: Any) -> bool:
    """Tell whether an artifact was compiled for inference."""
    return bool(artifact_names.IS_INFERENCE.of(artifact_names.FX_KWARGS.of(artifact)))


def loaded_modules() -> tuple[Any, ...]:
    """Return the generated modules that this process has loaded, if torch keeps a list."""
    modules = artifact_names.GENERATED_MODULES
    return tuple(modules.get()) if modules.is_available() else ()
