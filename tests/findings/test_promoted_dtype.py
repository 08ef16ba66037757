"""Activations that one operand in float32 promotes, by the names of torch's kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.findings.rules import promoted_dtype
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import (
    ELEMENTWISE,
    US,
    Launch,
    Script,
    at,
    forward,
    is_silent,
    made,
    only,
    placed,
)
from tests.handmade import interned

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


def test_an_operand_that_was_computed_as_large_in_float32_is_in_float32_already() -> None:
    made = "void at::native::elementwise_kernel<128, 4, nocast<BinaryFunctor<float, float, float>>>"
    launches = [("mul", made), ("add", MIXED), ("copy_", CAST)]
    places = {"mul": at(4), "add": at(5), "copy_": at(6)}
    for blocks, names in ((64, False), (1, True)):  # a scale for each channel is no such operand
        script = Script()
        for _ in range(3):
            for op, kernel in launches:
                grid = [blocks if op == "mul" else 64, 1, 1]
                script.launch(kernel, 300 * US, op=f"aten::{op}", grid=grid, block=[128, 1, 1])
            script.wait()
            script.end_step()
        analysis = placed(script.analysis(), **places)
        phase = interned([Phase.FORWARD.value] * len(analysis.launches))
        analysis = replace(analysis, launches=replace(analysis.launches, phase=phase))
        assert is_silent(promoted_dtype.RULE, analysis) != names


def test_a_residual_that_a_norm_reads_next_is_none() -> None:
    launches = [forward("addmm", GEMM), forward("add", MIXED)]
    launches += [forward("native_layer_norm", NORM), forward("copy_", CAST)]
    places = {name: at(9) for name in ("addmm", "add", "native_layer_norm", "copy_")}
    assert is_silent(promoted_dtype.RULE, made(*launches, **places))
