"""The declared names of FX nodes: the keys of their metadata, and the operators they call."""

from __future__ import annotations

from profiler_ext.torch_compat.behaviour import TAGS_BACKWARD_NODES
from profiler_ext.torch_compat.private import Attribute, Key, Keys, Member

_LINKS = "the link from a backward node to its forward node"
_PHASES = "the phase of a node"
_LINES = "the source line of a node"
_MODULES = "the module of a node"
_OPS = "the ATen op of a node"
_SIZES = "the sizes of a node's values"
_INPUTS = "what the inputs of a graph are"
_REPLACED = "what a pattern's node replaced"
_REGIONS = "the nodes of a region that is compiled by itself"
_COPIED = "what each node of compiled autograd's graph was copied from"

_PROXY = "torch.fx.proxy"
_TRACEBACK = "torch.fx.traceback"
_DYNAMO = "torch._dynamo.output_graph"
_REGIONAL = "torch.fx.passes.regional_inductor"

SEQ_NR = Key(_PROXY, "'seq_nr'", _LINKS)
IS_GRADIENT_ACC = Key(_PROXY, "'is_gradient_acc'", _PHASES)
_TAGGING = "torch._functorch._aot_autograd.graph_capture_wrappers"
PARTITIONER_TAG = Key(_TAGGING, "'partitioner_tag'", _PHASES)
TAG_FORWARD = Key(_TAGGING, "'is_forward'", _PHASES)
TAG_MUST_BE_FORWARD = Key("torch._functorch.partitioners", "'must_be_in_forward'", _PHASES)
TAG_BACKWARD = Key(_TAGGING, "'is_backward'", _PHASES)
RECOMPUTE = Key("torch._functorch.partitioners", "'recompute'", _PHASES)
AUTOGRAD_BACKWARD = Key(*TAGS_BACKWARD_NODES.sign, _PHASES, comes_with=TAGS_BACKWARD_NODES)
ORIGINAL_ATEN = Key("torch.fx.experimental.proxy_tensor", "'original_aten'", _OPS)
STACK_TRACE = Key(_TRACEBACK, "'stack_trace'", _LINES)
CUSTOM = Key(_TRACEBACK, "'custom'", "the labels that a user gave")
NN_MODULE_STACK = Key(_DYNAMO, "'nn_module_stack'", _MODULES)
SOURCE_FN_STACK = Key(_DYNAMO, "'source_fn_stack'", _LINES)
_COPY_METADATA = "torch._functorch._aot_autograd.utils"
FWD_NN_MODULE_STACK = Key(_COPY_METADATA, "'fwd_nn_module_stack'", _MODULES)
FWD_SOURCE_FN_STACK = Key(_COPY_METADATA, "'fwd_source_fn_stack'", _LINES)
VAL = Key("torch.fx.experimental.proxy_tensor", "'val'", _SIZES)
EXAMPLE_VALUE = Key("torch._dynamo.utils", "'example_value'", _SIZES)
ORIGIN = Keys(
    (
        ORIGINAL_ATEN,
        SEQ_NR,
        STACK_TRACE,
        NN_MODULE_STACK,
        FWD_NN_MODULE_STACK,
        SOURCE_FN_STACK,
        FWD_SOURCE_FN_STACK,
        PARTITIONER_TAG,
        AUTOGRAD_BACKWARD,
        IS_GRADIENT_ACC,
        RECOMPUTE,
        CUSTOM,
    )
)
"""All that a node's origin is read from."""
FROM_NODE = Key(_TRACEBACK, "'from_node'", _REGIONS)
FROM_NAME = Attribute(_TRACEBACK, "NodeSource.name", _REGIONS)
DESC = Key("torch._functorch._aot_autograd.graph_capture", "'desc'", _INPUTS)
GRAPHARG = Key(_DYNAMO, "'grapharg'", _INPUTS)

REGION_MARK = Key(_REGIONAL, "'compile_with_inductor'", _REGIONS)
SCOOPED = Key(_REGIONAL, "'__marked_inductor_submod'", _REGIONS)

HAS_PRESERVED_META = Member(_TRACEBACK, "has_preserved_node_meta", _LINKS)
REPLAY_NODE = Member(_TRACEBACK, "get_current_replay_node", _MODULES)
PRESERVE_META = Member(_TRACEBACK, "preserve_node_meta", "seq_table")
CURRENT_META = Member(_TRACEBACK, "current_meta", "seq_table")
_GRAPH_MODULE = "torch.fx.graph_module"
REGISTER_REPLACE = Attribute(
    _GRAPH_MODULE, "GraphModule._register_replace_node_hook", _REPLACED, takes=("f",)
)
UNREGISTER_REPLACE = Attribute(
    _GRAPH_MODULE, "GraphModule._unregister_replace_node_hook", _REPLACED, takes=("f",)
)

_OPERATORS = "torch._ops"
OP_OVERLOAD = Member(_OPERATORS, "OpOverload", _OPS)
OVERLOADPACKET = Attribute(_OPERATORS, "OpOverload.overloadpacket", _OPS)
TAGS = Attribute(_OPERATORS, "OpOverload.tags", "which op draws random numbers")
SCHEMA = Attribute(_OPERATORS, "OpOverload._schema", "which op writes to its inputs")
SCHEMA_NAME = Attribute("torch._C", "FunctionSchema.name", _OPS)
IS_MUTABLE = Attribute("torch._C", "FunctionSchema.is_mutable", "which op writes to its inputs")
ARGUMENTS = Attribute("torch._C", "FunctionSchema.arguments", "which op draws random numbers")
ARGUMENT_NAME = Attribute("torch._C", "Argument.name", "which op draws random numbers")
ARGUMENT_DEFAULT = Attribute("torch._C", "Argument.default_value", "which op draws random numbers")
HIGHER_ORDER_OP = Member(_OPERATORS, "HigherOrderOperator", _OPS)
SYM_NODE = Attribute("torch", "SymInt.node", _SIZES)
SYM_HINT = Attribute("torch.fx.experimental.sym_node", "SymNode.hint", _SIZES)

FLOP_REGISTRY = Member("torch.utils.flop_counter", "flop_registry", "estimates of operations")

_DESCRIPTORS = "torch._functorch._aot_autograd.descriptors"
PLAIN_INPUT = Member(_DESCRIPTORS, "PlainAOTInput", _INPUTS)
INPUT_INDEX = Attribute(_DESCRIPTORS, "PlainAOTInput.idx", _INPUTS)
TANGENT_INPUT = Member(_DESCRIPTORS, "TangentAOTInput", _INPUTS)
TANGENT_OUTPUT = Attribute(_DESCRIPTORS, "TangentAOTInput.output", _INPUTS)
PLAIN_OUTPUT = Member(_DESCRIPTORS, "PlainAOTOutput", _INPUTS)
OUTPUT_INDEX = Attribute(_DESCRIPTORS, "PlainAOTOutput.idx", _INPUTS)

_TRITON = "torch._higher_order_ops.triton_kernel_wrap"
TRITON_KERNEL = Key(_TRITON, "'kernel_idx'", _LINES)
TRITON_CONSTANTS = Key(_TRITON, "'constant_args_idx'", _LINES)
TRITON_WRITES = Key(_TRITON, "'triton_kernel_wrapper_mutation'", _LINES)
TRITON_FUNCTIONAL = Key(_TRITON, "'triton_kernel_wrapper_functional'", _LINES)
FUNCTIONALIZED = Key("torch._higher_order_ops.auto_functionalize", "'auto_functionalized'", _LINES)

GET_PROXY_MODE = Member("torch.fx.experimental.proxy_tensor", "get_proxy_mode", _COPIED)
MODE_TRACER = Attribute(
    "torch.fx.experimental.proxy_tensor", "ProxyTorchDispatchMode.tracer", _COPIED
)
