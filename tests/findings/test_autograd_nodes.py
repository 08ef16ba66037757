"""Rules that read autograd's nodes: backwards that run twice, repeated casts, ops that loop."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from profiler_ext.findings.autograd_nodes import nodes_of
from profiler_ext.findings.facts import facts_of
from profiler_ext.findings.finding import Confidence
from profiler_ext.findings.rules import (
    layout_conversion,
    looping_op,
    padding_copy,
    repeated_backward,
    repeated_cast,
    unmerged_weight,
)
from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import CPU, US, Script, is_silent, only, placed
from tests.handmade import Mark, interned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profiler_ext.records.analysis import Analysis

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, float>"
GEMM = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT"
ENGINE = "autograd::engine::evaluate_function: "
ACCUMULATES = "torch::autograd::AccumulateGrad"
STEPS = 3


class Steps:
    """Steps whose launches have phases, and whose ops have autograd's numbers."""

    def __init__(self) -> None:
        self.script, self.phases = Script(), list[str]()

    def launch(
        self, op: str, phase: Phase, kernel: str = ELEMENTWISE, us: int = 300, **args: object
    ) -> None:
        self.script.launch(kernel, us * US, op=f"aten::{op}", **args)
        self.phases.append(phase.value)

    @contextmanager
    def within(self, name: str, number: int | None = None, forward: int = 1) -> Iterator[None]:
        """Let an op, or a node of autograd, be around what is launched."""
        begin_ns = self.script.now_ns
        self.script.now_ns += 1
        yield
        self.script.now_ns += 1
        args = {} if number is None else {"Sequence number": number, "Fwd thread id": forward}
        span_ns = self.script.now_ns - begin_ns
        self.script.marks.append(Mark(name, "cpu_op", CPU, begin_ns, span_ns, args))
        self.script.now_ns += 1

    def end_step(self) -> None:
        self.script.wait()
        self.script.end_step()

    def analysis(self, **places: dict) -> Analysis:
        """Return what is attributed; the place of a launch is that of its outermost op."""
        analysis = placed(self.script.analysis(), **places)
        return replace(analysis, launches=replace(analysis.launches, phase=interned(self.phases)))


def at(line: int, op: str, phase: Phase = Phase.FORWARD, **more: object) -> dict:
    own = {"file": "/model.py", "line": line, "phase": phase, "function": "forward"}
    return own | {"aten_op": f"aten::{op}", "module": "trunk"} | more


def penalized(*, besides: bool = True, order: int = 1) -> Analysis:
    """Steps whose loss has the gradients of a layer, which another forward may run, too."""
    steps = Steps()
    for step in range(STEPS):
        numbers = [100 * step, 100 * step + 1]
        for number in numbers[: 1 + besides]:
            with steps.within("aten::linear", number):
                steps.launch("mm", Phase.FORWARD)
        with steps.within(ENGINE + "AddmmBackward0", numbers[0]):
            steps.launch("mm_backward", Phase.BACKWARD)
        for _ in range(order):
            with steps.within(ENGINE + "AddmmBackwardBackward0", 100 * step + 50):
                steps.launch("mm_backward", Phase.BACKWARD)
        for number in numbers[: 1 + besides]:
            with steps.within(ENGINE + "AddmmBackward0", number):
                steps.launch("mm_backward", Phase.BACKWARD)
        steps.end_step()
    backward = at(4, "linear", Phase.BACKWARD)
    return steps.analysis(linear=at(4, "linear"), mm_backward=backward)


def differentiated(kind: str = "AddmmBackward0", *, is_scaled: bool = False) -> Analysis:
    """Steps that differentiate one value by two others, and then the sum of both derivatives."""
    steps = Steps()
    for step in range(STEPS):
        first = 100 * step
        for number in range(2):
            with steps.within("aten::ones_like"):
                steps.launch("fill_", Phase.OTHER)
            if is_scaled:
                with steps.within("aten::mul"):
                    pass
            with (
                steps.within(ENGINE + kind, first),
                steps.within("aten::mm", first + 50 + number, forward=0),
            ):
                steps.launch("mm_backward", Phase.BACKWARD)
        with steps.within("aten::ones_like"):
            steps.launch("fill_", Phase.OTHER)
        for number in (1, 0):
            with steps.within(ENGINE + "MmBackwardBackward0", first + 50 + number):
                steps.launch("mm_twice", Phase.BACKWARD)
        steps.end_step()
    behind = {each: at(4, "linear", Phase.BACKWARD) for each in ("mm_backward", "mm_twice")}
    return steps.analysis(fill_=at(8, "ones_like", Phase.OTHER), **behind)


STACK = (
    Frame("/train.py", 7, "step", "shared = trunk(x)"),
    Frame("/model.py", 3, "forward", "..."),
)


def learned(losses: int, kind: str = "MulBackward0", is_new: bool = False) -> Analysis:
    """Steps with a backward for each loss, through one layer and to its parameter."""
    steps = Steps()
    for step in range(STEPS):
        steps.launch("mul", Phase.FORWARD)
        for loss in range(losses):
            number = 10 * step + (loss if is_new else 0)
            with steps.within(ENGINE + kind, number):
                steps.launch("mul_backward", Phase.BACKWARD)
            with steps.within(ENGINE + ACCUMULATES):
                steps.launch("add_", Phase.GRADIENT_ACCUMULATION)
        steps.end_step()
    backward = at(4, "mul", Phase.BACKWARD, stack=STACK)
    return steps.analysis(mul=at(4, "mul", stack=STACK), mul_backward=backward)


def test_a_backward_that_runs_twice_costs_its_second_run_and_the_sums_after_it():
    found = only(repeated_backward.RULE, learned(2))
    assert found.est_saving_ns == 600 * US  # the node, and what it adds to the parameter
    assert [each.value for each in found.evidence] == [2, 2, 600 * US]
    assert only(repeated_backward.RULE, learned(3)).est_saving_ns == 1200 * US


def test_it_is_named_at_the_innermost_line_that_all_of_it_comes_from():
    found = only(repeated_backward.RULE, learned(2))
    assert (found.location.file, found.location.line) == ("/model.py", 3)


@pytest.mark.parametrize(
    "analysis",
    [learned(1), learned(2, is_new=True), learned(2, "MulBackwardBackward0")],
    ids=["one", "forwards_of_their_own", "gradients_of_gradients"],
)
def test_one_backward_for_each_forward_and_gradients_of_gradients_are_none(analysis: Analysis):
    assert is_silent(repeated_backward.RULE, analysis)


def test_a_penalty_on_gradients_costs_its_forward_and_three_backwards_in_fifteen_of_sixteen():
    found = only(repeated_backward.RULE, penalized())
    assert found.est_saving_ns == 4 * 300 * US * 15 // 16
    assert (found.location.line, "16th" in found.remedy) == (4, True)


def test_derivatives_of_one_value_cost_their_second_call_and_what_goes_through_its_graph():
    found = only(repeated_backward.RULE, differentiated())
    assert found.est_saving_ns == (300 + 300) * US
    assert [each.value for each in found.evidence] == [1, 2, 600 * US]
    assert "grad(y, (a, b, c))" in found.remedy


def in_rows(count: int, *, is_summed: bool = False) -> Analysis:
    """Steps with a backward for each row of a result, and one through what these made."""
    steps = Steps()
    for step in range(STEPS):
        first = 1000 * step
        for row in range(count):
            with (
                steps.within(ENGINE + "AddmmBackward0", first),
                steps.within("aten::mm", first + 50 + row, forward=0),
            ):
                steps.launch("mm_backward", Phase.BACKWARD, us=2)
            if is_summed:
                with steps.within(ENGINE + ACCUMULATES):
                    steps.launch("add_", Phase.GRADIENT_ACCUMULATION, us=2)
        for row in reversed(range(count)):
            with steps.within(ENGINE + "MmBackward0", first + 50 + row):
                steps.launch("mm_twice", Phase.BACKWARD, us=2)
        steps.end_step()
    backward = at(4, "linear", Phase.BACKWARD)
    return steps.analysis(mm_backward=backward, mm_twice=backward)


def test_a_jacobian_row_by_row_costs_all_rows_but_one_with_what_goes_through_their_graph():
    found = only(repeated_backward.RULE, in_rows(20))
    rows = "20 calls of autograd run the same nodes, each for another row (40 launches)"
    assert found.summary == f"CPU launch-bound: {rows}"
    assert "is_grads_batched" in found.remedy


@pytest.mark.parametrize("analysis", [in_rows(4), in_rows(20, is_summed=True)])
def test_a_few_losses_or_gradients_that_are_added_are_no_rows(analysis: Analysis):
    found = only(repeated_backward.RULE, analysis)
    assert found.remedy.startswith("add the losses")


def test_gradients_that_are_not_ones_may_be_others_in_each_call():
    assert is_silent(repeated_backward.RULE, differentiated(is_scaled=True))


def test_calls_may_begin_at_different_results_of_one_node():
    assert is_silent(repeated_backward.RULE, differentiated("UnbindBackward0"))
    assert is_silent(repeated_backward.RULE, differentiated("MyFunctionBackward"))


def test_gradients_that_a_model_returns_and_those_of_higher_order_are_no_penalty():
    assert is_silent(repeated_backward.RULE, penalized(besides=False))
    assert is_silent(repeated_backward.RULE, penalized(order=2))


def test_nodes_that_run_twice_have_one_number_and_those_of_parameters_none():
    nodes = nodes_of(facts_of(learned(2)))
    assert len(nodes) == 2 * 2 * STEPS
    assert sorted(set(nodes.number.tolist())) == [-1, *range(STEPS)]
    assert (nodes.number == -1).sum() == 2 * STEPS


def cast(calls: int, is_kept: bool = False, backwards: int = 1) -> Analysis:
    """Steps in which a layer is called, which casts its parameter and what it is given."""
    steps = Steps()
    number = 0
    for _ in range(STEPS):
        for _ in range(backwards):
            own = []
            for call in range(calls):
                with steps.within("aten::linear"):
                    for what in ("input", "weight"):
                        if what == "input" or call == 0 or not is_kept:
                            number += 1
                            own.append((number, what))
                            with steps.within("aten::_to_copy", number):
                                steps.launch("copy_", Phase.FORWARD, us=10)
                    steps.launch("mm", Phase.FORWARD, GEMM)
            last = max(each for each, what in own if what == "weight")
            for each, _ in sorted(own, reverse=True):
                with steps.within(ENGINE + "ToCopyBackward0", each):
                    steps.launch("to", Phase.BACKWARD, us=10)
                if each == min(n for n, what in own if what == "weight"):
                    assert last >= each
                    with steps.within(ENGINE + ACCUMULATES):
                        steps.launch("add_", Phase.GRADIENT_ACCUMULATION)
        steps.end_step()
    backward = at(3, "to", Phase.BACKWARD)
    return steps.analysis(linear=at(3, "linear"), to=backward, add_=backward)


def test_a_parameter_that_each_of_four_calls_casts_could_be_cast_once():
    found = only(repeated_cast.RULE, cast(4))
    launches, spent, times = (each.value for each in found.evidence[:3])
    assert (times, launches) == (4, 16)
    assert found.est_saving_ns == pytest.approx(3 / 4 * spent, rel=0.01)
    assert (found.location.file, found.location.line) == ("/model.py", 3)


def test_a_parameter_that_is_cast_in_each_micro_batch_is_cast_again():
    assert only(repeated_cast.RULE, cast(1, backwards=2)).evidence[2].value == 2


def test_a_cast_that_autocast_keeps_and_one_that_is_alone_are_none():
    assert is_silent(repeated_cast.RULE, cast(4, is_kept=True))
    assert is_silent(repeated_cast.RULE, cast(1))


PACKS = "_pack_padded_sequence"


def packed(parts: int, op: str = PACKS, kernels: int = 1, back_us: int = 1) -> Analysis:
    """Steps that wait for an op with a launch for each part, and for its backward."""
    steps = Steps()
    for step in range(STEPS):
        number = 100 * step
        with steps.within(f"aten::{op}", number):
            for part in range(parts):
                kernel = f"{ELEMENTWISE}{part % kernels}"
                steps.launch("copy_", Phase.FORWARD, kernel, us=1)
        with steps.within("aten::linear", number + 1):
            steps.launch("mm", Phase.FORWARD, GEMM, us=1)
        with steps.within(ENGINE + "MmBackward0", number + 1):
            steps.launch("mm_backward", Phase.BACKWARD, us=1)
        with steps.within(ENGINE + "PackPaddedSequenceBackward0", number):
            for _ in range(parts):
                steps.launch("copy_back", Phase.BACKWARD, us=back_us)
        steps.end_step()
    return steps.analysis(**{op: at(3, op), "linear": at(4, "linear")})


def test_an_op_that_launches_for_each_part_is_named_with_its_backward():
    found = only(looping_op.RULE, packed(40))
    assert found.summary.endswith(f"aten::{PACKS} launches a kernel for each part (80 launches)")
    assert "padded batch" in found.remedy
    assert (found.location.file, found.location.line) == ("/model.py", 3)
    # Of 82 launches of 10 us on a CPU 1.45 times as fast 80 cost a tenth
    assert found.est_saving_ns == pytest.approx(0.9 * 80 * 10 * US / 1.45, rel=0.1)


def test_a_backward_that_takes_more_than_a_gradient_needs_is_left_out_up_to_that():
    found = only(looping_op.RULE, packed(40, back_us=100))
    assert found.confidence is Confidence.UPPER_BOUND
    # Four times the 40 us of the forward are left, and a tenth of what the CPU needs for that
    launching_ns = 0.9 * 40 * 10 * US / 1.45
    assert found.est_saving_ns == pytest.approx((4000 - 160) * US + launching_ns, rel=0.01)
    assert only(looping_op.RULE, packed(40)).confidence is Confidence.ESTIMATED


def test_few_parts_a_composite_op_and_an_rnn_are_none():
    assert is_silent(looping_op.RULE, packed(10))
    assert is_silent(looping_op.RULE, packed(40, op="scaled_dot_product_attention", kernels=20))
    assert is_silent(looping_op.RULE, packed(40, op="lstm"))


def test_one_batched_call_is_proposed_for_decompositions():
    assert "batched" in only(looping_op.RULE, packed(40, op="linalg_svd")).remedy


def test_the_backward_of_a_copy_that_pads_is_needless_too() -> None:
    steps = Steps()
    for _ in range(STEPS):
        with steps.within("aten::pad", 5):
            steps.launch("copy_", Phase.FORWARD)
        with steps.within("aten::conv2d", 6):
            steps.launch("conv", Phase.FORWARD, GEMM)
        with steps.within(ENGINE + "ConvolutionBackward0", 6):
            steps.launch("conv_backward", Phase.BACKWARD, GEMM)
        with steps.within(ENGINE + "ConstantPadNdBackward0", 5):
            steps.launch("clone", Phase.BACKWARD, us=200)
        steps.end_step()
    analysis = steps.analysis(
        pad=at(3, "pad", code="x = F.pad(x, (1, 1))"),
        conv2d=at(4, "conv2d"),
        conv_backward=at(4, "convolution_backward", Phase.BACKWARD),
        clone=at(3, "constant_pad_nd", Phase.BACKWARD),
    )
    found = only(padding_copy.RULE, analysis)
    assert (found.location.line, found.est_saving_ns) == (3, 500 * US)


def test_a_backward_copies_the_input_again_that_its_convolution_copied() -> None:
    steps = Steps()
    for _ in range(STEPS):
        with steps.within("aten::conv2d", 6):
            steps.launch("copy_", Phase.FORWARD)
            steps.launch("cudnn_convolution", Phase.FORWARD, GEMM)
        for op in ("aten::convolution_backward", "aten::other_backward"):
            with steps.within(op):
                steps.launch("copy_", Phase.BACKWARD, us=200)
                steps.launch("mm", Phase.BACKWARD, GEMM)
        steps.end_step()
    analysis = steps.analysis(
        conv2d=at(4, "conv2d"),
        convolution_backward=at(4, "convolution_backward", Phase.BACKWARD),
        other_backward=at(5, "convolution_backward", Phase.BACKWARD),
    )
    found = only(layout_conversion.RULE, analysis)
    assert (found.location.line, found.est_saving_ns) == (4, 500 * US)


def test_a_norm_that_needs_another_layout_copies_what_convolutions_copy_back() -> None:
    grid = {"grid": [65536, 1, 1], "block": [128, 1, 1]}  # a pass takes 70 us
    steps = Steps()
    for step in range(STEPS):
        with steps.within("aten::instance_norm", 10 * step):
            steps.launch("copy_", Phase.FORWARD, **grid)
        with steps.within("aten::conv2d", 10 * step + 1):
            steps.launch("copy_", Phase.FORWARD, **grid)
            steps.launch("cudnn_convolution", Phase.FORWARD, GEMM)
        with steps.within("aten::convolution_backward"):
            steps.launch("copy_", Phase.BACKWARD, **grid)
        with steps.within(ENGINE + "ViewBackward0", 10 * step), steps.within("aten::reshape"):
            steps.launch("copy_", Phase.BACKWARD, **grid)
        steps.end_step()
    behind = {"phase": Phase.BACKWARD}
    analysis = steps.analysis(
        instance_norm=at(3, "instance_norm"),
        conv2d=at(4, "conv2d"),
        convolution_backward=at(9, "convolution_backward") | behind,
        reshape=at(3, "reshape") | behind,
    )
    found = only(layout_conversion.RULE, analysis)
    pass_us = 65536 * 128 * 4 * 8 / (0.8 * 4800) / US
    assert found.est_saving_ns == pytest.approx(4 * (300 - pass_us) * US, rel=0.01)
    assert [each.value for each in found.evidence[:3]] == [4, 1200 * US, 600 * US]


@pytest.mark.parametrize(("kernel", "joined"), [("direct_copy_kernel", True), ("Cat", False)])
def test_joining_tensors_of_unlike_layouts_for_a_convolution_takes_longer_than_a_pass(
    kernel: str, joined: bool
) -> None:
    grid = {"grid": [65536, 1, 1], "block": [128, 1, 1]}  # a pass takes 70 us
    copies = f"void at::native::elementwise_kernel<128, 4, gpu_kernel_impl_nocast<{kernel}>>"
    steps = Steps()
    for _ in range(STEPS):
        steps.launch("cat", Phase.FORWARD, copies, **grid)
        with steps.within("aten::conv3d"):
            steps.launch("copy_", Phase.FORWARD, **grid)
            steps.launch("cudnn_convolution", Phase.FORWARD, GEMM)
        steps.end_step()
    found = only(layout_conversion.RULE, steps.analysis(cat=at(3, "cat"), conv3d=at(4, "conv3d")))
    pass_us = 65536 * 128 * 4 * 8 / (0.8 * 4800) / US
    saved_us = 300 + (300 - pass_us) * joined
    assert found.est_saving_ns == pytest.approx(saved_us * US, rel=0.01)
    assert found.location.line == 4


@pytest.mark.parametrize(("code", "saved_us"), [("x = x.mT.contiguous()", 600), ("y = g(x)", 300)])
def test_a_copy_that_a_convolution_undoes_is_needless_too(code: str, saved_us: int) -> None:
    steps = Steps()
    for _ in range(STEPS):
        for op in ("aten::contiguous", "aten::conv2d"):
            with steps.within(op):
                steps.launch("copy_", Phase.FORWARD)
        steps.launch("cudnn_convolution", Phase.FORWARD, GEMM)
        steps.end_step()
    analysis = steps.analysis(contiguous=at(2, "contiguous", code=code), conv2d=at(3, "conv2d"))
    found = only(layout_conversion.RULE, analysis)
    assert (found.location.line, found.est_saving_ns) == (3, saved_us * US)


def joined(code: str, sums: int = 2, between: str | None = None) -> Analysis:
    """Steps that join tensors, and whose backward then adds to so many parameters."""
    steps = Steps()
    for step in range(STEPS):
        with steps.within("aten::concat", 10 * step, forward=0):
            steps.launch("cat", Phase.FORWARD)
        with steps.within(ENGINE + "CatBackward0", 10 * step):
            pass
        if between:
            with steps.within(ENGINE + between, 10 * step - 1):
                steps.launch("mul_backward", Phase.BACKWARD)
        for _ in range(sums):
            with steps.within(ENGINE + ACCUMULATES):
                steps.launch("copy_", Phase.GRADIENT_ACCUMULATION)
        steps.end_step()
    sums_of = Phase.GRADIENT_ACCUMULATION
    return steps.analysis(concat=at(4, "concat", code=code), copy_=at(4, "clone", sums_of))


@pytest.mark.parametrize("code", ["w = torch.cat((a, b), 1)", "w = torch.cat(parts)"])
def test_parameters_that_each_step_joins_cost_the_copy_and_those_of_their_gradients(code: str):
    found = only(unmerged_weight.RULE, joined(code))
    assert (found.location.line, found.est_saving_ns) == (4, 3 * 300 * US)
    assert found.summary == "each step joins 2 parameters"


@pytest.mark.parametrize(
    "analysis",
    [
        joined("w = torch.cat((a, x, b), 1)"),
        joined("w = torch.cat((a, x))", sums=1),
        joined("w = torch.cat((x, y))", between="MulBackward0"),
    ],
    ids=["one_is_computed", "one_parameter", "both_are_computed"],
)
def test_what_is_joined_with_what_a_step_computes_is_no_parameter(analysis: Analysis):
    assert is_silent(unmerged_weight.RULE, analysis)
