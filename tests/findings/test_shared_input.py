"""Layers of one input: by the text of their function, where they are short or launched late."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profiler_ext.findings.code_of_lines import calls_of_one_input
from profiler_ext.findings.rules import shared_input
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Phase
from tests.findings.stepping import US, Script, is_silent, only, placed

GEMM = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT"
QUERY = {5: "q = self.q(x)", 6: "k = self.k(x)", 7: "v = self.v(x)"}
NORM = Frame("/model.py", 4, "forward", "y = self.norm(x)")


@pytest.mark.parametrize(
    ("codes", "groups"),
    [
        (QUERY, [["q", "k", "v"]]),
        ({5: "return self.down(F.silu(self.gate(x)) * self.up(x))"}, [["gate", "up"]]),
        ({5: "q = self.q(x)", 6: "k, v = self.k(y), self.v(y)"}, [["k", "v"]]),
        ({5: "q = self.q(x)", 6: "x = self.norm(x)", 7: "k = self.k(x)"}, [["q", "norm"]]),
        ({5: "x = self.up(x)", 6: "x = self.down(x)"}, []),
        ({5: "a = self.net(x)", 6: "b = self.net(x)"}, []),
        ({5: "a = self.q(x + y)", 6: "b = self.k(x + y)"}, []),
    ],
)
def test_calls_of_one_input_are_known_by_their_text(
    codes: dict[int, str], groups: list[list[str]]
) -> None:
    found = [[name for name, _ in sorted(each)] for each in calls_of_one_input(codes)]
    assert sorted(map(sorted, found)) == sorted(map(sorted, groups))


def projected(kernel_us: int, idle_us: int = 0, module: str = "layers.0.{}") -> Analysis:
    """Three steps of ten attentions with three projections each."""
    script = Script()
    for _ in range(3):
        for _ in range(10):
            for name in "qkv":
                script.launch(GEMM, kernel_us * US, op=f"aten::{name}")
                script.now_ns += idle_us * US
            script.launch("softmax", kernel_us * US, op="aten::softmax")
        script.wait()
        script.end_step()

    def place(name: str, line: int) -> dict[str, Any]:
        frame = Frame("/model.py", line, "forward", QUERY[line])
        own = {"file": "/model.py", "line": line, "function": "forward", "stack": (frame,)}
        own |= {"phase": Phase.FORWARD, "aten_op": "aten::linear"}
        return own | {"code": QUERY[line], "module": module.format(name)}

    norm = {"file": NORM.file, "line": NORM.line, "function": "forward", "stack": (NORM,)}
    layers = {"q": place("q", 5), "k": place("k", 6), "v": place("v", 7)}
    return placed(script.analysis(), softmax=norm, **layers)


def test_short_products_of_one_input_take_half_as_long_as_one() -> None:
    found = only(shared_input.RULE, renamed(projected(kernel_us=9, idle_us=0)))
    assert (found.location.line, found.summary[:8]) == (5, "3 layers")
    assert found.est_saving_ns == 20 * 9 * US // 2


def renamed(analysis: Analysis) -> Analysis:
    """Return an analysis whose projections are launched by ``aten::mm``."""
    trace = analysis.recording.trace
    names = trace.events.name
    own = {"aten::q", "aten::k", "aten::v"}
    strings = tuple("aten::mm" if each in own else each for each in names.strings)
    events = replace(trace.events, name=replace(names, strings=strings))
    recording = replace(analysis.recording, trace=replace(trace, events=events))
    return replace(analysis, recording=recording)


def test_where_the_cpu_is_behind_two_of_three_layers_cost_launches() -> None:
    found = only(shared_input.RULE, renamed(projected(kernel_us=2, idle_us=20)))
    # Of 30 us for each of 20 layers, on a CPU 1.45 times as fast
    assert found.est_saving_ns == pytest.approx(0.75 * 20 * 30 * US / 1.45, rel=0.25)


def test_long_products_and_layers_of_other_modules_are_none() -> None:
    assert is_silent(shared_input.RULE, renamed(projected(kernel_us=200)))
    apart = projected(kernel_us=2, idle_us=20, module="layers.{0}.{0}")
    assert is_silent(shared_input.RULE, renamed(apart))
