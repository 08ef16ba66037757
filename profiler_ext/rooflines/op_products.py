"""Owns the operations of products that eager ops compute, by the shapes of their inputs.

The formulas are those of ``torch/utils/flop_counter.py``, without torch: two operations for each
factor. They differ where torch's count too much: of the gradient of a grouped convolution's
weight, of causal attention, where a row sees no later one, and of the layout of
``_flash_attention_forward``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from profiler_ext.kineto.op_inputs import OpInput

Sizes = tuple[int, ...]
Inputs = tuple[OpInput, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """What a product computes.

    Attributes:
        flops: floating-point operations.
        outputs: the sizes of its results.
        is_narrowed: its results have another dtype than its factors, which nobody tells.
    """

    flops: int
    outputs: tuple[Sizes, ...]
    is_narrowed: bool = False


def product_of(op: str, inputs: Inputs) -> Product | None:
    """Return what a product computes.

    Args:
        op: the op without namespace: ``addmm``.
        inputs: its inputs.

    Returns:
        ``None`` for another op, and for inputs that do not fit it.
    """
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
    layout = _Convolution(stride, padding, dilation, bool(transposed), _int_tuple(inputs[7]), groups)
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
    """Where an op has the query, and what says that a row sees no later one.

    Attributes:
        query: the argument; key and value follow.
        causal: the argument that says so.
        rows_first: rows stand before heads in the sizes.
        lengths: the argument that gives sequences of different lengths, where there is one.
    """

    query: int
    causal: int
    rows_first: bool = False
    lengths: int | None = None

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
        """Return how many products of a row and a column it makes."""
        batch, heads, rows, width = query
        if (batch, width) != (key[0], key[3]) or key[:3] != value[:3] or heads % key[1]:
            raise ValueError
        if self._is_causal(inputs) and rows == key[2]:
            return batch * heads * rows * (rows + 1) // 2
        return batch * heads * rows * key[2]

    def _is_causal(self, inputs: Inputs) -> bool:
        return len(inputs) > self.causal and bool(inputs[self.causal].value)


def _heads_first(sizes: Sizes) -> Sizes:
    batch, rows, heads, width = sizes
    return (batch, heads, rows, width)


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
"""Ops of the profiler's spelling, without ``aten::``, to what they compute."""
