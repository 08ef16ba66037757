"""The bytes and operations of one call: of a call site by its nodes, of an eager op by shapes.

A call site's were estimated when the graph was compiled; a copy's are in the trace. A library call
without a formula in torch is unknown: a sort, say, passes over its memory several times.

The formulas are those of ``torch/utils/flop_counter.py``, without torch: two operations for each
factor. They differ where torch counts too much: the gradient of a grouped convolution's weight,
causal attention, and the layout of ``_flash_attention_forward``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from profiler_ext.kineto.op_inputs import OpInput
from profiler_ext.records.provenance import CallSite, FxNode, GraphInstance
from profiler_ext.records.vocabulary import SiteKind
from profiler_ext.rooflines.compute_units import Unit, UnitEvidence

_TENSOR_DTYPES = {
    "bfloat16": Unit.BF16_TENSOR,
    "float16": Unit.FP16_TENSOR,
    "float8_e4m3fn": Unit.FP8_TENSOR,
    "float8_e5m2": Unit.FP8_TENSOR,
}
_MATRIX = frozenset({"mm", "addmm", "bmm", "baddbmm", "_scaled_mm"})
_ATTENTION = (
    *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention"),
    *("_scaled_dot_product_cudnn_attention", "_efficient_attention", "_flash_attention"),
    "flex_attention",
)
_CONVOLUTION = (
    *("convolution", "_convolution", "cudnn_convolution", "_slow_conv2d_forward"),
    "convolution_backward",
)
# Those that torch's flop counter has a formula for, and FlexAttention, which capture counts.
_PRODUCTS = frozenset(
    {
        *_MATRIX,
        *_CONVOLUTION,
        *_ATTENTION,
        *(f"{name}_forward" for name in _ATTENTION),
        *(f"{name}_backward" for name in _ATTENTION),
    }
)
_GENERATED = (SiteKind.TRITON, SiteKind.CPP)
# Indexed additions wait for others at the same index.
_SCATTERS = frozenset(
    {
        *("index_put", "index_put_", "_unsafe_index_put", "index_add", "index_reduce"),
        *("scatter", "scatter_add", "scatter_reduce", "embedding_dense_backward"),
    }
)
Sizes = tuple[int, ...]
Inputs = tuple[OpInput, ...]
_BYTES = {
    **dict.fromkeys(("float64", "int64"), 8),
    **dict.fromkeys(("float32", "int32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16"), 2),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "int8", "uint8", "bool"), 1),
}
# Each element of the result is made of one element of each input.
_POINTWISE = frozenset(
    {
        *("add", "sub", "mul", "div", "neg", "abs", "pow", "sqrt", "rsqrt", "reciprocal", "exp"),
        *("log", "sin", "cos", "tanh", "erf", "sigmoid", "relu", "gelu", "silu", "leaky_relu"),
        *("clamp", "clamp_min", "clamp_max", "maximum", "minimum", "where", "masked_fill"),
        *("addcmul", "addcdiv", "lerp", "gelu_backward", "silu_backward", "sigmoid_backward"),
        *("tanh_backward", "threshold_backward", "leaky_relu_backward", "hardtanh"),
        *("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"),
    }
)
_BOOLEAN_OPS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and"})
_WRITES_ONLY = frozenset({"fill_", "zero_"})


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a call."""

    bytes: int | None = None  # loads and stores, each buffer once; ``None`` where unknown
    flops: int | None = None  # floating-point operations; ``None`` where unknown
    # The operations are those of matrix products, convolutions or attention
    is_product: bool = False
    is_complete: bool = False  # nothing else is known to take time, so that it has a roofline
    unit: Unit | None = None  # the unit by its operands or its code
    evidence: UnitEvidence | None = None  # the source of the unit


NOTHING_KNOWN = Work()


def is_product(op: str) -> bool:
    """Tell whether an ATen op is a product whose operations can be counted."""
    return op in _PRODUCTS


def unit_of_operands(dtype: str | None) -> Unit | None:
    """Return the tensor cores' unit for products of a dtype; float32 has several."""
    return _TENSOR_DTYPES.get(dtype or "")


def nodes_of(graph: GraphInstance) -> Mapping[str, FxNode]:
    """Return the nodes of a graph by name; none where nothing is known of it."""
    return {} if graph.provenance is None else {n.name: n for n in graph.provenance.nodes}


def has_fixed_sizes(known: Mapping[str, FxNode]) -> bool:
    """Tell whether each call of a graph does the same work."""
    # Estimates of a graph with dynamic sizes hold for the sizes that it was compiled with.
    specs = (spec for node in known.values() for spec in node.outputs)
    return all(_number(str(size)) is not None for spec in specs for size in spec.size)


def work_of_site(site: CallSite, known: Mapping[str, FxNode], is_fixed: bool) -> Work:
    """Return the work of a call site."""
    # is_fixed: whether its graph has fixed sizes; else the amount is unknown
    nodes = [known[name] for name in site.nodes if name in known]
    products = [node for node in nodes if is_product(_op(node))]
    moved, flops = (_number(text) if is_fixed else None for text in (site.bytes_moved, site.flops))
    if site.kind in _GENERATED:
        if "_poi_" not in site.kernel and _MATRIX & {_op(node) for node in products}:
            return Work(moved)  # a product within a loop, whose operations capture does not count
        # Of a product there is the bias here, or an input's copy in another layout.
        is_complete = not _SCATTERS & {_op(node) for node in nodes}
        return Work(
            moved, flops, False, is_complete, _generated_unit(nodes), UnitEvidence.GENERATED
        )
    if products and site.kind is not SiteKind.USER_TRITON:
        unit = _operand_unit(products, known)
        evidence = None if unit is None else UnitEvidence.OPERANDS
        return Work(moved, flops, True, True, unit, evidence)
    # What the program's own Triton kernel or an unknown library computes is unknown.
    return Work(moved)


def _number(expression: str | None) -> int | None:
    # With dynamic shapes an estimate is a formula of sizes that the trace does not hold.
    return int(expression) if expression is not None and expression.isdecimal() else None


def _op(node: FxNode) -> str:
    parts = node.target.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def _operand_unit(products: list[FxNode], known: Mapping[str, FxNode]) -> Unit | None:
    units = {unit_of_operands(_operand_dtype(node, known)) for node in products}
    return units.pop() if len(units) == 1 else None


def _operand_dtype(node: FxNode, known: Mapping[str, FxNode]) -> str | None:
    """Return the dtype of a product's factors: that of its result, unless it is scaled."""
    if _op(node).startswith("_scaled_mm") or node.target.endswith(".dtype"):
        read = (known[name].outputs for name in node.inputs if name in known)
        dtypes = {specs[0].dtype for specs in read if specs} & _TENSOR_DTYPES.keys()
        narrow = {dtype for dtype in dtypes if dtype.startswith("float8")}
        return min(narrow, default=None)
    return node.outputs[0].dtype if node.outputs else None


def _generated_unit(nodes: list[FxNode]) -> Unit:
    dtypes = {spec.dtype for node in nodes for spec in node.outputs}
    return Unit.FP64 if "float64" in dtypes else Unit.FP32


@dataclass(frozen=True, slots=True)
class Product:
    """A product."""

    flops: int  # floating-point operations
    outputs: tuple[Sizes, ...]  # the sizes of its results
    is_narrowed: bool = False  # its results have another dtype than its factors, which is unknown


def product_of(op: str, inputs: Inputs) -> Product | None:
    """Return the product that an op computes; ``None`` for other ops and unfit inputs."""
    formula = PRODUCTS.get(op)
    try:
        return None if formula is None else formula(inputs)
    except (IndexError, ValueError, TypeError):
        return None  # another signature than is known, or sizes that make no product


def _matrix(a: Sizes, b: Sizes) -> Product:
    *batch, m, k = a
    *others, inner, n = b
    if k != inner or batch != others or len(batch) > 1:
        raise ValueError
    return Product(2 * math.prod(batch) * m * n * k, ((*batch, m, n),))


def _product(inputs: Inputs) -> Product:
    return _matrix(inputs[0].sizes, inputs[1].sizes)


def _added(inputs: Inputs) -> Product:
    return _matrix(inputs[1].sizes, inputs[2].sizes)


def _scaled(inputs: Inputs) -> Product:
    product = _product(inputs)
    return Product(product.flops, product.outputs, is_narrowed=True)


@dataclass(frozen=True, slots=True)
class _Convolution:
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    transposed: bool = False
    extra: Sizes = ()
    groups: int = 1

    def forward(self, image: Sizes, weight: Sizes) -> Product:
        if len(image) != len(weight) or len(image) < 3:
            raise ValueError
        dimensions = range(len(image) - 2)
        spatial = tuple(self._size(at, image[2 + at], weight[2 + at]) for at in dimensions)
        channels = weight[1] * self.groups if self.transposed else weight[0]
        output_size = image[2:] if self.transposed else spatial
        flops = 2 * math.prod(output_size) * math.prod(weight) * image[0]
        return Product(flops, ((image[0], channels, *spatial),))

    def _size(self, at: int, size: int, kernel: int) -> int:
        stride, padding, dilation = (
            each[at] if len(each) > 1 else each[0]
            for each in (self.stride, self.padding, self.dilation)
        )
        reach = dilation * (kernel - 1)
        if self.transposed:
            return (size - 1) * stride - 2 * padding + reach + self.extra[at] + 1
        return (size + 2 * padding - reach - 1) // stride + 1


def _int_tuple(operand: OpInput) -> Sizes:
    if not isinstance(operand.value, tuple):
        raise TypeError
    return operand.value


def _convolution(inputs: Inputs) -> Product:
    stride, padding, dilation = map(_int_tuple, inputs[3:6])
    transposed, groups = inputs[6].value, inputs[8].value
    if not isinstance(groups, int):
        raise TypeError
    layout = _Convolution(
        stride, padding, dilation, bool(transposed), _int_tuple(inputs[7]), groups
    )
    return layout.forward(inputs[0].sizes, inputs[1].sizes)


def _cudnn_convolution(inputs: Inputs) -> Product:
    padding, stride, dilation = map(_int_tuple, inputs[2:5])
    layout = _Convolution(stride, padding, dilation)
    return layout.forward(inputs[0].sizes, inputs[1].sizes)


def _depthwise_convolution(inputs: Inputs) -> Product:
    stride, padding, dilation = map(_int_tuple, inputs[4:7])
    layout = _Convolution(stride, padding, dilation)
    return layout.forward(inputs[0].sizes, inputs[1].sizes)


def _convolution_backward(inputs: Inputs) -> Product:
    gradient, image, weight = (operand.sizes for operand in inputs[:3])
    of_image, of_weight, of_bias = _int_tuple(inputs[10])
    output_size = image if inputs[7].value else gradient
    once = 2 * math.prod(output_size[2:]) * math.prod(weight) * gradient[0]
    results = (image,) * bool(of_image) + (weight,) * bool(of_weight)
    return Product(once * len(results), (*results, *((gradient[1],),) * bool(of_bias)))


@dataclass(frozen=True, slots=True)
class _Attention:
    """Where an op has its query, and what makes it causal."""

    query: int  # the argument; key and value follow
    causal: int  # the argument of the causal flag
    rows_first: bool = False  # rows come before heads in the sizes
    lengths: int | None = None  # the argument with sequences of different lengths, if any

    def forward(self, inputs: Inputs) -> Product:
        query, key, value = self._sizes(inputs)
        batch, heads, rows, width = query
        pairs = self._pairs(inputs, query, key, value)
        outputs = ((batch, heads, rows, value[3]),)
        return Product(2 * pairs * (width + value[3]), outputs)

    def backward(self, inputs: Inputs) -> Product:
        query, key, value = self._sizes(inputs)
        pairs = self._pairs(inputs, query, key, value)
        return Product(2 * pairs * (3 * query[3] + 2 * value[3]), (query, key, value))

    def _sizes(self, inputs: Inputs) -> list[Sizes]:
        if self.lengths is not None and inputs[self.lengths].dtype is not None:
            raise ValueError
        operand = (each.sizes for each in inputs[self.query : self.query + 3])
        return [_heads_first(sizes) if self.rows_first else sizes for sizes in operand]

    def _pairs(self, inputs: Inputs, query: Sizes, key: Sizes, value: Sizes) -> int:
        """Return the number of products of a row and a column."""
        batch, heads, rows, width = query
        if (batch, width) != (key[0], key[3]) or key[:3] != value[:3] or heads % key[1]:
            raise ValueError
        if (len(inputs) > self.causal and bool(inputs[self.causal].value)) and rows == key[2]:
            return batch * heads * rows * (rows + 1) // 2
        return batch * heads * rows * key[2]


def _heads_first(sizes: Sizes) -> Sizes:
    batch, rows, heads, width = sizes
    return (batch, heads, rows, width)


# Ops of the profiler's spelling, without ``aten::``, to what they compute
PRODUCTS: Mapping[str, Callable[[Inputs], Product]] = {
    "mm": _product,
    "bmm": _product,
    "addmm": _added,
    "baddbmm": _added,
    "addmm_": _added,
    "baddbmm_": _added,
    "_scaled_mm": _scaled,
    "convolution": _convolution,
    "_convolution": _convolution,
    "cudnn_convolution": _cudnn_convolution,
    "_conv_depthwise2d": _depthwise_convolution,
    "conv_depthwise3d": _depthwise_convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention": _Attention(0, 4).forward,
    "_scaled_dot_product_efficient_attention": _Attention(0, 6).forward,
    "_scaled_dot_product_cudnn_attention": _Attention(0, 6).forward,
    "_cudnn_attention_forward": _Attention(0, 10, lengths=4).forward,
    "_flash_attention_forward": _Attention(0, 8, rows_first=True, lengths=3).forward,
    "_efficient_attention_forward": _Attention(0, 9, rows_first=True, lengths=4).forward,
    "_scaled_dot_product_flash_attention_backward": _Attention(1, 11).backward,
    "_scaled_dot_product_efficient_attention_backward": _Attention(1, 11).backward,
    "_scaled_dot_product_cudnn_attention_backward": _Attention(1, 14).backward,
    "_cudnn_attention_backward": _Attention(1, 14, lengths=9).backward,
    "_flash_attention_backward": _Attention(1, 11, rows_first=True, lengths=6).backward,
    "_efficient_attention_backward": _Attention(1, 14, rows_first=True, lengths=6).backward,
}


@lru_cache(maxsize=4096)
def work_of_op(name: str, inputs: Inputs | None) -> Work:
    """Return the work of an op, as far as known; of a product without shapes, that it is one."""
    namespace, _, op = name.partition("::")
    if namespace != "aten":
        return NOTHING_KNOWN
    if op in PRODUCTS:
        return Work(is_product=True) if inputs is None else _product_work(op, inputs)
    return NOTHING_KNOWN if inputs is None else _streaming(op, inputs)


def _product_work(op: str, inputs: Inputs) -> Work:
    product, tensors = product_of(op, inputs), _tensors(inputs)
    if product is None or not tensors:
        return Work(is_product=True)
    dtype = tensors[1 if "add" in op else 0].dtype
    moved = None
    if not product.is_narrowed:
        moved = _moved(tensors) + _stored(product.outputs, dtype)
    unit = unit_of_operands(dtype)
    evidence = None if unit is None else UnitEvidence.OPERANDS
    return Work(moved, product.flops, True, True, unit, evidence)


def _streaming(op: str, inputs: Inputs) -> Work:
    tensors = _tensors(inputs)
    in_place = op.endswith("_")
    plain = op.removesuffix("_")
    if not tensors:
        return NOTHING_KNOWN
    if op in _WRITES_ONLY:
        return Work(_moved(tensors[:1]), is_complete=True)
    if op == "copy_":
        return Work(_moved(tensors[:2]), is_complete=True)
    if plain not in _POINTWISE | _BOOLEAN_OPS:
        return NOTHING_KNOWN
    target = tensors[0].sizes if in_place else _broadcast(tensors)
    if target is None:
        return NOTHING_KNOWN
    dtype = tensors[0].dtype if in_place else _result(plain, tensors)
    return Work(_moved(tensors) + _stored((target,), dtype), is_complete=True)


def bytes_of(inputs: Inputs) -> int:
    """Return the bytes of the tensors among some inputs, each once."""
    return _moved(_tensors(inputs))


def _tensors(inputs: Inputs) -> list[OpInput]:
    return [operand for operand in inputs if operand.dtype is not None]


def _moved(tensors: Iterable[OpInput]) -> int:
    return sum(operand.elements * _BYTES[operand.dtype or ""] for operand in tensors)


def _stored(outputs: Iterable[Sizes], dtype: str | None) -> int:
    return sum(map(math.prod, outputs)) * _BYTES[dtype or ""]


def _result(op: str, tensors: list[OpInput]) -> str | None:
    """Return the widest dtype, floats before integers, as torch promotes them."""
    if op in _BOOLEAN_OPS:
        return "bool"
    values = tensors[1:] if op == "where" and len(tensors) > 1 else tensors
    sized = [operand for operand in values if operand.sizes] or values
    dtypes = {operand.dtype for operand in sized if operand.dtype}
    if {"float16", "bfloat16"} <= dtypes:
        return "float32"
    return max(sorted(dtypes), key=lambda dtype: (dtype.startswith(("f", "bf")), _BYTES[dtype]))


def _broadcast(tensors: list[OpInput]) -> Sizes | None:
    longest = max(len(operand.sizes) for operand in tensors)
    padded = [(1,) * (longest - len(operand.sizes)) + operand.sizes for operand in tensors]
    columns = [set(column) - {1} for column in zip(*padded, strict=True)]
    if any(len(column) > 1 for column in columns):
        return None
    return tuple(column.pop() if column else 1 for column in columns)
