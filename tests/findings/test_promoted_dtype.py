"""Activations that one operand in float32 promotes, by the names of torch's kernels."""

from __future__ import annotations

import pytest

from profiler_ext.findings.rules import promoted_dtype
from profiler_ext.records.analysis import Analysis
from tests.findings.stepping import ELEMENTWISE, US, Launch, at, forward, is_silent, made, only

_OPERANDS = "std::array<char*, 3ul>, 4, at::native::memory::LoadWithCast<2>"
MIXED = f"void at::native::unrolled_elementwise_kernel<BinaryFunctor<float>, {_OPERANDS}>"
STRIDED = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<BinaryFunctor>>"
PLAIN = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<Binary>>"
CAST = "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda>"
GEMM = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT"
NORM = "void at::native::vectorized_layer_norm_kernel<float>"


def rotated(kernel: str, *, before: Launch | None = None, cast: str = CAST) -> Analysis:
    """Steps of a product, an op on two operands, another one, a copy and attention."""
    launches = [before or forward("addmm", GEMM), forward("mul", kernel), forward("neg")]
    launches += [forward("copy_", cast), forward("_flash_attention_forward", "flash_fwd_kernel")]
    places = {name: at(9) for name in ("addmm", "neg", "copy_", "native_layer_norm")}
    return made(*launches, mul=at(5, code="q = q * cos"), **places)


@pytest.mark.parametrize("kernel", [MIXED, STRIDED])
def test_a_promotion_costs_half_of_what_follows_and_the_cast_back(kernel: str) -> None:
    found = only(promoted_dtype.RULE, rotated(kernel))
    assert (found.location.line, found.est_saving_ns) == (5, 600 * US)
    assert [each.value for each in found.evidence] == [3, 900 * US, 1, 1]


def test_operands_of_one_dtype_and_results_that_nothing_casts_are_none() -> None:
    assert is_silent(promoted_dtype.RULE, rotated(PLAIN))
    assert is_silent(promoted_dtype.RULE, rotated(MIXED, cast=ELEMENTWISE))


def test_what_a_norm_returns_is_in_float32_already() -> None:
    normed = forward("native_layer_norm", NORM)
    assert is_silent(promoted_dtype.RULE, rotated(MIXED, before=normed))


def test_a_residual_that_a_norm_reads_next_is_none() -> None:
    launches = [forward("addmm", GEMM), forward("add", MIXED)]
    launches += [forward("native_layer_norm", NORM), forward("copy_", CAST)]
    places = {name: at(9) for name in ("addmm", "add", "native_layer_norm", "copy_")}
    assert is_silent(promoted_dtype.RULE, made(*launches, **places))
