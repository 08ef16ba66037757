"""Owns the list of torch's private names that are read or called, with the shape each must have.

What is wrapped stands in ``points``.
"""

from __future__ import annotations

from profiler_ext.torch_compat.patches import Point

_EXACT = "the exact FX nodes of a kernel"
_MOVED = "estimates of bytes moved"
_KEYS = "the link from a launch to its graph"
_CALLS = "what a library call reads, writes and is"
_STRICT = "whether --recompile may miss a cache"
_JOINT = "seq_table"
_MODULES = "the module that a compiled region was called on"


def _names(module: str, serves: str, *paths: str) -> tuple[Point, ...]:
    return tuple(Point(module, path, (), serves) for path in paths)


ALL = (
    *_names("torch._inductor.virtualized", _EXACT, "V"),
    *_names("torch._inductor.scheduler", _EXACT, "BaseSchedulerNode.get_nodes"),
    *_names("torch._inductor.scheduler", _EXACT, "BaseSchedulerNode.is_template"),
    *_names("torch._inductor.ir", _EXACT, "IRNode.get_origin_node", "IRNode.origins"),
    *_names("torch._inductor.ir", _CALLS, "ExternKernel", "ExternKernel.get_read_writes"),
    *_names("torch._inductor.ir", _CALLS, "ExternKernel.get_mutation_names"),
    *_names("torch._inductor.ir", _CALLS, "ExternKernel.get_outputs", "IRNode.maybe_get_name"),
    *_names("torch._inductor.ir", _CALLS, "UserDefinedTritonKernel"),
    *_names("torch._inductor.ir", "what a nested graph launches", "Subgraph"),
    *_names("torch._inductor.dependencies", _MOVED, "StarDep", "WeakDep", "Dep.numbytes_hint"),
    *_names("torch._inductor.dependencies", _MOVED, "MemoryDep.is_indirect"),
    *_names("torch._inductor.graph", _MOVED, "GraphLowering.get_dtype"),
    *_names("torch._inductor.output_code", _KEYS, "CompiledFxGraph._fx_graph_cache_key"),
    *_names("torch._inductor.output_code", _KEYS, "CompiledFxGraph.cache_key"),
    *_names("torch._inductor.output_code", _KEYS, "CompiledFxGraph.source_code"),
    *_names("torch._inductor.codecache", "events for C++ kernels", "PyCodeCache.modules"),
    Point("torch._inductor.codecache", "get_path", ("basename", "extension"), _KEYS),
    *_names("torch._inductor.config", _KEYS, "fx_graph_cache", "force_disable_caches"),
    *_names("torch._inductor.runtime.cache_dir_utils", "the store", "cache_dir"),
    *_names("torch._inductor.ir", "mutated inputs", "ComputedBuffer", "Pointwise", "InputsKernel"),
    *_names("torch._inductor.ir", "mutated inputs", "Operation.get_origins"),
    *_names("torch._subclasses.fake_tensor", "compiled autograd", "unset_fake_temporarily"),
    *_names("torch._functorch.config", _STRICT, "strict_autograd_cache"),
    *_names("torch._dynamo.config", _STRICT, "strict_precompile"),
    *_names("torch._inductor.ir", "what a nested graph launches", "SubgraphBuffer"),
    *_names("torch._dynamo.utils", "whether graphs were compiled before capture", "counters"),
    *_names("torch._guards", _KEYS, "CompileContext.current_compile_id"),
    *_names("torch._dynamo.eval_frame", _MODULES, "_maybe_set_eval_frame"),
    *_names("torch._C._profiler", "events for C++ kernels", "_RecordFunctionFast"),
    *_names("torch._C._profiler", "operators of every thread", "_ExperimentalConfig"),
    *_names("torch.autograd.profiler", "the warm-up of CUDA graphs", "_is_profiler_enabled"),
    Point("torch._functorch.aot_autograd", "_aot_export_function", ("func", "args"), _JOINT),
    *_names("torch.fx.traceback", _JOINT, "current_meta", "preserve_node_meta"),
    Point(
        "torch.fx.graph_module",
        "GraphModule._register_replace_node_hook",
        ("self", "f"),
        "what a pattern's node replaced",
    ),
)
