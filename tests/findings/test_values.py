"""Rules that read the values of a step: repeated results, equal rows, gradients that are zero."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler_ext.findings import Confidence, Finding, Rule
from profiler_ext.findings.ranking import judge
from profiler_ext.findings.rules import (
    equal_rows,
    repeated_call,
    repeated_result,
    unread_result,
    zero_gradient,
)
from profiler_ext.findings.values import is_moving, needless_elements
from profiler_ext.records.events import Interned
from profiler_ext.records.lineage import Frame
from profiler_ext.records.values import GradientValues, OpValues, ProgramLine, StepValues
from profiler_ext.records.vocabulary import Phase, Scope
from tests.findings.stepping import US, is_silent, judged, only
from tests.findings.test_autograd_nodes import STEPS, Steps
from tests.findings.test_repeated_samples import repeating

if TYPE_CHECKING:
    from profiler_ext.records.analysis import Analysis

RULES = (repeated_result.RULE, equal_rows.RULE, zero_gradient.RULE, unread_result.RULE)
TRAIN = "/train.py"
CALLERS = ((TRAIN, "step"), ("/block.py", "forward"))


@dataclass(frozen=True)
class Work:
    """A launch of an op at a line of the model, called from lines of the step."""

    line: int
    op: str = "mm"
    us: int = 300
    phase: Phase = Phase.FORWARD
    calls: tuple[int, ...] = ()  # lines of the step, then of a block of the model
    function: str = "forward"
    left_out: int = 0  # the outermost frames that are not on its stack

    @property
    def frames(self) -> tuple[Frame, ...]:
        own = zip(CALLERS, self.calls, strict=False)
        callers = [Frame(file, line, function) for (file, function), line in own]
        return (*callers, Frame("/model.py", self.line, self.function))[self.left_out :]


def behind(work: Work) -> Work:
    return replace(work, phase=Phase.BACKWARD)


def recorded(
    *work: Work, ops: tuple[OpValues, ...] = (), gradients: tuple[GradientValues, ...] = ()
) -> Analysis:
    """Steps that wait for the device, with values: each work's op is within one of its place."""
    names = {each: f"w{number}" for number, each in enumerate(dict.fromkeys(work))}
    steps = Steps()
    for _ in range(STEPS):
        for each in work:
            with steps.within(f"aten::{names[each]}"):
                steps.launch(each.op, each.phase, us=each.us)
        steps.end_step()
    places = {
        name: {
            "file": "/model.py",
            "line": each.line,
            "function": each.function,
            "phase": each.phase,
            "stack": each.frames,
        }
        for each, name in names.items()
    }
    return with_values(steps.analysis(**places), ops=ops, gradients=gradients)


def with_values(analysis: Analysis, **words: tuple) -> Analysis:
    values = StepValues(step=1, **words)
    return replace(analysis, recording=replace(analysis.recording, values=values))


def program(line: int, file: str = "/model.py") -> ProgramLine:
    return ProgramLine(file, line, "forward")


def op(line: int, repeated: float = 0, rows: float = 0, name: str = "mm", **words) -> OpValues:
    parts = round(1000 * repeated), round(1000 * rows)
    is_backward = words.get("is_backward", False)
    at = words.get("at", program(line))
    return OpValues(at, f"aten::{name}", is_backward, words.get("calls", 2), 1000, *parts)


def gradient(line: int, zero: float, reader: str = "IndexBackward0") -> GradientValues:
    return GradientValues(
        program(line), "AddmmBackward0", 1, 1000, round(1000 * zero), reader, program(99)
    )


def unread(line: int, part: float, name: str = "mm") -> OpValues:
    return replace(op(line, name=name), unread_elements=round(1000 * part))


def evidence(finding: Finding) -> dict[str, float | str]:
    return {each.name: each.value for each in finding.evidence}


@pytest.mark.parametrize("rule", RULES, ids=lambda each: each.name)
def test_without_values_no_rule_of_them_is_judged_and_says_which_option_compares_them(rule: Rule):
    analysis = recorded(Work(3))
    assert is_silent(rule, analysis)
    without = replace(analysis, recording=replace(analysis.recording, values=None))
    (skipped,) = judged(rule, without).rules_skipped
    assert "profile(values=True)" in skipped.reason
    recording = without.recording
    asked = replace(recording, settings=replace(recording.settings, options=("values",)))
    (skipped,) = judged(rule, replace(without, recording=asked)).rules_skipped
    assert "wait=3" in skipped.reason


def test_what_each_round_computes_again_is_computed_once():
    rounds = [Work(5, calls=(9,)), Work(7, calls=(9,))] * 20
    found = only(repeated_result.RULE, recorded(*rounds, ops=(op(5, 0.95), op(7))))
    assert (found.location.file, found.location.line) == ("/model.py", 5)
    assert found.est_saving_ns == 19 * 300 * US
    assert found.summary == "the same values are computed 20 times a step"
    assert found.confidence is Confidence.ESTIMATED


def test_a_network_that_runs_again_is_one_finding_at_the_line_that_calls_it():
    layers = [3, 4, 5, 6]
    trained = [Work(line, calls=(9, 30)) for line in layers]
    again = [Work(line, calls=(12, 30)) for line in layers]
    work = (*trained, *map(behind, trained), *again, Work(8, "sum", calls=(12,)))
    ops = tuple(op(line, 0.5) for line in layers)
    found = only(repeated_result.RULE, recorded(*work, ops=ops))
    assert (found.location.file, found.location.line) == (TRAIN, 12)
    assert found.est_saving_ns == 4 * 300 * US  # its sum is no repeat
    assert found.summary.startswith("this computes the same values as line 9")
    assert evidence(found)["computed first at"] == "step, 9"


def test_lines_of_one_function_with_similar_shares_are_one_finding_and_their_caller_is_none():
    block = [Work(line, calls=(9, 30)) for line in (3, 4, 5)] * 4
    ops = (op(3, 0.75, calls=4), op(4, 0.75, calls=4), op(5))
    found = only(repeated_result.RULE, recorded(*block, ops=ops))
    assert (found.location.file, found.location.line) == ("/model.py", 3)
    assert evidence(found)["other lines of the function"] == "4"
    assert found.est_saving_ns == (3 + 3) * 300 * US


def test_lines_of_other_functions_or_shares_are_findings_of_their_own():
    rounds = [Work(3), Work(4), Work(5, function="other"), Work(6)] * 4
    ops = tuple(op(line, part) for line, part in ((3, 0.75), (4, 0.5), (5, 0.75), (6, 0)))
    found = judged(repeated_result.RULE, recorded(*rounds, ops=ops)).ranked
    lines = [(each.location.line, each.est_saving_ns // (300 * US)) for each in found]
    assert sorted(lines) == [(3, 3), (4, 2), (5, 3)]


def test_short_launches_count_by_what_launching_takes():
    short = [Work(line, us=2, calls=(9,)) for line in (3, 4, 5)]
    work = [*short, Work(6, us=4, calls=(9,))] * 20
    found = only(repeated_result.RULE, recorded(*work, ops=tuple(op(n, 0.95) for n in (3, 4, 5))))
    assert (found.location.line, found.summary[-15:]) == (3, "20 times a step")
    assert evidence(found)["launches a step"] == 3 * 19


def test_a_line_of_two_callers_is_one_finding():
    calls = (8, 8, 9)
    work = [Work(line, us=300 * line, calls=(call,)) for call in calls for line in (1, 2)]
    found = only(repeated_result.RULE, recorded(*work, ops=(op(1, 2 / 3),)))
    assert (found.location.line, found.est_saving_ns) == (1, 2 * 300 * US)


def test_less_than_a_quarter_is_none():
    assert is_silent(repeated_result.RULE, recorded(*[Work(3)] * 10, ops=(op(3, 0.2),)))


def test_values_are_those_of_the_op_of_the_line_and_of_its_phase():
    work = (Work(3), Work(3), Work(3, "add"), Work(3, "add"))
    found = only(repeated_result.RULE, recorded(*work, ops=(op(3, 0.5), op(3, name="add"))))
    assert found.est_saving_ns == 300 * US
    forwards = recorded(*map(behind, work), ops=(op(3, 0.5), op(3, 0.5, name="add")))
    assert is_silent(repeated_result.RULE, forwards)
    backwards = (op(3, 0.5, is_backward=True),)
    found = only(repeated_result.RULE, recorded(*map(behind, work), ops=backwards))
    assert found.est_saving_ns == 600 * US  # by all ops of the line where one is not known


def test_a_line_within_the_innermost_one_of_the_model_has_its_values():
    analysis = recorded(*[Work(3)] * 4, ops=(op(77, 0.75),))
    inner = tuple(
        replace(each, stack=(*each.stack, Frame("/model.py", 77, "own"))) if each.line else each
        for each in analysis.places
    )
    assert is_silent(repeated_result.RULE, analysis)
    found = only(repeated_result.RULE, replace(analysis, places=inner))
    assert found.est_saving_ns == 3 * 300 * US


def test_the_optimizers_work_is_none_of_the_model():
    assert is_silent(
        repeated_result.RULE,
        recorded(*[Work(3, phase=Phase.OPTIMIZER)] * 4, ops=(op(3, 0.75),)),
    )


def gathered(us: int = 300) -> Analysis:
    layers = [Work(line, us=us, calls=(9, 30)) for line in (3, 4)]
    rows = Work(8, "embedding", calls=(9,))
    work = (rows, *layers, *map(behind, layers), Work(10, us=50))
    ops = (op(3, 0, 0.9), op(4, 0, 0.9), op(8, 0, 0.9, "embedding"), op(10))
    return recorded(*work, ops=ops)


def test_a_network_on_equal_rows_costs_all_but_the_distinct_ones():
    found = only(equal_rows.RULE, gathered())
    assert (found.location.file, found.location.line) == (TRAIN, 9)
    assert found.est_saving_ns == int(0.9 * 4 * 300 * US)  # not the lookup's
    assert found.summary == "1 of 10 rows is different: the others are computed again"


def test_short_launches_take_as_long_for_fewer_rows():
    assert is_silent(equal_rows.RULE, gathered(us=9))


def test_ops_that_only_move_equal_rows_are_none():
    moved = recorded(Work(3, "index_select"), Work(4), ops=(op(3, 0, 1, "index_select"), op(4)))
    assert is_silent(equal_rows.RULE, moved)
    at_one_line = recorded(Work(3, "cat"), Work(3), ops=(op(3, 0, 0.9), op(3, 0, 0.9, "cat")))
    assert is_silent(equal_rows.RULE, recorded(Work(3), ops=(op(3, 0, 0.4),)))
    assert only(equal_rows.RULE, at_one_line).est_saving_ns == int(0.9 * 300 * US)
    for name in ("aten::copy_", "aten::_to_copy", "aten.cat.default", "aten::index_backward"):
        assert is_moving(name), name
    for name in ("aten::mm", "aten::copysign", "aten::softmax", "aten::tanh", "aten::addmm"):
        assert not is_moving(name), name


def test_what_the_loss_reads_nothing_of_goes_with_its_backward():
    entropy = [Work(3, "exp", calls=(9,)), Work(4, "mul", calls=(9,))]
    policy = Work(7, calls=(8,))
    work = (policy, *entropy, *map(behind, entropy), behind(policy))
    zeros = (gradient(3, 1, "MulBackward0"), gradient(4, 1, "MulBackward0"), gradient(7, 0))
    found = only(zero_gradient.RULE, recorded(*work, gradients=zeros))
    assert (found.location.file, found.location.line) == (TRAIN, 9)
    assert found.est_saving_ns == 4 * 300 * US
    assert found.summary == "the loss reads nothing of this: its gradient is zero"
    assert evidence(found)["what reads it"] == "Mul, model.py:99"
    assert found.confidence is Confidence.ESTIMATED


def test_of_logits_of_which_the_loss_reads_some_the_others_go():
    head = Work(5)
    work = (Work(3), head, behind(head), behind(Work(3)))
    found = only(zero_gradient.RULE, recorded(*work, gradients=(gradient(5, 0.88),)))
    assert (found.location.line, found.est_saving_ns) == (5, int(0.88 * 300 * US) * 2)
    assert found.summary == "the loss reads 12% of what this computes"
    assert found.confidence is Confidence.UPPER_BOUND


@pytest.mark.parametrize(
    "reader",
    [
        *("Max", "Amax", "Topk", "Sort", "Relu", "ClampMin", "MaxPool2DWithIndices", "Maximum"),
        *("Abs", "Threshold", "Hardtanh", "NativeDropout", "Median", "Cummin", "Kthvalue"),
        *("Softmax", "LogSoftmax"),  # saturated
    ],
)
def test_what_selects_by_values_has_to_know_all(reader: str):
    work = (Work(5), behind(Work(5)))
    assert is_silent(
        zero_gradient.RULE, recorded(*work, gradients=(gradient(5, 1, f"{reader}Backward0"),))
    )


def test_readers_take_elements_by_their_place_or_by_what_is_given_with_them():
    names = ("Slice", "Select", "Index", "IndexSelect", "NllLoss", "Mul", "Gather", "Where")
    assert all(needless_elements(gradient(5, 0.5, f"{each}Backward0")) for each in names)
    assert not needless_elements(gradient(5, 1, ""))  # given to backward
    assert not needless_elements(gradient(5, 0.9, "NllLoss2DBackward0"))  # most classes are none


def test_a_part_of_what_is_computed_together_costs_as_much():
    whole, part = (
        replace(gradient(5, zero, "SliceBackward0"), node="FftC2CBackward0") for zero in (1, 0.75)
    )
    assert needless_elements(whole)
    assert not needless_elements(part)


def test_where_a_matcher_reads_all_only_the_backward_goes():
    work = (Work(5), Work(6), behind(Work(5)), behind(Work(6)))
    read = replace(op(6), is_read_without_gradient=True)
    analysis = recorded(*work, ops=(op(5), read), gradients=(gradient(5, 1), gradient(6, 1)))
    found = only(zero_gradient.RULE, analysis)
    assert found.est_saving_ns == 2 * 300 * US


def test_what_runs_without_gradients_at_the_same_line_is_none():
    trained, target = Work(5, calls=(9, 30)), Work(5, calls=(12, 30))
    found = only(
        zero_gradient.RULE,
        recorded(trained, behind(trained), target, gradients=(gradient(5, 1),)),
    )
    assert found.est_saving_ns == 2 * 300 * US


def test_what_is_behind_a_checkpoint_is_of_the_call_of_its_forward():
    layers = [Work(line, calls=(9, 30)) for line in (3, 4)]
    again = [replace(each, phase=Phase.RECOMPUTE, left_out=1) for each in layers]
    gradients = [replace(each, phase=Phase.BACKWARD) for each in again]
    work = (*layers, Work(8, us=500), *again, *gradients)
    found = only(zero_gradient.RULE, recorded(*work, gradients=(gradient(3, 1), gradient(4, 1))))
    assert (found.location.file, found.location.line) == (TRAIN, 9)
    assert found.est_saving_ns == 6 * 300 * US


def test_what_is_recomputed_for_a_zero_gradient_goes_too():
    work = (Work(5), Work(6), replace(Work(5), phase=Phase.RECOMPUTE), behind(Work(5)))
    found = only(zero_gradient.RULE, recorded(*work, gradients=(gradient(5, 1),)))
    assert found.est_saving_ns == 3 * 300 * US


def test_what_the_text_says_of_the_same_launches_stays():
    analysis = repeating()
    lines = tuple(op(14, 0, 0.6, f"l{number}_mm") for number in range(20))
    at = replace(lines[0].at, file="/model.py")
    values = with_values(analysis, ops=tuple(replace(each, at=at) for each in lines))
    assert only(equal_rows.RULE, without_python(values)).est_saving_ns > 0
    (found,) = judge(values, (repeated_call.RULE, equal_rows.RULE)).ranked
    assert found.rule == "repeated_call"


def without_python(analysis: Analysis) -> Analysis:
    """The same, of which no text is known."""
    places = tuple(
        replace(each, stack=tuple(replace(frame, code=None) for frame in each.stack))
        for each in analysis.places
    )
    return replace(analysis, places=places, recording=replace(analysis.recording, python=None))


PARTS = st.floats(0, 1)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(8, 10), PARTS, PARTS), max_size=9))
def test_no_more_is_saved_than_the_launches_take(drawn: list[tuple[int, int, float, float]]):
    work = [Work(line, us=20 * line, calls=(call,)) for line, call, *_ in drawn]
    ops = tuple(op(line, repeated, rows) for line, _, repeated, rows in drawn)
    zeros = tuple(gradient(line, zero) for line, _, zero, _ in drawn)
    every = [Work(7), *work, *map(behind, work)]
    analysis = recorded(*every, ops=ops, gradients=zeros)
    for rule in RULES:
        found = judge(analysis, (rule,)).ranked
        assert sum(each.est_saving_ns for each in found) <= sum(2 * each.us * US for each in work)
        assert len({each.location for each in found}) == len(found)


def test_what_nothing_reads_is_left_out():
    rounds = [Work(5), Work(6), Work(7)]
    found = only(unread_result.RULE, recorded(*rounds, ops=(unread(5, 1), op(6), op(7))))
    assert (found.location.line, found.est_saving_ns) == (5, 300 * US)
    assert found.summary == "nothing reads what this computes"
    assert found.confidence is Confidence.ESTIMATED


def test_of_what_is_read_in_part_that_part_stays():
    found = only(unread_result.RULE, recorded(Work(5), Work(6), ops=(unread(5, 0.9), op(6))))
    assert (found.location.line, found.est_saving_ns) == (5, 270 * US)
    assert found.summary == "10% of what this computes is read"
    assert found.confidence is Confidence.UPPER_BOUND


def test_a_part_of_a_transform_costs_as_much_as_the_whole():
    values = (unread(5, 0.9), op(6))
    assert only(unread_result.RULE, recorded(Work(5), Work(6), ops=values)).est_saving_ns > 0
    transform = Work(5, op="_fft_c2c")
    assert is_silent(unread_result.RULE, recorded(transform, Work(6), ops=values))


def test_where_kernels_run_that_no_op_launched_nothing_is_known_to_be_unread():
    analysis = recorded(Work(5), Work(6), ops=(unread(5, 1), op(6)))
    launches = analysis.launches
    alone = np.ma.masked_array(launches.op_event.filled(-1), np.arange(len(launches)) % 2 == 1)
    (skipped,) = judged(
        unread_result.RULE, replace(analysis, launches=replace(launches, op_event=alone))
    ).rules_skipped
    assert "not known" in skipped.reason


def test_what_is_compiled_has_no_dead_code_left():
    analysis = recorded(Work(5), Work(6), ops=(unread(5, 1), op(6)))
    scope = Interned(np.zeros(len(analysis.launches), np.int32), (Scope.COMPILED,))
    compiled = replace(analysis, launches=replace(analysis.launches, scope=scope))
    assert is_silent(unread_result.RULE, compiled)


def test_of_rows_that_an_earlier_call_computed_that_part_goes():
    rounds = [Work(5, calls=(9,)), Work(7, calls=(9,))] * 10
    known = replace(op(5), rows_computed_before_elements=900)
    found = only(repeated_result.RULE, recorded(*rounds, ops=(known, op(7))))
    assert (found.location.line, found.est_saving_ns) == (5, 9 * 300 * US)
    copied = replace(op(5, name="cat"), rows_computed_before_elements=900)
    assert is_silent(repeated_result.RULE, recorded(*rounds, ops=(copied, op(7))))


def test_on_the_cpu_each_launch_counts_with_its_time():
    analysis = recorded(Work(5), Work(6), behind(Work(5)), gradients=(gradient(5, 0.5),))
    launches = analysis.launches
    stream = np.ma.masked_all(len(launches), np.int64)
    on_cpu = replace(analysis, launches=replace(launches, stream=stream))
    assert only(zero_gradient.RULE, on_cpu).est_saving_ns == 300 * US
    read = recorded(Work(5), Work(6), ops=(unread(5, 1), op(6)))
    stream = np.ma.masked_all(len(read.launches), np.int64)
    (skipped,) = judged(
        unread_result.RULE, replace(read, launches=replace(read.launches, stream=stream))
    ).rules_skipped
    assert "CPU" in skipped.reason
