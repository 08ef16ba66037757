"""The declared names of compiled artifacts, their caches, CUDA graphs, and compile reports."""

from __future__ import annotations

from profiler_ext.torch_compat.private import Attribute, Key, Member, OptionalAttribute

_KEYS = "the link from a launch to its graph"
_PHASES = "the phase of a graph"
_REPLAYS = "which inputs a CUDA graph copies before its replay"
_SKIPPED = "why a graph is not replayed by CUDA graphs, though that was asked"
_STRICT = "whether --recompile may miss a cache"
_RECOMPILE = "a compile of cached graphs that have no record (`--recompile`)"
_BYPASS = "the reason why torch bypassed the FX graph cache"
_LINES_WITHOUT_CAPTURE = "lines of graphs that were compiled without capture"
_STORE = "the store"
_EVENTS = "events for Inductor's C++ kernels"

_OUTPUT = "torch._inductor.output_code"
ARTIFACT = Member(_OUTPUT, "CompiledFxGraph", _RECOMPILE)
FX_CACHE_KEY = Attribute(_OUTPUT, "CompiledFxGraph._fx_graph_cache_key", _KEYS)
CODE_KEY = Attribute(_OUTPUT, "CompiledFxGraph.cache_key", _KEYS)
SOURCE_CODE = Attribute(_OUTPUT, "CompiledFxGraph.source_code", _LINES_WITHOUT_CAPTURE)
PRINTED_GRAPH = Attribute(
    _OUTPUT, "CompiledFxGraph.inductor_post_grad_graph_str", _LINES_WITHOUT_CAPTURE
)
FX_KWARGS = Attribute(_OUTPUT, "CompiledFxGraph.fx_kwargs", _REPLAYS)

SKIP_REASON = Attribute(_OUTPUT, "CompiledFxGraph.disabled_cudagraphs_reason", _SKIPPED)
REPLAY_INFO = Attribute(_OUTPUT, "CompiledFxGraph.cudagraph_info", _SKIPPED)
FAIL_REASONS = Attribute(
    "torch._inductor.cudagraph_utils", "CudagraphCachedInfo.cudagraph_fail_reasons", _SKIPPED
)
REPLAY_WANTED = Member("torch._inductor.config", "triton.cudagraphs", _SKIPPED)

_COMPILE = "torch._inductor.compile_fx"
CUDA_GRAPHS = Key(_COMPILE, "'cudagraphs'", _REPLAYS)
STATIC_INPUTS = Key(_COMPILE, "'static_input_idxs'", _REPLAYS)
IS_BACKWARD = Key(_COMPILE, "'is_backward'", _PHASES)
IS_INFERENCE = Key(_COMPILE, "'is_inference'", _PHASES)
COMPILE_MODE = Member(_COMPILE, "fx_compile_mode", "that graphs are compiled in a child process")
MODE_SUBPROCESS = Member(
    _COMPILE, "FxCompileMode.SUBPROCESS", "that graphs are compiled in a child process"
)

_CODECACHE = "torch._inductor.codecache"
GET_PATH = Member(_CODECACHE, "get_path", _KEYS, takes=("basename", "extension"))
GENERATED_MODULES = Member(_CODECACHE, "PyCodeCache.modules", _EVENTS)
BYPASS_REASON = Key(_CODECACHE, "'cache_bypass_reason'", _BYPASS)
MISSES = Key(_CODECACHE, "'fxgraph_cache_miss'", "which graphs came from a cache")
COUNTERS = Member("torch._dynamo.utils", "counters", "whether graphs were compiled before capture")
UNIQUE_GRAPHS = Key(
    "torch._dynamo.output_graph", "'unique_graphs'", "whether graphs were compiled before capture"
)

_RESULT = "torch._functorch._aot_autograd.aot_autograd_result"
RESULT = Member(_RESULT, "GenericAOTAutogradResult", _RECOMPILE)
FORWARD_HALF = Attribute(_RESULT, "GenericAOTAutogradResult.compiled_fw", _RECOMPILE)
BACKWARD_HALF = Attribute(_RESULT, "GenericAOTAutogradResult.compiled_bw", _RECOMPILE)
BUNDLED = Member(_RESULT, "BundledOutputCodeLoadable", _RECOMPILE)
BUNDLED_RESULT = Attribute(_RESULT, "BundledOutputCodeLoadable.result", _RECOMPILE)

STRICT_AUTOGRAD_CACHE = Member("torch._functorch.config", "strict_autograd_cache", _STRICT)
STRICT_PRECOMPILE = Member("torch._dynamo.config", "strict_precompile", _STRICT)
AUTOGRAD_CACHE_ON = Member(
    "torch._functorch.config", "enable_autograd_cache", "whether AOTAutograd's cache is on"
)
CACHE_ON = Member("torch._inductor.config", "fx_graph_cache", _KEYS)
CACHES_OFF = Member("torch._inductor.config", "force_disable_caches", _KEYS)
_FUSIONS = "which options of Inductor for fusing are on"
FUSION_OPTIONS = tuple(
    Member("torch._inductor.config", option, _FUSIONS)
    for option in (
        "aggressive_fusion",
        "combo_kernels",
        "epilogue_fusion",
        "loop_ordering_after_fusion",
        "max_autotune",
        "max_autotune_gemm",
        "prologue_fusion",
    )
)
CACHE_DIR = Member("torch._inductor.runtime.cache_dir_utils", "cache_dir", _STORE)

_TREES = "torch._inductor.cudagraph_trees"
WRAPPED_FUNCTION = Attribute(_TREES, "CUDAGraphNode.wrapped_function", _REPLAYS)
RECONSTRUCTED = Attribute(_TREES, "CUDAGraphNode.reconstructed_inputs", _REPLAYS)
NON_STATIC = Attribute(_TREES, "CUDAGraphNode.non_static_input_idx", _REPLAYS)
_TREE_UTILS = "torch._inductor.cudagraph_utils"
PLACEHOLDERS = Attribute(_TREE_UTILS, "WrappedFunction.placeholders", _REPLAYS)
PLACEHOLDER_NAME = Attribute(_TREE_UTILS, "PlaceholderInfo.name", _REPLAYS)


_SPANS = "what compiling took, by phase"
FRAME_SPAN = Key("torch._dynamo.convert_frame", "'dynamo'", _SPANS)
LOADED_FRAME_SPAN = Key("torch._dynamo.package", "'entire_frame_compile'", _SPANS)
BACKWARD_SPAN = Key(
    "torch._functorch._aot_autograd.runtime_wrappers", "'entire_backward_compile'", _SPANS
)
AUTOGRAD_SPAN = Key("torch._dynamo.compiled_autograd", "'compiled_autograd'", _SPANS)
GRAPH_SPAN = Key("torch._inductor.compile_fx", "'inductor_compile'", _SPANS)

_FUNCTION = "which function a compile is of, and why it failed"
_BREAKS = "where Dynamo broke a graph, and why"
_CACHES = "what torch's caches answered, and why"

_METRICS = "torch._dynamo.utils"
CO_NAME = Attribute(_METRICS, "CompilationMetrics.co_name", _FUNCTION)
CO_FILENAME = Attribute(_METRICS, "CompilationMetrics.co_filename", _FUNCTION)
CO_FIRSTLINENO = Attribute(_METRICS, "CompilationMetrics.co_firstlineno", _FUNCTION)
FAIL_TYPE = Attribute(_METRICS, "CompilationMetrics.fail_type", _FUNCTION)
FAIL_REASON = Attribute(_METRICS, "CompilationMetrics.fail_reason", _FUNCTION)
RESTART_REASONS = Attribute(_METRICS, "CompilationMetrics.restart_reasons", _FUNCTION)

_FRAME = "torch._C._dynamo.eval_frame"
RECOMPILED_CODE = Attribute(_FRAME, "_PyInterpreterFrame.f_code", _FUNCTION)

LOGGED = OptionalAttribute("torch._dynamo.exc", "Unsupported.logged", _BREAKS)
BREAK_KIND = OptionalAttribute("torch._dynamo.exc", "Unsupported.gb_type", _BREAKS)
REAL_STACK = OptionalAttribute("torch._dynamo.exc", "Unsupported.real_stack", _BREAKS)
TRACED_STACK = Member("torch._guards", "TracingContext.extract_stack", _BREAKS)
BREAK_FILE = Key("torch._dynamo.symbolic_convert", "'co_filename'", _BREAKS)
BREAK_LINE = Key("torch._dynamo.symbolic_convert", "'co_firstlineno'", _BREAKS)

_INDUCTOR_CACHE = "torch._inductor.codecache"
CACHE_STATUS = Key(_INDUCTOR_CACHE, "'cache_status_detailed'", _CACHES)
CACHE_GUARD = Key(_INDUCTOR_CACHE, "'cache_status_guard_expr'", _CACHES)
GUARD_MISS = Key(_INDUCTOR_CACHE, "'guard_miss'", _CACHES)
FX_SAVED_NS = Key(_INDUCTOR_CACHE, "'time_saved_ns'", _CACHES)
FX_CACHE_EVENT = Key("torch._inductor.compile_fx", "'fx_graph_cache_'", _CACHES)
AUTOGRAD_CACHE_EVENT = Key(
    "torch._functorch._aot_autograd.autograd_cache", "'autograd_cache_'", _CACHES
)
AUTOGRAD_SAVED_MS = Key("torch._functorch._aot_autograd.autograd_cache", "'time_saved_ms'", _CACHES)
