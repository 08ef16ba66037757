"""Kernels that are slow for the sizes they got, and products and norms that copy what they read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.findings import SavingPer
from profiler_ext.findings.rules import (
    broadcast_matmul,
    few_blocks,
    grouped_convolution,
    norm_in_float32,
    row_products,
)
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Device
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import ELEMENTWISE, US, Script, is_silent, judged, only, placed
from tests.findings.test_autograd_nodes import ENGINE, GEMM, STEPS, Steps, at

MOMENTS = "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<c10::Half>"
GEMV = "void internal::gemvx::kernel<int, int, float, float, float, float, true>"
OF_ONE = "void gemmk1_kernel<int, float, 256, 5, true, false, false, false>"
WIDENS = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>"
NARROWS = "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda>"
FPROP = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc"
WGRAD, DGRAD = "void cudnn::cnn::wgrad_alg1_engine<float, 128>", FPROP.replace("fprop", "dgrad")


def normalized(
    blocks: int, kernel: str = MOMENTS, *, others: int = 1, multiprocessors: str = "100"
) -> Analysis:
    """Steps with a kernel of so many blocks, on a device of so many multiprocessors."""
    script = Script()
    for _ in range(STEPS):
        script.launch(kernel, 500 * US, op="aten::native_group_norm", grid=[blocks, 1, 1])
        for _ in range(others):
            script.launch(ELEMENTWISE, 500 * US, op="aten::mul", grid=[4096, 1, 1])
        script.wait()
        script.end_step()
    analysis = placed(script.analysis(), native_group_norm=at(3, "native_group_norm"))
    device = Device(0, "NVIDIA H100", (("numSms", multiprocessors),))
    recording = analysis.recording
    made = replace(recording.trace, devices=(device,))
    return replace(analysis, recording=replace(recording, trace=made))


def test_a_long_kernel_on_four_of_a_hundred_multiprocessors_would_take_a_part_of_its_time():
    found = only(few_blocks.RULE, normalized(4))
    assert (found.est_saving_ns, found.location.line) == (480 * US, 3)
    assert [each.value for each in found.evidence[3:]] == [4, 100]
    assert "groups" in found.remedy


@pytest.mark.parametrize(
    "analysis",
    [normalized(50), normalized(4, "cudnn::rnn_kernel"), normalized(4, others=30)],
    ids=["many_blocks", "a_library's", "little_of_the_step"],
)
def test_many_blocks_a_library_and_little_of_the_step_are_none(analysis: Analysis):
    assert is_silent(few_blocks.RULE, analysis)


def test_a_device_whose_multiprocessors_are_not_known_cannot_be_judged():
    (skipped,) = judged(few_blocks.RULE, normalized(4, multiprocessors="")).rules_skipped
    assert "multiprocessors" in skipped.reason


def called(steps: Steps, op: str, phase: Phase, kernels: list[str]) -> None:
    """Let one call of an op launch kernels."""
    script, before = steps.script, len(steps.script.marks)
    for kernel in kernels:
        steps.launch(op, phase, kernel)
    own = script.marks[before:]
    (first, *_) = (each for each in own if each.category == "cpu_op")
    around = replace(first, duration_ns=script.now_ns - first.start_ns)
    script.marks[before:] = [around, *(each for each in own if each.category != "cpu_op")]


def convolved(groups: int, *, extra: str = ELEMENTWISE, at_once: bool = True) -> Analysis:
    """Steps with a convolution: its forward and its weights' gradient run a kernel per group."""
    steps = Steps()
    for _ in range(STEPS):
        with steps.within("aten::conv2d", 6):
            called(steps, "cudnn_convolution", Phase.FORWARD, [FPROP] * groups + [extra])
        kernels = [WGRAD] * groups + [DGRAD] * at_once + [extra]
        called(steps, "convolution_backward", Phase.BACKWARD, kernels)
        steps.end_step()
    behind = at(4, "convolution_backward", Phase.BACKWARD)
    return steps.analysis(conv2d=at(4, "conv2d"), convolution_backward=behind)


def test_a_kernel_for_each_group_costs_what_one_for_all_groups_does_not():
    found = only(grouped_convolution.RULE, convolved(8))
    # Two convolutions of 8 launches, and the gradient of the input in one
    assert found.est_saving_ns == (2 * 8 - 2) * 300 * US
    assert [each.value for each in found.evidence[3:]] == [8, 2, 300 * US]
    assert found.location.line == 4


def test_without_a_call_for_all_groups_the_saving_is_not_known():
    found = only(grouped_convolution.RULE, convolved(8, at_once=False))
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.UNKNOWN, 0)


def test_few_groups_and_a_loop_over_samples_without_cudnn_are_none():
    assert is_silent(grouped_convolution.RULE, convolved(2))
    unfolded = convolved(8, extra="void at::native::im2col_kernel<float>")
    assert is_silent(grouped_convolution.RULE, unfolded)


def followed(steps: Steps, number: int) -> None:
    """Let the next op of the forward have a number, up to which those before have theirs."""
    with steps.within("aten::linear", number):
        steps.launch("addmm", Phase.FORWARD, GEMM, us=1)


def broadcast(summing: str = "ExpandBackward0") -> Analysis:
    steps = Steps()
    for number in range(0, 10 * STEPS, 10):
        with steps.within("aten::matmul", number):
            steps.launch("copy_", Phase.FORWARD)
            steps.launch("bmm", Phase.FORWARD, GEMM, us=500)
        followed(steps, number + 1)
        with steps.within(ENGINE + "BmmBackward0", number):
            steps.launch("bmm", Phase.BACKWARD, GEMM, us=200)
        with steps.within(ENGINE + summing, number):
            steps.launch("sum", Phase.BACKWARD, us=100)
        steps.end_step()
    return steps.analysis(matmul=at(4, "matmul"))


def test_what_matmul_copies_is_gone_with_its_sums_and_as_much_of_each_product():
    found = only(broadcast_matmul.RULE, broadcast())
    assert found.est_saving_ns == (300 + 300 + 200 + 100) * US
    assert found.location.line == 4


def test_a_copy_whose_gradient_is_no_sum_is_none():
    assert is_silent(broadcast_matmul.RULE, broadcast("CloneBackward0"))


def dotted(backward: str = OF_ONE, pairs: int = 1 << 19) -> Analysis:
    steps = Steps()
    for number in range(0, 10 * STEPS, 10):
        with steps.within("aten::einsum", number):
            steps.launch("bmm", Phase.FORWARD, GEMV, grid=[1, 1, pairs])
        followed(steps, number + 1)
        with steps.within(ENGINE + "BmmBackward0", number):
            steps.launch("bmm", Phase.BACKWARD, OF_ONE, grid=[1, 1, pairs])
            steps.launch("bmm", Phase.BACKWARD, backward, grid=[1, 1, pairs])
        steps.end_step()
    return steps.analysis(einsum=at(4, "einsum"))


def test_dot_products_of_many_rows_lose_two_thirds_of_their_time():
    found = only(row_products.RULE, dotted())
    assert (found.est_saving_ns, found.location.line) == (600 * US, 4)
    assert found.evidence[-1].value == 1 << 19


def test_products_with_a_matrix_and_those_of_few_rows_are_none():
    assert is_silent(row_products.RULE, dotted(GEMV))
    assert is_silent(row_products.RULE, dotted(pairs=4096))


def cast(after: str = NARROWS, line: int = 4) -> Analysis:
    steps = Steps()
    forward = (("to", "copy_", WIDENS), ("layer_norm", "native_layer_norm", ELEMENTWISE))
    for first in range(0, 10 * STEPS, 10):
        for number, (op, own, kernel) in enumerate((*forward, ("to_back", "copy_", after)), first):
            with steps.within(f"aten::{op}", number):
                steps.launch(own, Phase.FORWARD, kernel)
        followed(steps, first + 3)
        for number in (first + 2, first + 1, first):
            with steps.within(f"{ENGINE}Node", number):
                steps.launch("behind", Phase.BACKWARD)
        steps.end_step()
    return steps.analysis(
        to=at(3, "to"),
        layer_norm=at(3, "layer_norm"),
        to_back=at(line, "to_back", function="forward" if line == 4 else "other"),
    )


def test_a_norm_between_casts_loses_the_casts_and_half_of_its_time():
    found = only(norm_in_float32.RULE, cast())
    # Forward and backward of two casts, and of the norm
    assert found.est_saving_ns == (4 * 300 + 2 * 150) * US
    assert found.location.line == 3


def test_a_norm_whose_result_stays_or_is_cast_by_another_function_is_none():
    assert is_silent(norm_in_float32.RULE, cast(after=ELEMENTWISE))
    assert is_silent(norm_in_float32.RULE, cast(line=9))
