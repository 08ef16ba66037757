"""Owns which phase each of the spans is in that torch times, by torch's names for them.

Source: the calls of ``dynamo_timed`` in torch 2.11 to 2.15. A span that is not listed is in the
phase of the span around it.
"""

from __future__ import annotations

import functools

from profiler_ext.records import CompileKind, CompilePhase
from profiler_ext.torch_compat import compile_reports

_DYNAMO = (
    "compile_attempt_*",
    "bytecode_*",
    "build_guards",
    "fullgraph_capture",
    "precompile_*",
    "pgo.*",
    "compiler_collective",
    "guard_collective",
    "insert_deferred_runtime_asserts",
    "debug_insert_nops",
    "gc",
    "invoke_subgraph_trace",
    "invoke_subgraph_reuse_*",
)
_AOT_AUTOGRAD = (
    "backend_compile",
    "create_aot_dispatcher_function",
    "aot_collect_metadata",
    "aot_trace_joint_graph",
    "min_cut_rematerialization_partition",
    "AOTAutogradCache.*",
    "GraphPickler.*",
    "invoke_subgraph_fake_tensor",
    "invoke_subgraph_proxy_tensor",
    "invoke_subgraph_trace_joint_graph",
    "TranslationValidator.*",
)
_INDUCTOR = (
    "inductor_*",
    "compile_fx*",
    "fx_codegen_and_compile",
    "_recursive_*",
    "pass.*",
    "fx.*",
    "additional_fake_tensor_prop",
    "convert_conv_weights_to_channels_last",
    "GraphLowering.*",
    "Scheduler.*",
    "generate_kernel_code_from_nodes",
    "PythonWrapperCodegen.*",
    "CppWrapper*",
    "code_gen",
    "PyCodeCache.*",
    "TritonBundler.*",
    "CacheBase.*",
    "CompiledArtifact.*",
    "AotCodeCompiler.*",
    "offload_constants_*",
)
_KERNELS = (
    "async_compile.*",
    "compile_file",
    "cpp_wrapper_compile",
    "StaticAutotunerFuture.*",
    "CachingAutotuner.slow_precompile_config",
    "reload_kernel_in_parent",
    "aoti_*",
)
_AUTOTUNING = (
    "*_template_autotuning",
    "*_template_precompiling",
    "benchmark_*",
    "CachingAutotuner.*",
    "collective_compute_do_bench",
    "CUTLASS*",
    "cutlass_utils.*",
)
_CUDA_GRAPHS = ("cudagraphify.*", "CUDAGraphNode.*")


def _phase_patterns(
    phase: CompilePhase, patterns: tuple[str, ...]
) -> tuple[CompilePhase, frozenset[str], tuple[str, ...], tuple[str, ...]]:
    """What names tell a phase: whole ones, begins and ends. Expressions are slow to compile."""
    prefixes = tuple(each[:-1] for each in patterns if each.endswith("*"))
    suffixes = tuple(each[1:] for each in patterns if each.startswith("*"))
    return phase, frozenset(each for each in patterns if "*" not in each), prefixes, suffixes


_PHASES = (
    _phase_patterns(CompilePhase.DYNAMO, _DYNAMO),
    _phase_patterns(CompilePhase.AOT_AUTOGRAD, _AOT_AUTOGRAD),
    _phase_patterns(CompilePhase.INDUCTOR, _INDUCTOR),
    _phase_patterns(CompilePhase.KERNELS, _KERNELS),
    _phase_patterns(CompilePhase.AUTOTUNING, _AUTOTUNING),
    _phase_patterns(CompilePhase.CUDA_GRAPHS, _CUDA_GRAPHS),
)
_OUTERMOST = {
    CompileKind.FRAME: CompilePhase.DYNAMO,
    CompileKind.BACKWARD: CompilePhase.AOT_AUTOGRAD,
    CompileKind.COMPILED_AUTOGRAD: CompilePhase.AOT_AUTOGRAD,
}


def kind_of(outermost: str) -> CompileKind:
    """Return what torch is at, by the name of the outermost span."""
    if compile_reports.is_frame(outermost):
        return CompileKind.FRAME
    if compile_reports.is_backward(outermost):
        return CompileKind.BACKWARD
    is_autograd = compile_reports.is_autograd(outermost)
    return CompileKind.COMPILED_AUTOGRAD if is_autograd else CompileKind.RUN_TIME


@functools.lru_cache(maxsize=4096)
def phase_of(name: str) -> CompilePhase | None:
    """Return the phase that a span is in by its name; ``None`` of one that is not listed."""
    if (kind := kind_of(name)) is not CompileKind.RUN_TIME:
        return _OUTERMOST[kind]
    for phase, names, prefixes, suffixes in _PHASES:
        if name in names or name.startswith(prefixes) or name.endswith(suffixes):
            return phase
    return None
