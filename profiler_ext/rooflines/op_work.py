"""Owns what an eager op does, by the shapes of its inputs, where a trace has them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from profiler_ext.kineto.op_inputs import OpInput
from profiler_ext.rooflines.op_products import PRODUCTS, Inputs, Sizes, product_of
from profiler_ext.rooflines.words import UnitEvidence
from profiler_ext.rooflines.work import NOTHING_KNOWN, Work, unit_of_operands

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


@lru_cache(maxsize=4096)
def work_of_op(name: str, inputs: Inputs | None) -> Work:
    """Return what an op does.

    Args:
        name: as the profiler spells it: ``aten::addmm``.
        inputs: its inputs; ``None`` where their shapes were not recorded.

    Returns:
        What is known; of a product without shapes, that it is one.
    """
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
