"""The declared names of what Inductor has while it generates code: graphs, schedules, IR."""

from __future__ import annotations

from profiler_ext.torch_compat.private import Attribute, Member, OptionalAttribute

_SITES = "the call sites of a graph"
_EXACT = "the exact FX nodes of a kernel"
_MOVED = "estimates of bytes moved"
_CALLS = "what a library call reads, writes and is"
_NESTED = "what a nested graph launches"
_FUSIONS = "why two kernels were not fused"
_COPIES = "which input of an op a copy for its layout holds"

_VIRTUALIZED = "torch._inductor.virtualized"
_GRAPH = "torch._inductor.graph"
_SCHEDULER = "torch._inductor.scheduler"
_DEPENDENCIES = "torch._inductor.dependencies"
_IR = "torch._inductor.ir"

V = Member(_VIRTUALIZED, "V", _SITES, is_vital=True)
V_GRAPH = Attribute(_VIRTUALIZED, "_V.graph", _SITES, is_vital=True)

FX_GRAPH = Attribute("torch.fx.interpreter", "Interpreter.graph", _SITES, is_vital=True)
GRAPH_NAME = Attribute(_GRAPH, "GraphLowering.name", _NESTED)
SCHEDULER = Attribute(_GRAPH, "GraphLowering.scheduler", _EXACT)
NAME_TO_BUFFER = Attribute(_GRAPH, "GraphLowering.name_to_buffer", _EXACT)
GRAPH_INPUTS = Attribute(_GRAPH, "GraphLowering.graph_inputs", _EXACT)
OPERATIONS = Attribute(_GRAPH, "GraphLowering.operations", _COPIES)
GET_DTYPE = Attribute(_GRAPH, "GraphLowering.get_dtype", _MOVED)
IS_INFERENCE = Attribute(_GRAPH, "GraphLowering.is_inference", "the phase of a graph")
IS_BACKWARD = Attribute(_GRAPH, "GraphLowering.is_backward", "the phase of a graph")

SCHEDULER_NODE = Member(_SCHEDULER, "BaseSchedulerNode", _EXACT)
GET_NODES = Attribute(_SCHEDULER, "BaseSchedulerNode.get_nodes", _EXACT)
IR_NODE = Attribute(_SCHEDULER, "BaseSchedulerNode.node", _EXACT)
READ_WRITES = Attribute(_SCHEDULER, "BaseSchedulerNode.read_writes", _EXACT)
IS_TEMPLATE = Attribute(_SCHEDULER, "BaseSchedulerNode.is_template", _EXACT)
LEAF_NAME = Attribute(_SCHEDULER, "BaseSchedulerNode.get_name", _MOVED)
LEAF_SCHEDULER = Attribute(_SCHEDULER, "BaseSchedulerNode.scheduler", _MOVED)
MUTATION_REAL_NAME = Attribute(_SCHEDULER, "Scheduler.mutation_real_name", _EXACT)
SCHEDULER_OUTPUTS = Attribute(_SCHEDULER, "BaseSchedulerNode.get_outputs", _COPIES)
USER_NODE = Attribute(_SCHEDULER, "NodeUser.node", _COPIES)
NAME_TO_BUF = Attribute(_SCHEDULER, "Scheduler.name_to_buf", _MOVED)
BUFFER_USERS = Attribute(_SCHEDULER, "SchedulerBuffer.users", _MOVED)
USER_NAME = Attribute(_SCHEDULER, "NodeUser.get_name", _MOVED)
USER_IS_WEAK = Attribute(_SCHEDULER, "NodeUser.is_weak", _MOVED)
SCHEDULED = Attribute(_SCHEDULER, "Scheduler.nodes", _FUSIONS)
REFUSED_FIRST = Attribute(_SCHEDULER, "WhyNoFuse.name1", _FUSIONS)
REFUSED_SECOND = Attribute(_SCHEDULER, "WhyNoFuse.name2", _FUSIONS)
MUTATION_RENAMES = Attribute(_SCHEDULER, "Scheduler.mutation_renames", _MOVED)

READS = Attribute(_DEPENDENCIES, "ReadWrites.reads", _EXACT)
WRITES = Attribute(_DEPENDENCIES, "ReadWrites.writes", _EXACT)
DEP_NAME = Attribute(_DEPENDENCIES, "Dep.name", _EXACT)
WEAK_DEP = Member(_DEPENDENCIES, "WeakDep", _EXACT)
STAR_DEP = Member(_DEPENDENCIES, "StarDep", _MOVED)
NUMBYTES_HINT = Attribute(_DEPENDENCIES, "Dep.numbytes_hint", _MOVED)
IS_INDIRECT = Attribute(_DEPENDENCIES, "MemoryDep.is_indirect", _MOVED)

TRAFFIC = (
    GET_DTYPE,
    LEAF_NAME,
    LEAF_SCHEDULER,
    NAME_TO_BUF,
    BUFFER_USERS,
    USER_NAME,
    USER_IS_WEAK,
    MUTATION_RENAMES,
    STAR_DEP,
    NUMBYTES_HINT,
    IS_INDIRECT,
)
"""What tells the bytes that a kernel moves; without one of them a cruder estimate stands."""

ORIGINS = Attribute(_IR, "IRNode.origins", _EXACT)
ORIGIN_NODE = Attribute(_IR, "IRNode.origin_node", _EXACT)
GET_ORIGIN_NODE = Attribute(_IR, "IRNode.get_origin_node", _EXACT)
GET_NAME = Attribute(_IR, "IRNode.get_name", _EXACT)
MAYBE_GET_NAME = Attribute(_IR, "IRNode.maybe_get_name", _CALLS)
OPERATION = Member(_IR, "Operation", _FUSIONS)
OPERATION_NAME = Attribute(_IR, "Operation.get_operation_name", _FUSIONS)
GET_ORIGINS = Attribute(_IR, "Operation.get_origins", _COPIES)
COMPUTED_BUFFER = Member(_IR, "ComputedBuffer", _COPIES)
BUFFER_DATA = Attribute(_IR, "ComputedBuffer.data", _COPIES)
POINTWISE = Member(_IR, "Pointwise", _COPIES)
INPUTS_KERNEL = Member(_IR, "InputsKernel", _COPIES)
KERNEL_INPUTS = Attribute(_IR, "InputsKernel.inputs", _CALLS)

EXTERN_KERNEL = Member(_IR, "ExternKernel", _CALLS)
GET_READ_WRITES = Attribute(_IR, "ExternKernel.get_read_writes", _CALLS)
GET_MUTATION_NAMES = Attribute(_IR, "ExternKernel.get_mutation_names", _CALLS)
GET_OUTPUTS = Attribute(_IR, "ExternKernel.get_outputs", _CALLS)
KERNEL_NAME = Attribute(_IR, "ExternKernel.try_get_kernel_name", _CALLS)
PYTHON_KERNEL_NAME = Attribute(_IR, "ExternKernel.python_kernel_name", _CALLS)
OP_OVERLOAD = Attribute(_IR, "ExternKernel.op_overload", _CALLS)
USER_TRITON = Member(_IR, "UserDefinedTritonKernel", _CALLS)
DEVICE_COPY = Member(_IR, "DeviceCopy", _CALLS)
WITHOUT_COMMENT = (
    DEVICE_COPY,
    Member(_IR, "IndexPutFallback", _SITES),
    Member(_IR, "InplaceBernoulliFallback", _SITES),
    Member(_IR, "InplaceCopyFallback", _SITES),
    Member(_IR, "MutatingFirstArgExternKernel", _SITES),
    Member(_IR, "ScatterFallback", _SITES),
)
"""The classes whose ``codegen`` calls no ``codegen_comment``."""

SUBGRAPH = Member(_IR, "Subgraph", _NESTED)
SUBGRAPH_NAME = Attribute(_IR, "Subgraph.name", _NESTED)
SUBGRAPH_GRAPH = Attribute(_IR, "Subgraph.graph", _NESTED)
SUBGRAPH_BUFFER = Member(_IR, "SubgraphBuffer", _NESTED)
BUFFER_SUBGRAPH = Attribute(_IR, "SubgraphBuffer.subgraph", _NESTED)
LOOP = Member(_IR, "WhileLoop", _NESTED)
LOOP_CONDITION = Attribute(_IR, "WhileLoop.cond_subgraph", _NESTED)
LOOP_BODY = Attribute(_IR, "WhileLoop.body_subgraph", _NESTED)

_CHOICES = "what autotuning chose among, and the times of the others"
MADE_OPERATION = Attribute(_IR, "MutableBox.get_operation_name", _CHOICES)
CHOICE_NAME = Attribute(_IR, "ChoiceCaller.name", _CHOICES)
CHOICE_CONFIG = Attribute(_IR, "ChoiceCaller.description", _CHOICES)
LIBRARY_CHOICE = Member("torch._inductor.select_algorithm", "ExternKernelCaller", _CHOICES)
GRAPH_CHOICE = Member("torch._inductor.codegen.subgraph", "SubgraphChoiceCaller", _CHOICES)

_LINES = "the node of each line of a kernel (`inside`)"
_TRITON = "torch._inductor.codegen.triton"
_COMMON = "torch._inductor.codegen.common"
_BODY = "torch._inductor.loop_body"
V_KERNEL = Attribute(_VIRTUALIZED, "_V.kernel", _LINES)
V_INTERPRETER = Attribute(_VIRTUALIZED, "_V.interpreter", _LINES)
LOWERED_NODE = Attribute(_GRAPH, "GraphLowering.current_node", _LINES)
PARENT_GRAPH = Attribute(_GRAPH, "SubgraphLowering.parent", _LINES)
INNER_LOWERING = Member("torch._inductor.subgraph_lowering", "PointwiseSubgraphLowering", _LINES)
LOOPS = Member(_IR, "Loops", _LINES)
LOOP_FUNCTION = Attribute(_IR, "Loops.inner_fn", _LINES)
LOOP_FUNCTIONS = tuple(Attribute(_IR, f"{kind}.inner_fns", _LINES) for kind in ("Scan", "Sort"))
BODY_STEP = Attribute(_BODY, "InterpreterShim.current_node", _LINES)
BODY_TRACER = Member(_BODY, "LightTracer", _LINES)
TRACER_OF = OptionalAttribute("torch.fx.graph", "Graph._tracer_cls", _LINES)
KERNEL_NODE = Attribute(_COMMON, "Kernel.current_node", _LINES)
KERNEL_ARGS = Attribute(_COMMON, "Kernel.args", _LINES)
ARGS_IN = Attribute(_COMMON, "KernelArgs.input_buffers", _LINES)
ARGS_OUT = Attribute(_COMMON, "KernelArgs.output_buffers", _LINES)
ARGS_IN_OUT = Attribute(_COMMON, "KernelArgs.inplace_buffers", _LINES)
IN_OUT_NAME = Attribute(_COMMON, "InplacedBuffer.inner_name", _LINES)
IN_OUT_BUFFERS = Attribute(_COMMON, "InplacedBuffer.other_names", _LINES)
VALUE_NAME = Attribute(_COMMON, "CSEVariable.name", _LINES)
DEFERRED = Member("torch._inductor.utils", "DeferredLineBase", _LINES)
DEFERRED_TEXT = Attribute("torch._inductor.utils", "DeferredLineBase.line", _LINES)
PARTS_OF_COMBO = Attribute(
    "torch._inductor.codegen.triton_combo_kernel", "ComboKernel.sub_kernels", _LINES
)
TEMPLATE_KERNEL = Member("torch._inductor.select_algorithm", "TritonTemplateKernel", _LINES)
