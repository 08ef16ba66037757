"""Owns what one call has to do, as far as that is known: bytes, operations, operands.

Of a call site it was estimated when the graph was compiled; of a copy on the device the trace
tells the bytes. What a library does in a call that torch has no formula for is not known: a sort
passes its memory several times, so no roofline can be drawn for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from profiler_ext.records import CallSite, FxNode, GraphInstance, SiteKind
from profiler_ext.rooflines.words import Unit, UnitEvidence

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
# What adds to places that its indices name waits for whoever adds to the same one.
_SCATTERS = frozenset(
    {
        *("index_put", "index_put_", "_unsafe_index_put", "index_add", "index_reduce"),
        *("scatter", "scatter_add", "scatter_reduce", "embedding_dense_backward"),
    }
)


@dataclass(frozen=True, slots=True)
class Work:
    """What a call does.

    Attributes:
        bytes: what it loads and stores, each once; ``None`` where that is not known.
        flops: floating-point operations; ``None`` where that is not known.
        is_product: the operations are those of matrix products, convolutions or attention.
        is_complete: nothing else is known to take it time, so that it has a roofline.
        unit: what its operands or its code tell of the unit.
        evidence: how they tell that.
    """

    bytes: int | None = None
    flops: int | None = None
    is_product: bool = False
    is_complete: bool = False
    unit: Unit | None = None
    evidence: UnitEvidence | None = None


NOTHING_KNOWN = Work()


def is_product(op: str) -> bool:
    """Tell whether an ATen op is a product whose operations can be counted.

    Args:
        op: its name without namespace and overload: ``addmm``.

    Returns:
        Whether it is a matrix product, a convolution or attention.
    """
    return op in _PRODUCTS


def unit_of_operands(dtype: str | None) -> Unit | None:
    """Return the tensor cores' unit for products of a dtype; of float32 it tells none."""
    return _TENSOR_DTYPES.get(dtype or "")


def nodes_of(graph: GraphInstance) -> Mapping[str, FxNode]:
    """Return the nodes of a graph by name; none where nothing is known of it."""
    return {} if graph.provenance is None else {n.name: n for n in graph.provenance.nodes}


def has_fixed_sizes(known: Mapping[str, FxNode]) -> bool:
    """Tell whether each call of a graph does the same work.

    What capture estimated of a graph with dynamic sizes holds for those that it was compiled with.
    """
    specs = (spec for node in known.values() for spec in node.outputs)
    return all(_number(str(size)) is not None for spec in specs for size in spec.size)


def work_of_site(site: CallSite, known: Mapping[str, FxNode], is_fixed: bool) -> Work:
    """Return what a call site does.

    Args:
        site: the call site.
        known: the nodes of its graph by name.
        is_fixed: whether that graph has fixed sizes; else nobody knows how much it does.
    """
    nodes = [known[name] for name in site.nodes if name in known]
    products = [node for node in nodes if is_product(_op(node))]
    moved, flops = (_number(text) if is_fixed else None for text in (site.bytes_moved, site.flops))
    if site.kind in _GENERATED:
        if "_poi_" not in site.kernel and _MATRIX & {_op(node) for node in products}:
            return Work(moved)  # a product within a loop, whose operations capture does not count
        # Of a product there is the bias here, or an input's copy in another layout.
        is_complete = not _SCATTERS & {_op(node) for node in nodes}
        return Work(moved, flops, False, is_complete, _generated_unit(nodes), UnitEvidence.GENERATED)
    if products and site.kind is not SiteKind.USER_TRITON:
        unit = _operand_unit(products, known)
        evidence = None if unit is None else UnitEvidence.OPERANDS
        return Work(moved, flops, True, True, unit, evidence)
    # What the program's own Triton kernel computes nobody told, nor what an unknown library does.
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
    """Return the dtype of a product's factors: that of its result, but where it is scaled."""
    if _op(node).startswith("_scaled_mm") or node.target.endswith(".dtype"):
        read = (known[name].outputs for name in node.inputs if name in known)
        dtypes = {specs[0].dtype for specs in read if specs} & _TENSOR_DTYPES.keys()
        narrow = {dtype for dtype in dtypes if dtype.startswith("float8")}
        return min(narrow, default=None)
    return node.outputs[0].dtype if node.outputs else None


def _generated_unit(nodes: list[FxNode]) -> Unit:
    dtypes = {spec.dtype for node in nodes for spec in node.outputs}
    return Unit.FP64 if "float64" in dtypes else Unit.FP32
