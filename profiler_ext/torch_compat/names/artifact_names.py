"""Owns the declared names of compiled artifacts, of their caches, and of CUDA graphs."""

from __future__ import annotations

from profiler_ext.torch_compat.private import Attribute, Key, Member

_KEYS = "the link from a launch to its graph"
_PHASES = "the phase of a graph"
_REPLAYS = "which inputs a CUDA graph copies before its replay"
_STRICT = "whether --recompile may miss a cache"
_RECOMPILE = "a compile of cached graphs that have no record (`--recompile`)"
_BYPASS = "the reason why torch bypassed the FX graph cache"
_TOLD = "lines of graphs that were compiled without capture"
_STORE = "the store"
_EVENTS = "events for Inductor's C++ kernels"

_OUTPUT = "torch._inductor.output_code"
ARTIFACT = Member(_OUTPUT, "CompiledFxGraph", _RECOMPILE)
FX_CACHE_KEY = Attribute(_OUTPUT, "CompiledFxGraph._fx_graph_cache_key", _KEYS)
CODE_KEY = Attribute(_OUTPUT, "CompiledFxGraph.cache_key", _KEYS)
SOURCE_CODE = Attribute(_OUTPUT, "CompiledFxGraph.source_code", _TOLD)
PRINTED_GRAPH = Attribute(_OUTPUT, "CompiledFxGraph.inductor_post_grad_graph_str", _TOLD)
FX_KWARGS = Attribute(_OUTPUT, "CompiledFxGraph.fx_kwargs", _REPLAYS)

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
CACHE_DIR = Member("torch._inductor.runtime.cache_dir_utils", "cache_dir", _STORE)

_TREES = "torch._inductor.cudagraph_trees"
WRAPPED_FUNCTION = Attribute(_TREES, "CUDAGraphNode.wrapped_function", _REPLAYS)
RECONSTRUCTED = Attribute(_TREES, "CUDAGraphNode.reconstructed_inputs", _REPLAYS)
NON_STATIC = Attribute(_TREES, "CUDAGraphNode.non_static_input_idx", _REPLAYS)
_TREE_UTILS = "torch._inductor.cudagraph_utils"
PLACEHOLDERS = Attribute(_TREE_UTILS, "WrappedFunction.placeholders", _REPLAYS)
PLACEHOLDER_NAME = Attribute(_TREE_UTILS, "PlaceholderInfo.name", _REPLAYS)
