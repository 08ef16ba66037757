"""The places in torch that capture observes, with the shape each must have.

Source: torch 2.11 to 2.15, ``torch/_inductor`` and ``torch/_dynamo``.
"""

from __future__ import annotations

from profiler_ext.torch_compat.patches import Point

_SITE = ("node_schedule", "kernel_name", "is_extern")
_SITES = "the call sites of a graph"
_WRITTEN = (
    "each kernel's call as Inductor writes it, in the order of the launches: the schedule that it "
    "computes, and its name"
)

CALL_SITES = tuple(
    Point(module, "set_kernel_post_grad_provenance_tracing", _SITE, _SITES, _WRITTEN)
    for module in (
        "torch._inductor.debug",
        "torch._inductor.codegen.triton",
        "torch._inductor.codegen.cpp",
    )
)
EXTERN_CALL = Point(
    "torch._inductor.scheduler",
    "Scheduler.codegen_extern_call",
    ("self", "scheduler_node"),
    "library calls that torch does not report",
    "each library call and each call of a nested graph as Inductor writes it",
)
KERNEL_COMMENT = Point(
    "torch._inductor.codegen.triton",
    "TritonScheduling.codegen_comment",
    ("self", "node_schedule", "kernel_name"),
    "mix-order reductions, which torch does not report",
    "the schedule of a kernel that has no name yet",
)
KERNEL_CALL = Point(
    "torch._inductor.codegen.wrapper",
    "PythonWrapperCodegen.generate_kernel_call",
    ("self", "kernel_name", "call_args"),
    "mix-order reductions, which torch does not report",
    "the name by which such a kernel is then called",
)
COMBO_KERNELS = Point(
    "torch._inductor.codegen.simd",
    "SIMDScheduling.generate_combo_kernel_code",
    ("self", "subkernel_nodes"),
    "which nodes each kernel of a combo computes",
    "the kernels of a combo, and the schedule of each",
)
_NOT_FUSED = "why two kernels were not fused"
NOT_FUSED = Point(
    "torch._inductor.scheduler",
    "WhyNoFuse.__call__",
    ("self", "reason"),
    _NOT_FUSED,
    "each reason for which the scheduler does not fuse two nodes",
    is_vital=False,
)
SCHEDULED = Point(
    "torch._inductor.scheduler",
    "Scheduler.codegen",
    ("self",),
    _NOT_FUSED,
    "the schedule of a graph, when nothing of it will be fused any more",
    is_vital=False,
)
_SELECTOR = "torch._inductor.select_algorithm"
_CHOICES = "what autotuning chose among, and the times of the others"
CHOICE = Point(
    _SELECTOR,
    "AlgorithmSelectorCache.__call__",
    ("self", "name", "choices"),
    _CHOICES,
    "each op for which Inductor may choose among library calls and templates",
    is_vital=False,
)
CHOICES_TIMED = Point(
    _SELECTOR,
    "AlgorithmSelectorCache.do_autotuning",
    ("self", "name", "choices", "hint_override"),
    _CHOICES,
    "the time of each choice, measured now or in an earlier compile",
    is_vital=False,
)
CHOICES_MEASURED = Point(
    _SELECTOR,
    "AlgorithmSelectorCache.autotune",
    ("self", "name", "choices"),
    _CHOICES,
    "that the choices are measured, as torch's cache has not all of them",
    is_vital=False,
)
DEFERRED_TIMES = Point(
    "torch._inductor.ir",
    "MultiTemplateBuffer.choice_timings",
    ("self", "hint_override"),
    _CHOICES,
    "the same where the choice waits for the scheduler, which may fuse a template",
    is_vital=False,
)
DEFERRED_CHOICE = Point(
    "torch._inductor.ir",
    "MultiTemplateBuffer.finalize_as_triton_caller",
    ("self", "caller"),
    _CHOICES,
    "the template that the scheduler chose",
    is_vital=False,
)
NODE_MADE = Point(
    "torch.fx.graph",
    "Graph.create_node",
    ("self", "op", "target"),
    "which forward op each op of a gradient taken inside the function differentiates",
    "each node that is added to a graph, while the autograd node runs that it is made for",
)
NODE_REPLACED = Point(
    "torch.fx.node",
    "Node.replace_all_uses_with",
    ("self", "replace_with"),
    "compiles in which a pass puts a number in the place of a node",
    "each node that a pass replaces: where a number takes its place, nothing is reported of it",
)
BACKWARD_BEGIN = Point(
    "torch._functorch._aot_autograd.graph_capture_wrappers",
    "setup_stacktrace_preservation_hooks",
    ("roots",),
    "which forward value a sum of gradients is of, where several may be",
    "where a backward begins that AOTAutograd traces: the nodes of its outputs",
)
JOINT_PASSES = Point(
    "torch._inductor.compile_fx",
    "_recursive_joint_graph_passes",
    ("gm",),
    "the link from a backward node to its forward node",
    "the joint graph before and after Inductor's passes, and what each of them replaced",
)
MIN_CUT_SOLVED = Point(
    "torch._functorch.partitioners",
    "solve_min_cut",
    ("joint_graph", "node_info", "min_cut_options"),
    "why a compiled forward saves a value for its backward",
    "the values that the partitioner saves, and those that it may not recompute",
    is_vital=False,
)
TENSORIFY = Point(
    "torch._functorch._aot_autograd.graph_compile",
    "_apply_tensorify_python_scalars",
    ("module",),
    "the lines of ops with a Python float, under `dynamic=True`",
    "the joint graph before and after Python floats become tensors in it",
)
TRACED_GRAPH = Point(
    "torch._functorch._aot_autograd.graph_compile",
    "run_joint_graph_passes_on_hops",
    ("joint_gm", "joint_inputs", "aot_config"),
    "the joint graph of regions that are compiled by themselves",
    "the joint graph as it was traced, with the bodies of its regions",
)
REGIONS = Point(
    "torch.fx.passes.regional_inductor",
    "_compile_inductor_marked_regions",
    ("gm",),
    "the graph that a region is a part of",
    "one half of a joint graph, before its marked regions are compiled",
)
REGION = Point(
    "torch._inductor",
    "standalone_compile",
    ("gm", "example_inputs"),
    "the nodes of a region that is compiled by itself",
    "the graph of one marked region",
)
POST_GRAD_PASSES = Point(
    "torch._inductor.compile_fx",
    "_recursive_post_grad_passes",
    ("gm", "is_inference"),
    "what a pattern's node replaced",
    "a forward or backward graph before and after Inductor's last passes, and what each of "
    "them replaced",
)
INNER_COMPILE = Point(
    "torch._inductor.compile_fx",
    "_compile_fx_inner",
    ("gm", "example_inputs"),
    "fresh source lines on an FX graph cache hit",
    "a forward or backward graph as it enters Inductor, before a cache answers",
)
CACHE_KEY = Point(
    "torch._inductor.codecache",
    "FxGraphCache.prepare_key",
    ("gm", "example_inputs"),
    "the reason why torch bypassed the FX graph cache",
    "the key that the FX graph cache has for a graph, or why it has none",
)
AUTOGRAD_CACHE_KEY = Point(
    "torch._functorch._aot_autograd.autograd_cache",
    "autograd_cache_key",
    (),
    "the reason why torch bypassed AOTAutograd's cache",
    "the error with which AOTAutograd's cache refuses a graph",
)
CACHE_CANDIDATES = Point(
    "torch._inductor.codecache",
    "GuardedCache.iterate_over_candidates",
    ("cls", "local", "remote_cache", "key"),
    "a compile of cached graphs that have no record (`--recompile`)",
    "the entries that a cache offers under one key; those with a record are moved first",
)
ARTIFACT_INIT = Point(
    "torch._inductor.output_code",
    "CompiledFxGraph.__init__",
    ("self", "current_callable", "graph", "gm"),
    "the provenance of a graph",
    "the artifact that was just compiled: its code, and its graph after all passes",
)
ARTIFACT_READY = Point(
    "torch._inductor.output_code",
    "CompiledFxGraph.post_compile",
    ("self", "example_inputs", "constants", "graph_kwargs"),
    "the graphs of this process, compiled or from a cache",
    "each artifact that becomes ready in this process, compiled here or from a cache",
)
ARTIFACT_CALL = Point(
    "torch._inductor.output_code",
    "CompiledFxGraph.__call__",
    ("self", "inputs"),
    "the end of a step whose optimizer is compiled, and which inputs of a graph another returned",
    "each call of a compiled graph",
)
CUDA_GRAPH = Point(
    "torch._inductor.cudagraph_trees",
    "CUDAGraphNode.__init__",
    ("self", "wrapped_function", "id"),
    "which inputs a CUDA graph copies before its replay",
    "each CUDA graph that is recorded of a compiled graph",
)
_PACKAGES = "the lines of AOTInductor's packages"
PACKAGE_COMPILE = Point(
    "torch._inductor.compile_fx",
    "compile_fx_aot",
    ("model_", "example_inputs_"),
    _PACKAGES,
    "each exported program that AOTInductor compiles",
    is_vital=False,
)
AHEAD_OF_TIME = Point(
    "torch._dynamo.aot_compile",
    "aot_compile_fullgraph",
    ("model",),
    "the modules of what is compiled ahead of time (`aot_compile`, vLLM)",
    "each function that is compiled ahead of time, whose backend runs without a compile id",
    is_vital=False,
)
PACKAGE_CODE = Point(
    "torch._inductor.codecache",
    "AotCodeCompiler.compile",
    ("cls", "graph", "wrapper_code"),
    _PACKAGES,
    "the files that AOTInductor made of a graph; the graph's record is added to them",
    is_vital=False,
)
PACKAGE_LOADED = Point(
    "torch.export.pt2_archive._package",
    "_load_aoti",
    ("file", "model_name"),
    _PACKAGES,
    "each model of a package as it is loaded; its record is read from the package",
    is_vital=False,
)
PACKAGE_CALL = Point(
    "torch.export.pt2_archive._package",
    "AOTICompiledModel.__call__",
    ("self",),
    _PACKAGES,
    "each call of a package, which is marked while a profiler records",
    is_vital=False,
)
_OWN_GRAPHS = "what is replayed by CUDA graphs that the program captures itself"
CAPTURE_BEGIN = Point(
    "torch.cuda.graphs",
    "CUDAGraph.capture_begin",
    ("self",),
    _OWN_GRAPHS,
    "the begin of each capture of a CUDA graph",
    is_vital=False,
)
CAPTURE_END = Point(
    "torch.cuda.graphs",
    "CUDAGraph.capture_end",
    ("self",),
    _OWN_GRAPHS,
    "the end of each capture of a CUDA graph, with the graph's nodes",
    is_vital=False,
)
GRAPHED_CALLABLES = Point(
    "torch.cuda",
    "make_graphed_callables",
    ("callables",),
    _OWN_GRAPHS,
    "the captures of a forward and of its backward, as one",
    is_vital=False,
)
REPLAY = Point(
    "torch.cuda.graphs",
    "CUDAGraph.replay",
    ("self",),
    _OWN_GRAPHS,
    "each replay of a CUDA graph",
    is_vital=False,
)
DYNAMO_GRAPH = Point(
    "torch._dynamo.output_graph",
    "OutputGraph.call_user_compiler",
    ("self", "gm"),
    "fresh source lines on an AOTAutograd cache hit",
    "Dynamo's graph and the frame that it is of, before AOTAutograd has it",
)
REGION_COMPARED = Point(
    "torch._dynamo.variables.higher_order_ops",
    "are_same_graph_modules",
    ("a_mod", "b_mod"),
    "the lines of a repeated region that is passed another function",
    "the trace of a call of a repeated region next to one that Dynamo has, and whether it drops it",
)
MODULE_LOAD = Point(
    "torch._inductor.codecache",
    "PyCodeCache.load_by_key_path",
    ("cls", "key", "path"),
    "events for Inductor's C++ kernels",
    "each module of generated code as it is loaded; observed with `cpu_events` only",
)

FLATTENED_GRAPH = Point(
    "torch._dynamo.utils",
    "GmWrapper.forward",
    ("self", "args"),
    "what each node of compiled autograd's graph was copied from",
    "compiled autograd's graph, when AOTAutograd traces it",
)
BACKWARD_MADE = Point(
    "torch._functorch._aot_autograd.runtime_wrappers",
    "AOTDispatchAutograd.post_compile",
    (),
    "the backward graphs that compiled autograd copies",
    "each backward graph, when AOTAutograd has it ready for autograd",
)
FRAME_EDGE = Point(
    "torch._dynamo.eval_frame",
    "_maybe_set_eval_frame",
    (),
    "the end of a step whose optimizer is compiled",
    "where a compiled function begins and ends",
)
PROFILER_STEP = Point(
    "torch.profiler",
    "profile.step",
    ("self",),
    "the end of a step where the script calls its own profiler",
    "each step that the script reports to its own profiler",
)
PROFILER_STOP = Point(
    "torch.profiler",
    "profile.stop",
    ("self",),
    "the end of a step where the script's own profiler is over",
    "the end of the script's own profiler, after which another mark ends its steps",
)
_OPEN = "that no recording of `run --every` begins while a region of the one before is open"
RANGE_ENTER, RANGE_EXIT = (
    Point("torch.autograd.profiler", f"record_function.{name}", ("self",), _OPEN, sees, False)
    for name, sees in (
        ("__enter__", "each region that the program marks; with `run --every` and `--slow` only"),
        ("__exit__", "the end of it"),
    )
)
BACKWARD_RUN = Point(
    "torch.autograd",
    "_engine_run_backward",
    ("t_outputs",),
    "which nodes of autograd hold a block of memory (`run --memory`)",
    "each backward, before it begins; while memory is recorded only",
    is_vital=False,
)


_TIMES = "what compiling took, by phase"
_RECOMPILES = "why functions were compiled again"
_BREAKS = "where Dynamo broke a graph, and why"
COMPILE_BEGIN = Point(
    "torch._dynamo.utils",
    "ChromiumEventLogger.log_event_start",
    ("self", "event_name", "time_ns", "compile_id"),
    _TIMES,
    "the begin of each part of a compile that torch times",
    is_vital=False,
)
COMPILE_END = Point(
    "torch._dynamo.utils",
    "ChromiumEventLogger.log_event_end",
    ("self", "event_name", "time_ns", "start_time_ns"),
    _TIMES,
    "the end of it",
    is_vital=False,
)
COMPILE_METRICS = Point(
    "torch._dynamo.utils",
    "CompilationMetrics.create",
    ("cls", "metrics"),
    "which function a compile is of, and why it failed",
    "what torch says of a compile when it is over",
    is_vital=False,
)
CACHE_ANSWER = Point(
    "torch._dynamo.utils",
    "CompileEventLogger.instant",
    ("event_name", "metadata"),
    "what torch's caches answered, and why",
    "the answer of a cache, with the guard or the reason why it missed",
    is_vital=False,
)
RECOMPILE = Point(
    "torch._dynamo.convert_frame",
    "get_and_maybe_log_recompilation_reasons",
    ("frame",),
    _RECOMPILES,
    "the guards that failed, when a function is compiled again",
    is_vital=False,
)
GRAPH_BREAK = Point(
    "torch._dynamo.symbolic_convert",
    "InstructionTranslatorBase.log_graph_break",
    ("self", "code_options", "reason", "exc"),
    _BREAKS,
    "each graph break, with its reason and stack",
    is_vital=False,
)
KERNEL_LAUNCHED = Point(
    "torch._inductor.runtime.triton_heuristics",
    "CachingAutotuner.run",
    ("self", "args", "stream"),
    "what the time inside a kernel is spent on (`inside`)",
    "each launch of a generated Triton kernel, with its arguments",
    is_vital=False,
)

_LINES = "the node of each line of a kernel (`inside`)"
LOOPS_MADE = Point(
    "torch._inductor.ir",
    "IRNode.__post_init__",
    ("self",),
    _LINES,
    "each loop of Inductor's, while the node is lowered that it is of; with `inside` only",
    is_vital=False,
)
INNER_STEP = Point(
    "torch.fx.interpreter",
    "Interpreter.run_node",
    ("self", "n"),
    _LINES,
    "each node of a graph that a template inlines, as it is lowered; with `inside` only",
    is_vital=False,
)
LINE_WRITTEN = Point(
    "torch._inductor.utils",
    "IndentedBuffer.writeline",
    ("self", "line"),
    _LINES,
    "each line of generated code as it is written; with `inside` only",
    is_vital=False,
)
VALUE_NAMED = Point(
    "torch._inductor.codegen.common",
    "CSE.generate",
    ("self", "buffer", "expr"),
    _LINES,
    "each value of a kernel, which several nodes may share; with `inside` only",
    is_vital=False,
)
KERNEL_CODE = Point(
    "torch._inductor.codegen.triton",
    "TritonScheduling.define_kernel",
    ("self", "src_code", "node_schedule", "kernel"),
    _LINES,
    "the code of each generated kernel, at each call of it; with `inside` only",
    is_vital=False,
)
KERNEL_TEXT = Point(
    "torch._inductor.codegen.wrapper",
    "PythonWrapperCodegen.define_kernel",
    ("self", "kernel_name", "kernel_body"),
    _LINES,
    "the text of each kernel as it stands in the generated module; with `inside` only",
    is_vital=False,
)
USER_KERNEL = Point(
    "torch._inductor.codegen.wrapper",
    "PythonWrapperCodegen.define_user_defined_triton_kernel",
    ("self", "kernel"),
    _LINES,
    "each call of a kernel that the program wrote; with `inside` only",
    is_vital=False,
)

ALL = (*CALL_SITES, *(each for each in tuple(vars().values()) if isinstance(each, Point)))

MEMORY_BUDGET = "torch._functorch.config.activation_memory_budget"
"""The part of their activations that graphs which are compiled later may keep; 1 is torch's own."""
