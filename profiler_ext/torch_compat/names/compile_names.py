"""Owns the declared names of what torch tells of its compiles: times, reasons, caches."""

from __future__ import annotations

from profiler_ext.torch_compat.private import Attribute, Key, Member, OptionalAttribute

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
