"""Operations of eager products are those that torch counts, shape by shape."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from profiler_ext.kineto.op_inputs import OpInput
from profiler_ext.rooflines.work import product_of

aten = torch.ops.aten
Arguments = Sequence[Any]


def matrix(draw: Callable[[], int], batched: bool, added: bool) -> list[torch.Tensor]:
    b, m, k, n = ((draw(),) if batched else ()), draw(), draw(), draw()
    first = [empty(*b, m, n)] if added else []
    return [*first, empty(*b, m, k), empty(*b, k, n)]


def convolved(draw: Callable[[], int], transposed: bool, dims: int, groups: int) -> list[Any]:
    kernel = [random.randint(1, 3) for _ in range(dims)]
    inner, outer = draw() * groups, draw() * groups
    image = empty(draw(), inner, *(draw() + 8 for _ in range(dims)))
    weight = empty(*((inner, outer // groups) if transposed else (outer, inner // groups)), *kernel)
    stride, padding = ([random.randint(1, 3) for _ in range(dims)] for _ in range(2))
    dilation = [random.randint(1, 2) for _ in range(dims)]
    extra = [0] * dims
    return [image, weight, None, stride, padding, dilation, transposed, extra, groups]


def heads(draw: Callable[[], int]) -> list[torch.Tensor]:
    b, h, q, k, d, v = (draw() for _ in range(6))
    return [empty(b, h, q, d), empty(b, h, k, d), empty(b, h, k, v), empty(b, h, q, v)]


def empty(*sizes: int) -> torch.Tensor:
    return torch.empty(sizes, device="meta")


def given(argument: Any) -> OpInput:
    if isinstance(argument, torch.Tensor):
        return OpInput("float32", tuple(argument.shape), argument.stride())
    if argument is None:
        return OpInput(is_absent=True)
    return OpInput(value=tuple(argument) if isinstance(argument, list) else argument)


def drawn(seed: int) -> Callable[[], int]:
    random.seed(seed)
    return lambda: random.randint(1, 12)


def torch_counts(run: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


seeded = pytest.mark.parametrize("seed", range(5))


@seeded
@pytest.mark.parametrize("op", ["mm", "bmm", "addmm", "baddbmm"])
def test_matrix_products_count_as_torch_does(op: str, seed: int) -> None:
    arguments = matrix(drawn(seed), op in ("bmm", "baddbmm"), "add" in op)
    outputs: list[torch.Tensor] = []
    counted = torch_counts(lambda: outputs.append(getattr(aten, op)(*arguments)))
    found = product_of(op, tuple(map(given, arguments)))
    assert found is not None
    assert (found.flops, found.outputs) == (counted, (tuple(outputs[0].shape),))


@seeded
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolutions_count_as_torch_does(
    groups: int, transposed: bool, dims: int, seed: int
) -> None:
    arguments = convolved(drawn(seed), transposed, dims, groups)
    outputs: list[torch.Tensor] = []
    counted = torch_counts(lambda: outputs.append(aten.convolution(*arguments)))
    found = product_of("convolution", tuple(map(given, arguments)))
    assert found is not None
    assert (found.flops, found.outputs) == (counted, (tuple(outputs[0].shape),))


@seeded
@pytest.mark.parametrize("wanted", [[True, True, False], [True, False, True], [False, True, True]])
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_of_convolutions_count_as_torch_does(
    transposed: bool, wanted: list[bool], seed: int
) -> None:
    image, weight, _, *rest = convolved(drawn(seed), transposed, 2, 1)
    output = aten.convolution(image, weight, None, *rest)
    bias = [output.shape[1]]
    arguments = [output, image, weight, bias, *rest, wanted]
    counted = torch_counts(lambda: aten.convolution_backward(*arguments))
    found = product_of("convolution_backward", tuple(map(given, arguments)))
    assert found is not None
    assert found.flops == counted


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_both_gradients_of_a_convolution_in_groups_cost_twice_its_forward(groups: int) -> None:
    image, weight, _, *rest = convolved(drawn(7), False, 2, groups)
    forward = product_of("convolution", tuple(map(given, (image, weight, None, *rest))))
    output = aten.convolution(image, weight, None, *rest)
    arguments = [output, image, weight, None, *rest, [True, True, False]]
    backward = product_of("convolution_backward", tuple(map(given, arguments)))
    assert forward is not None
    assert backward is not None
    assert backward.flops == 2 * forward.flops


@seeded
def test_cudnns_convolution_has_its_arguments_in_another_order(seed: int) -> None:
    image, weight, bias, stride, padding, dilation, *_ = convolved(drawn(seed), False, 2, 1)
    plain = (image, weight, bias, stride, padding, dilation, False, [0, 0], 1)
    cudnn = (image, weight, padding, stride, dilation, 1, False, False, True)
    reported = product_of("cudnn_convolution", tuple(map(given, cudnn)))
    assert reported == product_of("convolution", tuple(map(given, plain)))


@seeded
@pytest.mark.parametrize("backend", ["flash", "efficient", "cudnn"])
def test_attention_counts_as_torch_does(backend: str, seed: int) -> None:
    query, key, value, gradient = heads(drawn(seed))
    packet = getattr(aten, f"_scaled_dot_product_{backend}_attention")
    formulas = torch.utils.flop_counter.flop_registry
    forward = product_of(packet.__name__, tuple(map(given, (query, key, value))))
    assert forward is not None
    assert forward.flops == formulas[packet](query, key, value, out_val=None)
    assert forward.outputs == (tuple(gradient.shape),)
    packet = getattr(aten, f"{packet.__name__}_backward")
    arguments = (gradient, query, key, value)
    backward = product_of(packet.__name__, tuple(map(given, arguments)))
    assert backward is not None
    assert backward.flops == formulas[packet](*arguments, out_val=None)


@seeded
@pytest.mark.parametrize("backend", ["flash", "efficient"])
def test_attention_with_rows_before_heads_is_the_same_attention(backend: str, seed: int) -> None:
    tensors = heads(drawn(seed))
    swapped = [tensor.transpose(1, 2).contiguous() for tensor in tensors]
    plain = product_of(f"_scaled_dot_product_{backend}_attention", tuple(map(given, tensors[:3])))
    absent = OpInput(is_absent=True)
    forward = (*map(given, swapped[:3]), absent, absent)
    assert product_of(f"_{backend}_attention_forward", forward) == plain


@pytest.mark.parametrize(
    ("op", "causal"),
    [
        ("_scaled_dot_product_flash_attention", 4),
        ("_scaled_dot_product_efficient_attention", 6),
        ("_scaled_dot_product_cudnn_attention", 6),
        ("_scaled_dot_product_flash_attention_backward", 11),
        ("_scaled_dot_product_efficient_attention_backward", 11),
        ("_scaled_dot_product_cudnn_attention_backward", 14),
        ("_flash_attention_forward", 8),
        ("_flash_attention_backward", 11),
        ("_efficient_attention_forward", 9),
        ("_efficient_attention_backward", 14),
        ("_cudnn_attention_forward", 10),
        ("_cudnn_attention_backward", 14),
    ],
)
def test_in_causal_attention_a_row_sees_no_later_one(op: str, causal: int) -> None:
    names = [each.name for each in getattr(aten, op).default._schema.arguments]
    assert names[causal] in ("is_causal", "custom_mask_type")
    heads_of = OpInput("float32", (2, 7, 7, 8))  # as many rows as heads: both layouts are one
    first = 1 if "backward" in op else 0
    rest = [OpInput(is_absent=True)] * (causal - first - 3)
    inputs = (*[heads_of] * (first + 3), *rest)
    whole = product_of(op, (*inputs, OpInput(value=False)))
    half = product_of(op, (*inputs, OpInput(value=True)))
    assert whole is not None
    assert half is not None
    assert half.flops * 7 * 7 == whole.flops * (7 * 8 // 2)


@pytest.mark.parametrize(
    ("op", "sizes"),
    [
        ("mm", [(2, 3), (4, 5)]),
        ("mm", [(2, 3)]),
        ("mm", [(2, 3), ()]),
        ("bmm", [(2, 3, 4), (3, 4, 5)]),
        ("convolution", [(1, 2, 3), (1, 2, 3)]),
        ("_flash_attention_forward", [(1, 5, 2, 4), (1, 5, 2, 4), (1, 5, 2, 4), (3,), (3,)]),
        ("_scaled_dot_product_flash_attention", [(1, 3, 4, 5), (1, 2, 4, 5), (1, 2, 4, 5)]),
        ("sort", [(2, 3)]),
    ],
)
def test_what_does_not_fit_a_product_is_none(op: str, sizes: list[tuple[int, ...]]) -> None:
    inputs = tuple(OpInput("float32", each) for each in sizes)
    assert product_of(op, inputs) is None
