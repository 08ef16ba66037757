"""What a step computes although it has it, or takes to the device although it was there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from profiler_ext.findings.code_of_lines import equal_calls
from profiler_ext.findings.rules import repeated_call
from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import ELEMENTWISE, US, Script, at, is_silent, only, placed
from tests.handmade import interned

if TYPE_CHECKING:
    from profiler_ext.records.analysis import Analysis

GEMM = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT"


def called_twice(
    first: str, second: str, *, backward: tuple[bool, bool], drawn: bool = False, between: str = ""
) -> Analysis:
    """Steps in which two lines of a function call a model of three products."""
    script, phases, places = Script(), [], {}
    codes = {7: first, 8: between, 9: second}
    for _ in range(3):
        for line, is_learning in ((7, backward[0]), (9, backward[1])):
            for number in range(3):
                script.launch(GEMM, 100 * US, op=f"aten::l{line}_{number}_convolution")
                phases.append("forward")
            if drawn:
                script.launch(ELEMENTWISE, 10 * US, op=f"aten::native_dropout_{line}")
                phases.append("forward")
            if line == 7 and between:
                script.launch(ELEMENTWISE, 10 * US, op="aten::update")
                phases.append("optimizer" if "optimizer" in between else "forward")
            for number in range(3 * is_learning):
                script.launch(GEMM, 200 * US, op=f"aten::l{line}_{number}_backward")
                phases.append("backward")
        script.wait()
        script.end_step()
    for line in (7, 9):
        frames = (Frame("/train.py", line, "step", codes[line]),)
        places[f"native_dropout_{line}"] = at(4, "native_dropout", stack=frames)
        for number in range(3):
            own = {"module": f"net.{number}", "stack": frames}
            places[f"l{line}_{number}_convolution"] = at(3, "mm", **own)
            places[f"l{line}_{number}_backward"] = at(3, "mm", Phase.BACKWARD, **own)
    places["update"] = at(8, stack=(Frame("/train.py", 8, "step", between),))
    analysis = placed(script.analysis(), **places)
    return replace(analysis, launches=replace(analysis.launches, phase=interned(phases)))


def test_a_forward_for_metrics_has_the_outputs_of_the_training_step():
    step = called_twice("out = model(x)", "seen = model(x)", backward=(False, True))
    found = only(repeated_call.RULE, step)
    assert (found.location.file, found.location.line) == ("/train.py", 7)
    assert found.est_saving_ns == pytest.approx(300 * US, rel=0.02)
    assert found.remedy.startswith("take the outputs of the training step")
    after = called_twice("loss = f(model(x), y)", "hits(model(x), y)", backward=(True, False))
    assert only(repeated_call.RULE, after).location.line == 9


def test_a_call_with_a_backward_that_is_made_twice_loses_it_as_well():
    step = called_twice("a = net(x)", "b = net(x).sum()", backward=(True, True))
    found = only(repeated_call.RULE, step)
    assert (found.location.line, found.evidence[-1].value) == (9, 7)
    assert found.est_saving_ns == pytest.approx(900 * US, rel=0.02)


def test_calls_of_inference_are_made_once():
    step = called_twice("a = net(x)", "b = net(x)", backward=(False, False))
    assert only(repeated_call.RULE, step).est_saving_ns == pytest.approx(300 * US, rel=0.02)


@pytest.mark.parametrize(
    ("first", "second", "between"),
    [
        ("a = net(x)", "b = net(y)", ""),
        ("a = net(x)", "b = other(x)", ""),
        ("x = net(x)", "b = net(x)", ""),
        ("a = net(x)", "b = net(x)", "x.add_(noise)"),
        ("a = net(x)", "b = net(x)", "x = torch.cat("),
        ("a = net(x)", "b = net(x)", "optimizer.first_step()"),
    ],
)
def test_other_arguments_and_updated_weights_are_another_call(
    first: str, second: str, between: str
):
    step = called_twice(first, second, backward=(True, True), between=between)
    assert is_silent(repeated_call.RULE, step)


def test_calls_with_dropout_that_both_learn_differ():
    step = called_twice("a = net(x)", "b = net(x)", backward=(True, True), drawn=True)
    assert is_silent(repeated_call.RULE, step)


def test_what_a_line_assigns_ends_what_was_called_with_it():
    calls = {1: "a = f(x, self.n)", 2: "b = g(f(x, self.n))", 3: "x += b", 4: "c = f(x, self.n)"}
    assert equal_calls(calls) == [("f(x, self.n)", [1, 2])]
    assert equal_calls({1: "a = f(x)", 2: "for x in xs:", 3: "b = f(x)"}) == []
    assert equal_calls({1: "a = f()", 2: "b = f()"}) == []
    assert equal_calls({1: "with torch.no_grad(): x = f(x)", 2: "y = f(x)"}) == []
