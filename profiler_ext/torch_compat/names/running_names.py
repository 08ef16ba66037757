"""The declared names of what runs: Dynamo, autograd, compiled autograd, the profiler."""

from __future__ import annotations

from profiler_ext.torch_compat.behaviour import HANDS_BACKWARD_AS_SPEC, RESTORES_SCHEDULED_ACTION
from profiler_ext.torch_compat.private import Attribute, Inner, Key, Member, OptionalAttribute

_KEYS = "the link from a launch to its graph"
_MODULES = "the module of a node"
_INPUTS = "what the inputs of a graph are"
_GRADIENTS = "which forward op each op of a gradient taken inside the function differentiates"
_COPIED = "what each node of compiled autograd's graph was copied from"
_RUNNING = "which backwards a call of compiled autograd's graph runs"
_EVENTS = "events for C++ kernels, and the module that a compiled region was called on"
_STEPS = "the end of a step whose optimizer is compiled"
_FILES = "the file of a function within one that is equal to another file's"
_EAGER_LINES = "the lines of eager work in code that Dynamo wrote"
_SKIPPED = "that Dynamo leaves the hooks alone"
_JOINT = "seq_table"

CURRENT_COMPILE_ID = Member("torch._guards", "CompileContext.current_compile_id", _KEYS)

HISTORY_ENABLED = Member(
    "torch._C", "_cuda_isHistoryEnabled", "the settings that slow each op", is_of_gpu=True
)

_MEMORY = "the memory of recorded steps"
RECORD_HISTORY = Member(
    "torch.cuda.memory",
    "_record_memory_history_impl",
    _MEMORY,
    takes=("enabled", "context", "stacks", "max_entries", "clear_history"),
)
MEMORY_SNAPSHOT = Member("torch.cuda.memory", "_snapshot", _MEMORY)
BUCKETS_OF_REDUCER = Attribute(
    "torch._C._distributed_c10d",
    "Reducer._get_zeros_like_grad_buckets",
    "the buckets of DistributedDataParallel",
    is_lazy=True,
)
DISPATCH_MODE = Member(
    "torch.utils._python_dispatch",
    "TorchDispatchMode",
    "the buckets of DistributedDataParallel",
)
FAKE_TENSOR = Member("torch._subclasses.fake_tensor", "FakeTensor", _MEMORY)
_TREES, _POOLS = "torch._inductor.cudagraph_trees", "what was recorded in a CUDA graph's pool"
TREE_MANAGER = Member(
    _TREES,
    "get_manager",
    _POOLS,
    takes=("device_index", "create_if_none_exists"),
    is_lazy=True,
)
POOL_OF_TREES = Attribute(
    _TREES, "CUDAGraphTreeManager.cuda_graphs_thread_pool", _POOLS, is_lazy=True
)

_OUT_OF_MEMORY = "the report of what was alive when memory ran out"
LAZY_CALL = Member("torch.cuda", "_lazy_call", _OUT_OF_MEMORY, takes=("callable",))
ATTACH_OBSERVER = Member(
    "torch._C", "_cuda_attach_out_of_memory_observer", _OUT_OF_MEMORY, is_of_gpu=True
)

_DYNAMO = "torch._dynamo.output_graph"
LOCAL_SCOPE = Attribute(_DYNAMO, "OutputGraph.local_scope", _MODULES)
GLOBAL_SCOPE = Attribute(_DYNAMO, "OutputGraph.global_scope", _MODULES)
ROOT_TX = Attribute(_DYNAMO, "OutputGraph.root_tx", _MODULES)
TRACED_CODE = Attribute(_DYNAMO, "OutputGraph.traced_code", _FILES)
FRAME_CODE = Attribute(
    "torch._dynamo.symbolic_convert", "InstructionTranslatorBase.f_code", _MODULES
)
GRAPHARG_SOURCE = Attribute("torch._dynamo.variables.builder", "GraphArg.source", _INPUTS)
LOCAL_SOURCE = Member("torch._dynamo.source", "LocalSource", _INPUTS)
IS_INPUT = Attribute("torch._dynamo.source", "LocalSource.is_input", _INPUTS)
MODULE_SOURCE = Member("torch._dynamo.source", "NNModuleSource", _INPUTS)
SOURCE_BASE = Attribute("torch._guards", "ChainedSource.base", _INPUTS)
SOURCE_NAME = Attribute("torch._guards", "Source.name", _INPUTS)
STRIP_INIT = Member("torch._dynamo.trace_rules", "_strip_init_py", _SKIPPED, is_vital=True)
SKIP_DIRS = Member("torch._dynamo.trace_rules", "SKIP_DIRS", _SKIPPED, is_vital=True)
RECOMPILE_RULES = Member("torch._dynamo.trace_rules", "_recompile_re", _SKIPPED, is_vital=True)
ADD_RULE = Member(
    "torch._dynamo.trace_rules", "add", _SKIPPED, takes=("import_name",), is_vital=True
)

RESUMED_CODE = Key(
    "torch._dynamo.resume_execution",
    "'torch_dynamo_resume_in'",
    "the lines of code that Dynamo goes on with after a graph break",
    is_lazy=True,
)
"""What the names of that code begin with."""
ORIGINAL_CODES = Member("torch._dynamo.utils", "orig_code_map", _EAGER_LINES, is_lazy=True)
"""What Dynamo made code of, since its last reset."""
RESUMED_CODES = Member(
    "torch._dynamo.resume_execution",
    "ContinueExecutionCache.generated_code_metadata",
    _EAGER_LINES,
    is_lazy=True,
)
"""The code that Dynamo goes on with, as it was before it was compiled."""

_EVAL_FRAME = "torch._dynamo.eval_frame"
COMPILE_WRAPPER = Inner(_EVAL_FRAME, "compile_wrapper()", _STEPS)
COMPILING = Member(
    _EVAL_FRAME,
    "_TorchDynamoContext.__call__",
    "which compiled function it is whose calls are steps",
    takes=("fn",),
)
"""The function around :data:`COMPILE_WRAPPER`, whose parameter that one calls."""
OPTIMIZED_MODULE = Member(_EVAL_FRAME, "OptimizedModule", _JOINT)
ORIGINAL_MODULE = OptionalAttribute(_EVAL_FRAME, "'_orig_mod'", _JOINT)
_CHECKPOINT = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
CHECKPOINT_WRAPPER = Member(_CHECKPOINT, "CheckpointWrapper", _MODULES, is_lazy=True)
CHECKPOINT_MODULE = OptionalAttribute(
    _CHECKPOINT, "'_checkpoint_wrapped_module'", _MODULES, is_lazy=True
)
_FSDP = "torch.distributed.fsdp.fully_sharded_data_parallel"
FSDP_WRAPPER = Member(_FSDP, "FullyShardedDataParallel", _MODULES, is_lazy=True)
FSDP_MODULE = OptionalAttribute(
    "torch.distributed.fsdp._common_utils", "'_fsdp_wrapped_module'", _MODULES, is_lazy=True
)
BACKEND_FAILED = Member("torch._dynamo.exc", "BackendCompilerFailed", _JOINT)
INNER_EXCEPTION = Attribute("torch._dynamo.exc", "BackendCompilerFailed.inner_exception", _JOINT)

CURRENT_NODE = Member("torch._C", "_current_autograd_node", _GRADIENTS)
LAST_SEQUENCE_NR = Member("torch._C._autograd", "_get_sequence_nr", _GRADIENTS)
NODE_SEQUENCE_NR = Attribute("torch.autograd.graph", "Node._sequence_nr", _GRADIENTS)

_WRAPPERS = "torch._functorch._aot_autograd.runtime_wrappers"
COMPILED_BACKWARD = Member("torch.autograd.function", "BackwardCFunction", _RUNNING)
FORWARD_CLASS = OptionalAttribute("torch.autograd.function", "'_forward_cls'", _RUNNING)
AOT_ID = OptionalAttribute(_WRAPPERS, "CompiledFunction()._aot_id", _RUNNING)
RUNTIME_WRAPPER = Inner(
    "torch._dynamo.compiled_autograd", "runtime_wrapper()", _RUNNING, takes=("hooks",)
)
SPEC = Member(*HANDS_BACKWARD_AS_SPEC.sign, _COPIED, comes_with=HANDS_BACKWARD_AS_SPEC)
SPEC_CONFIG = Attribute(
    _WRAPPERS,
    "AOTDispatchAutogradCompileSpec.aot_config",
    _COPIED,
    comes_with=HANDS_BACKWARD_AS_SPEC,
)
SPEC_BACKWARD = Attribute(
    _WRAPPERS,
    "AOTDispatchAutogradCompileSpec.lazy_backward_info",
    _COPIED,
    comes_with=HANDS_BACKWARD_AS_SPEC,
)
CONFIG_AOT_ID = Attribute("torch._functorch._aot_autograd.schemas", "AOTConfig.aot_id", _COPIED)
TRACED_INFO = Member(_WRAPPERS, "AutogradLazyBackwardCompileInfo", _COPIED)
TRACED_BACKWARD = Attribute(_WRAPPERS, "AutogradLazyBackwardCompileInfo.bw_module", _COPIED)
CACHED_INFO = Member(_WRAPPERS, "CachedAutogradLazyBackwardCompileInfo", _COPIED)
CACHED_BACKWARD = Attribute(
    _WRAPPERS, "CachedAutogradLazyBackwardCompileInfo.bw_module_fn", _COPIED
)
WRAPPED_GRAPH = Attribute("torch._dynamo.utils", "GmWrapper.gm", _COPIED)
UNSET_FAKE = Member("torch._subclasses.fake_tensor", "unset_fake_temporarily", _COPIED)

EXPORT_JOINT = Member(
    "torch._functorch.aot_autograd", "_aot_export_function", _JOINT, takes=("func", "args")
)

PROFILER_ENABLED = Member("torch.autograd.profiler", "_is_profiler_enabled", _EVENTS)
_OWN_PROFILER = "that the program's own profiler is noticed"
PROFILER_ENABLED_ON_THREAD = Member("torch._C._autograd", "_profiler_enabled", _OWN_PROFILER)
ENABLE_RECORD_FUNCTION = Member("torch._C._autograd", "_enable_record_function", _OWN_PROFILER)
PREPARE_PROFILER = Member("torch.autograd.profiler", "_prepare_profiler", _OWN_PROFILER)
ENABLE_PROFILER = Member("torch.autograd.profiler", "_enable_profiler", _OWN_PROFILER)
DISABLE_PROFILER = Member("torch.autograd.profiler", "_disable_profiler", _OWN_PROFILER)
RECORD_FUNCTION = Member("torch._C._profiler", "_RecordFunctionFast", _EVENTS)
_THREADS = "operators of every thread"
PROFILER_CONFIG = Member("torch._C._profiler", "_ExperimentalConfig", _THREADS)
EXPERIMENTAL_CONFIG = Attribute("torch.autograd.profiler", "profile.experimental_config", _THREADS)
MODULE_CALL = Member(
    "torch.nn.modules.module",
    "Module._wrapped_call_impl",
    "the module of eager work, and the end of a step with `run --step-on forward`",
    takes=("self",),
)
AFTER_OPTIMIZER = Member(
    "torch.optim.optimizer",
    "register_optimizer_step_post_hook",
    "the end of a step",
    takes=("hook",),
)
DEFAULT_STORE = Member(
    "torch.distributed.distributed_c10d",
    "_get_default_store",
    "that ranks end together with `run --stop`",
    is_lazy=True,
)
_PROFILER = "torch.profiler.profiler"
RECORD_STEPS = Attribute(_PROFILER, "profile.record_steps", "the steps of a script's own profiler")
STEP_NUM = Attribute(_PROFILER, "profile.step_num", "a clean begin of the first step")
SCHEDULED_ACTION = Attribute(
    *RESTORES_SCHEDULED_ACTION.sign, _OWN_PROFILER, comes_with=RESTORES_SCHEDULED_ACTION
)
CURRENT_ACTION = Attribute(_PROFILER, "profile.current_action", "a clean begin of the first step")

_INSIDE = "what the time inside a kernel is spent on (`inside`)"
_HEURISTICS = "torch._inductor.runtime.triton_heuristics"
KERNEL_FILE = Attribute(_HEURISTICS, "CachingAutotuner.filename", _INSIDE, is_lazy=True)
KERNEL_LAUNCHERS = Attribute(_HEURISTICS, "CachingAutotuner.launchers", _INSIDE, is_lazy=True)
# Its launcher has it too, by the same name
LAUNCHER_CONFIG = Attribute(_HEURISTICS, "CompileResult.config", _INSIDE, is_lazy=True)
ASYNC_COMPILE = Member("torch._inductor.async_compile", "AsyncCompile", _INSIDE, is_lazy=True)
COMPILE_TRITON = Attribute(
    "torch._inductor.async_compile", "AsyncCompile.triton", _INSIDE, is_lazy=True
)
# Has Triton use the assembler that came with torch, where there is one
USE_TORCHS_PTXAS = Member(
    "torch._inductor.runtime.compile_tasks", "_set_triton_ptxas_path", _INSIDE, is_lazy=True
)
COMPILE_FUTURE = Member("torch._inductor.codecache", "CodeCacheFuture", _INSIDE, is_lazy=True)
COMPILE_RESULT = Attribute(
    "torch._inductor.codecache", "CodeCacheFuture.result", _INSIDE, is_lazy=True
)
