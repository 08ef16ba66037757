"""A library's op that takes far longer than passing over what is next to it is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.finding import Confidence
from profiler_ext.findings.ranking import judge
from profiler_ext.findings.rules import few_blocks, float32_model, slow_op
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import ELEMENTWISE, US, Script, is_silent, only, placed
from tests.findings.test_autograd_nodes import GEMM, STEPS, Steps, at

SELECTS = "void at::native::sbtopk::gatherTopK<float, unsigned int, 3, false>(float*)"
ADDS = "void at::native::indexFuncLargeIndex<float, long, unsigned int, ReduceAdd>"
READS = "void at::native::vectorized_gather_kernel<16, long>"
MOMENTS = "void at::native::RowwiseMomentsCUDAKernel<c10::Half>"
SCANS = "void at::native::tensor_kernel_scan_outer_dim<float, unsigned int, std::plus<float>>"


def stepped(
    op: str = "topk",
    kernel: str = SELECTS,
    *,
    us: int = 900,
    pass_us: int = 50,
    beside: tuple[str, str, int] = ("aten::mm", GEMM, 20),
    lines: dict[str, int] | None = None,
    **args: Any,
) -> Analysis:
    """Steps with an op between others: a pointwise one, and what runs next to it."""
    script = Script()
    for _ in range(STEPS):
        script.launch(ELEMENTWISE, pass_us * US, op="aten::mul")
        for _ in range(2):
            script.launch(beside[1], beside[2] * US, op=beside[0])
        script.launch(kernel, us * US, op=f"aten::{op}", **args)
        for _ in range(7):
            script.launch(GEMM, 20 * US, op="aten::mm")
        script.wait()
        script.end_step()
    places = {name: at(line, name) for name, line in ({op: 3} | (lines or {})).items()}
    return placed(script.analysis(), **places)


def test_all_but_three_passes_of_a_selection_are_at_stake():
    found = only(slow_op.RULE, stepped(grid=[7, 1, 1], block=[32, 1, 1]))
    assert (found.est_saving_ns, found.location.line) == ((900 - 3 * 50) * US, 3)
    assert found.confidence is Confidence.UPPER_BOUND
    assert found.summary.startswith("aten::topk takes 18 times as long as one pass")
    assert "of short slices count" in found.remedy
    assert {each.name: each.value for each in found.evidence} == {
        "launches a step": 1,
        "they take": 900 * US,
        "that sets the pace": 900 * US,
        "the longest call takes": 900 * US,
        "a pass next to it takes": 50 * US,
        "passes that are left": 3,
        "why": "a selection reads each slice several times, short ones by a block each",
        "its longest kernel": "at::native::sbtopk::gatherTopK<float, unsigned int, 3, false>",
        "blocks of it": 7,
        "multiprocessors of the device": 132,
    }


@pytest.mark.parametrize(
    "analysis",
    [
        stepped(pass_us=160),
        stepped(beside=("aten::bmm", GEMM, 160)),
        stepped("mm", GEMM),
        stepped("mul_", ELEMENTWISE),
        # Each of so many threads moves two bytes, for which the device needs 280 us
        stepped(grid=[1 << 19, 1, 1], block=[1024, 1, 1]),
        stepped(us=20, pass_us=1),
    ],
    ids=["a_long_pass", "long_beside_it", "a_product", "a_pass", "many_threads", "short"],
)
def test_what_may_move_as_much_and_products_are_none(analysis: Analysis):
    assert is_silent(slow_op.RULE, analysis)


def test_sums_by_index_count_from_twelve_passes_and_no_less_than_reads_at_their_line():
    assert is_silent(slow_op.RULE, stepped("index_add_", ADDS, us=500))
    found = only(slow_op.RULE, stepped("index_add_", ADDS))
    assert found.est_saving_ns == (900 - 3 * 50) * US
    gather, here = ("aten::gather", READS, 80), {"gather": 3}
    assert is_silent(slow_op.RULE, stepped("index_add_", ADDS, beside=gather, lines=here))


def test_reads_of_short_rows_by_a_block_each_are_no_pass():
    found = only(slow_op.RULE, stepped("gather", READS, grid=[1 << 18, 1, 1], block=[32, 1, 1]))
    assert found.est_saving_ns == (900 - 3 * 50) * US
    assert "read many rows in a block" in found.remedy
    assert is_silent(slow_op.RULE, stepped("gather", READS, grid=[1 << 18, 1, 1], block=[64, 1, 1]))


def test_convolutions_on_tensor_cores_count_from_sixty_passes_and_no_dtype_halves_them():
    fprop = "cutlass_tensorop_s1688fprop_analytic_tf32_128x64_16x6_nhwc_align4"
    few_channels, many = (stepped("cudnn_convolution", fprop, us=us) for us in (6000, 2000))
    assert only(slow_op.RULE, few_channels).est_saving_ns == (6000 - 4 * 50) * US
    assert is_silent(slow_op.RULE, many)
    assert is_silent(float32_model.RULE, few_channels)
    assert only(float32_model.RULE, many).est_saving_ns == 1000 * US


def test_a_call_that_passes_over_its_values_again_and_again_is_slow():
    def times(count: int) -> Analysis:
        steps = Steps()
        for _ in range(STEPS):
            with steps.within("aten::_trilinear"):
                for _ in range(count):
                    steps.launch("mul", Phase.BACKWARD, us=50)
            steps.end_step()
        return steps.analysis(_trilinear=at(3, "_trilinear", Phase.BACKWARD))

    found = only(slow_op.RULE, times(16))
    assert found.summary.startswith("aten::_trilinear takes 16 times as long as one pass")
    assert found.est_saving_ns == pytest.approx((16 - 3) * 50 * US, rel=0.01)
    assert found.remedy.startswith("torch.einsum")
    assert is_silent(slow_op.RULE, times(15))


def test_the_bytes_of_recorded_inputs_are_a_pass_too():
    script = Script()
    for _ in range(STEPS):
        script.launch(SELECTS, 900 * US, op="aten::topk")
        script.wait()
        script.end_step()
    for each in script.marks:
        if each.category == "cpu_op":
            each.args["Input Dims"] = [[2048, 131072], [], []]
            each.args["Input type"] = ["float", "Scalar", "Scalar"]
    # They take 280 us at four fifths of the bandwidth
    assert is_silent(slow_op.RULE, placed(script.analysis(), topk=at(3, "topk")))
    for each in script.marks:
        if each.category == "cpu_op":
            each.args["Input Dims"] = [[1024, 1024], [], []]
    found = only(slow_op.RULE, placed(script.analysis(), topk=at(3, "topk")))
    assert found.evidence[-1].value == "float32[1024, 1024]"


@pytest.mark.parametrize(
    ("op", "remedy"),
    [
        ("linalg_qr", "Newton-Schulz"),
        ("multinomial", "Gumbel"),
        ("_unique2", "one_hot"),
        ("sort", "kthvalue"),
        ("cumsum", "last dimension"),
        ("upsample_bilinear2d_backward", "repeat_interleave"),
        ("_upsample_bilinear2d_aa_backward", "fixed weights"),
        ("_adaptive_avg_pool2d_backward", "unflatten"),
        ("_cdist_forward", "use_mm_for_euclid_dist"),
        ("native_group_norm", "many blocks"),
        ("silu_", "another op"),
    ],
)
def test_each_family_has_a_remedy_of_its_own(op: str, remedy: str):
    assert remedy in only(slow_op.RULE, stepped(op, "void other_kernel<float>")).remedy


def test_nothing_is_said_where_no_way_is_known_to_be_faster():
    assert is_silent(slow_op.RULE, stepped("grid_sampler_2d_backward", "void other_kernel<float>"))


def test_what_a_more_special_rule_counts_most_of_is_left_to_it():
    analysis = stepped("native_group_norm", MOMENTS, grid=[4, 1, 1])
    (found,) = judge(analysis, (slow_op.RULE, few_blocks.RULE)).ranked
    assert found.rule == "few_blocks"


def test_a_scan_with_few_blocks_waits_for_its_order():
    # More rows, or parts of them, are no remedy for what is summed up along all rows
    analysis = stepped("cumsum", SCANS, grid=[1, 1, 1])
    (found,) = judge(analysis, (slow_op.RULE, few_blocks.RULE)).ranked
    assert (found.rule, found.est_saving_ns) == ("slow_op", (900 - 3 * 50) * US)
    assert "index_add" in found.remedy


def test_launches_that_run_at_once_are_counted_once():
    analysis = stepped()
    facts = Facts(analysis)
    facts.pace.busy_ns[:] = facts.pace.busy_ns // 3
    verdict = slow_op.RULE.verdict(facts)
    assert not isinstance(verdict, CannotJudge)
    (found,) = verdict
    assert found.est_saving_ns == (900 - 3 * 50) * US // 3
    assert np.array_equal(found.launches, np.flatnonzero(facts.named(SELECTS.__eq__)))
