"""Facts about the rules of eager ops: beside compiled code, and where nothing is compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.findings import SavingPer
from profiler_ext.findings.rules import eager_beside_compiled, uncompiled
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import MS, US, Script, is_silent, judged, only, placed, trained
from tests.handmade import interned

REDUCE = "void at::native::reduce_kernel<512, 1>"


def half_eager(
    *eager_us: int,
    compiled_us: int = 2000,
    paced: bool = True,
    kernel: str = REDUCE,
    op: str = "sum",
) -> Analysis:
    """A step of one compiled kernel, and of eager ones at one line."""
    script = Script()
    script.launch("triton_red_fused_mul_0", compiled_us * US, op="aten::mm")
    for duration in eager_us:
        script.launch(kernel, duration * US, op=f"aten::{op}")
        script.now_ns += 0 if paced else 10 * MS
    script.wait()
    script.end_step()
    made = script.analysis()
    scope = interned(["compiled", *["eager"] * len(eager_us)])
    at_line = {"file": "/m.py", "line": 3, "phase": Phase.FORWARD}
    return placed(replace(made, launches=replace(made.launches, scope=scope)), **{op: at_line})


def test_two_thirds_of_eager_ops_next_to_compiled_code_are_at_stake() -> None:
    found = only(eager_beside_compiled.RULE, half_eager(300, 300, 300))
    assert (found.saving_per, found.est_saving_ns, found.location.line) == (
        SavingPer.STEP,
        600 * US,
        3,
    )
    assert [each.value for each in found.evidence] == [3, 900 * US, 1]


def test_the_largest_lines_have_a_finding_each_and_the_others_stand_with_the_first() -> None:
    script = Script()
    script.launch("triton_red_fused_mul_0", 3 * MS, op="aten::mm")
    times_us = {"a": 400, "b": 300, "c": 200, "d": 150}
    for name, duration in times_us.items():
        for _ in range(3):
            script.launch(REDUCE, duration * US, op=f"aten::{name}")
    script.wait()
    script.end_step()
    made = script.analysis()
    scope = interned(["compiled", *["eager"] * 12])
    lines = {
        name: {"file": "/m.py", "line": at, "phase": Phase.FORWARD}
        for at, name in enumerate(times_us)
    }
    step = placed(replace(made, launches=replace(made.launches, scope=scope)), **lines)
    found = judged(eager_beside_compiled.RULE, step).ranked
    assert [each.location.line for each in found] == [0, 1, 2]
    savings_us = [each.est_saving_ns / US for each in found]
    assert savings_us == pytest.approx([1100, 600, 400], rel=1e-5)


def test_few_eager_ops_short_ones_and_those_of_an_eager_step_are_left_alone() -> None:
    assert is_silent(eager_beside_compiled.RULE, half_eager(300, 300))
    assert is_silent(eager_beside_compiled.RULE, half_eager(20, 20, 20))
    assert is_silent(eager_beside_compiled.RULE, half_eager(300, 300, 300, compiled_us=200))
    assert is_silent(eager_beside_compiled.RULE, half_eager(300, 300, 300, paced=False))


def test_three_fifths_of_eager_ops_are_at_stake_where_nothing_is_compiled() -> None:
    found = only(uncompiled.RULE, half_eager(300, 500, compiled_us=100))
    assert (found.saving_per, found.est_saving_ns, found.location.line) == (
        SavingPer.STEP,
        480 * US,
        3,
    )
    assert [each.value for each in found.evidence] == [2, 800 * US, 800 * US, 1]


@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        ("void at::native::elementwise_kernel<128, MulFunctor<c10::complex<float> > >", "mul"),
        ("void at::native::elementwise_kernel<128, MulFunctor<float> >", "fft_irfft"),
        ("void at::native::radixSortKVInPlace<-2, -1, 32, 4, float, long>", "sort"),
        ("void at::native::mbtopk::gatherTopK<float, unsigned int, 1>", "topk"),
        ("void at::native::compute_grad_weight<float, long>", "embedding_dense_backward"),
        ("void at::native::indexFuncLargeIndex<float, long>", "index_add_"),
        ("void at::native::ctc_loss_log_alpha_gpu_kernel<float, long>", "_ctc_loss"),
        ("void vector_fft<256u, EPT<16u>, float>", "_fft_r2c"),
        (REDUCE, "_trilinear"),
        (REDUCE, "linalg_matrix_exp"),
        (REDUCE, "upsample_bilinear2d_backward"),
        (REDUCE, "grid_sampler_2d"),
        (REDUCE, "_upsample_bilinear2d_aa"),
        (REDUCE, "_upsample_bicubic2d_aa_backward"),
        ("void at::native::conv_depthwise2d_forward_kernel<float>", "_conv_depthwise2d"),
    ],
)
def test_what_compiled_code_calls_as_it_is_counts_as_nothing(kernel: str, op: str) -> None:
    assert is_silent(uncompiled.RULE, half_eager(300, 500, compiled_us=100, kernel=kernel, op=op))
    assert is_silent(eager_beside_compiled.RULE, half_eager(300, 300, 300, kernel=kernel, op=op))


def test_next_to_much_compiled_code_and_in_a_step_of_products_nothing_is_reported() -> None:
    assert is_silent(uncompiled.RULE, half_eager(300, 300, 300))
    products = half_eager(300, compiled_us=4000)
    in_eager = replace(products.launches, scope=interned(["eager"] * 2))
    assert is_silent(uncompiled.RULE, replace(products, launches=in_eager))


def test_where_the_cpu_sets_the_pace_it_is_the_steps_before_that_tell_whether_they_count() -> None:
    waiting = half_eager(8000, 8000, compiled_us=100, paced=False)
    assert waiting.steps[0].cpu_end_ns - waiting.steps[0].cpu_start_ns > 20 * MS
    assert is_silent(uncompiled.RULE, waiting)
    filled = only(uncompiled.RULE, trained(waiting, *[17 * MS] * 5))
    assert filled.est_saving_ns == 9_600 * US
    assert is_silent(uncompiled.RULE, trained(waiting, *[19 * MS] * 5))
