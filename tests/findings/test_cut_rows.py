"""Rows that are cut off before a softmax: the others are copied, and their gradient is, too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.findings.rules import strided_copy
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import CPU, US, Script, at, is_silent, only, placed
from tests.handmade import Mark, interned

COPIES = "void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>"
FILLS = "void at::native::vectorized_elementwise_kernel<8, at::native::FillFunctor<c10::BFloat16>>"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16>"
SOFTMAX_BACKWARD = "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<8, c10::BFloat16>"
ROWS, VALUES = 8 * 255, 50304  # eight texts, of which one word of 256 is cut off
CODE = "chances = F.log_softmax(logits[:, :-1], -1)"


def cut(
    code: str = CODE,
    *,
    rows: int = ROWS,
    values: int = VALUES,
    whole: int = 8 * 256 * VALUES,
    before: str = "_log_softmax_backward_data",
) -> Analysis:
    """Steps that cut a tensor and take a softmax of the rest, with the gradient of both."""
    script = Script()
    copied = {"grid": [rows * values // 512, 1, 1], "block": [128, 1, 1]}
    filled = {"grid": [whole // 1024, 1, 1], "block": [128, 1, 1]}
    each_row = {"grid": [rows, 1, 1], "block": [1024, 1, 1]}
    for _ in range(3):
        script.launch(COPIES, 300 * US, op="aten::copy_", **copied)
        script.launch(SOFTMAX, 300 * US, op="aten::_log_softmax", **each_row)
        script.launch(SOFTMAX_BACKWARD, 300 * US, op=f"aten::{before}", **each_row)
        begin_ns = script.now_ns
        script.launch(FILLS, 80 * US, op="aten::fill_", **filled)
        script.launch(COPIES, 320 * US, op="aten::copy_", **copied)
        puts_back = Mark("aten::slice_backward", "cpu_op", CPU, begin_ns, script.now_ns - begin_ns)
        script.marks.append(puts_back)
        script.wait()
        script.end_step()
    made = script.analysis()
    phases = [Phase.FORWARD] * 2 + [Phase.BACKWARD] * 3
    made = replace(made, launches=replace(made.launches, phase=interned([*phases] * 3)))
    return placed(
        made,
        copy_=at(3, "log_softmax", code=code),
        slice_backward=at(3, "slice_backward", Phase.BACKWARD, code=code),
    )


@pytest.mark.parametrize("code", [CODE, "x = logits[..., :-1, :].log_softmax(-1)", "x[:, 1:, :]"])
def test_rows_are_cut_off_behind_a_softmax_without_copies(code: str) -> None:
    found = only(strided_copy.RULE, cut(code))
    assert (found.location.line, found.est_saving_ns) == (3, 700 * US)
    assert found.remedy.startswith("slice what the softmax returns")


def test_a_class_that_is_cut_off_changes_the_softmax() -> None:
    assert is_silent(strided_copy.RULE, cut("x[:, :-1].softmax(-1)", whole=ROWS * (VALUES + 1)))
    assert is_silent(strided_copy.RULE, cut("x[..., :50304].softmax(-1)"))


def test_where_half_of_all_rows_are_cut_off_a_copy_of_the_rest_is_cheaper() -> None:
    assert is_silent(strided_copy.RULE, cut("x[:, :255, :]", whole=8 * 512 * VALUES))


def test_a_gradient_that_comes_of_no_softmax_says_nothing() -> None:
    assert is_silent(strided_copy.RULE, cut(before="mm"))
