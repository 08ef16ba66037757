"""The spans of one compile that torch times, by phase.

Source: the calls of ``dynamo_timed`` in torch 2.11 to 2.15. An unlisted span has the phase of the
span around it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from profiler_ext.records.compiles import CompileKind, CompilePhase, CompileSpan, CompileTime
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
    """Sort names into whole ones, prefixes and suffixes; expressions are slow to compile."""
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
    """Return the kind of a compile, by the name of its outermost span."""
    if compile_reports.is_frame(outermost):
        return CompileKind.FRAME
    if compile_reports.is_backward(outermost):
        return CompileKind.BACKWARD
    is_autograd = compile_reports.is_autograd(outermost)
    return CompileKind.COMPILED_AUTOGRAD if is_autograd else CompileKind.RUN_TIME


@functools.lru_cache(maxsize=4096)
def phase_of(name: str) -> CompilePhase | None:
    """Return the phase of a span by its name; ``None`` if it is not listed."""
    if (kind := kind_of(name)) is not CompileKind.RUN_TIME:
        return _OUTERMOST[kind]
    for phase, names, prefixes, suffixes in _PHASES:
        if name in names or name.startswith(prefixes) or name.endswith(suffixes):
            return phase
    return None


_MAX_SPANS = 200
_MIN_FRACTION = 1000  # a thousandth of the compile cannot be seen


@dataclass(slots=True)
class Span:
    """One part of a compile that torch times."""

    name: str
    phase: CompilePhase
    started_ns: int  # since 1970
    duration_ns: int = 0  # once it is over
    graph: int | None = None  # index of the instance that became ready in it
    children: list[Span] = field(default_factory=list)


def begin_span(name: str, started_ns: int, parent: Span | None) -> Span:
    """Begin a span."""
    outer = parent.phase if parent is not None else CompilePhase.OTHER
    span = Span(name, phase_of(name) or outer, started_ns)
    if parent is not None:
        parent.children.append(span)
    return span


def times(outermost: Span) -> tuple[CompileTime, ...]:
    """Return the time of a compile by phase and graph; it adds up to the compile's."""
    own: Counter[tuple[CompilePhase, int | None]] = Counter()
    for span, graph, _ in _all(outermost, None, 0):
        own[span.phase, graph] += span.duration_ns - sum(each.duration_ns for each in span.children)
    # If the system clock was set meanwhile, only the sum is known.
    if any(spent < 0 for spent in own.values()):
        return (CompileTime(CompilePhase.OTHER, outermost.duration_ns),)
    return tuple(
        CompileTime(phase, own[phase, graph], graph)
        for phase, graph in sorted(own, key=_whole_compile_first)
        if own[phase, graph]
    )


def _whole_compile_first(entry: tuple[CompilePhase, int | None]) -> tuple[int, int]:
    phase, graph = entry
    return -1 if graph is None else graph, tuple(CompilePhase).index(phase)


def visible(outermost: Span) -> tuple[CompileSpan, ...]:
    """Return the spans that are long enough to be visible, in order."""
    every = [(span, depth) for span, _, depth in _all(outermost, None, 0)]
    shortest = outermost.duration_ns // _MIN_FRACTION
    longest = sorted(every, key=lambda item: -item[0].duration_ns)[:_MAX_SPANS]
    kept = {id(span) for span, _ in longest if span.duration_ns >= shortest}
    return tuple(
        CompileSpan(span.name, span.phase, span.started_ns, span.duration_ns, depth)
        for span, depth in every
        if id(span) in kept
    )


def _all(span: Span, graph: int | None, depth: int) -> Iterator[tuple[Span, int | None, int]]:
    """Each span with its graph and depth, outer ones first."""
    graph = graph if span.graph is None else span.graph
    yield span, graph, depth
    for each in span.children:
        yield from _all(each, graph, depth + 1)
