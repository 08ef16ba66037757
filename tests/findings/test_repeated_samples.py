"""Samples that are repeated before a network, which computes the same of each copy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.findings.repeated_samples import RepeatedSamples, calls_of_repeated
from profiler_ext.findings.rules import repeated_call
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import Function, Position, PythonLines
from tests.findings.stepping import ELEMENTWISE, US, Script, at, is_silent, only, placed
from tests.handmade import interned

GEMM = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT"
COPIES = "void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>"


def repeating(
    first: str = "many = x.repeat_interleave(n, 0)",
    second: str = "y = self.net(many)",
    *,
    copies: str = COPIES,
    draws: bool = False,
) -> Analysis:
    """Steps that repeat a batch and call a network of twenty launches of 100 us with it."""
    script = Script()
    for _ in range(3):
        script.launch(copies, 20 * US, op="aten::repeat_interleave")
        for number in range(20):
            op = "native_dropout" if draws and not number else f"l{number}_mm"
            script.launch(GEMM, 100 * US, op=f"aten::{op}")
        script.launch(ELEMENTWISE, 2 * US, op="aten::head")
        script.wait()
        script.end_step()
    codes = {3: first, 4: second, 5: "return self.head(y, masks)"}
    frames = {line: (Frame("/m.py", line, "forward", code),) for line, code in codes.items()}
    places = {f"l{number}_mm": at(14, "mm", stack=frames[4]) for number in range(20)}
    places["native_dropout"] = at(14, "native_dropout", stack=frames[4])
    places["repeat_interleave"] = at(3, "repeat_interleave", stack=frames[3])
    places["head"] = at(5, "mul", stack=frames[5])
    made = placed(script.analysis(), **places)
    positions = tuple(Position(None, 0, line, code=code) for line, code in codes.items())
    python = PythonLines((Function("/m.py", "forward"),), (), positions, (), (), end_ns=0)
    return replace(
        made,
        recording=replace(made.recording, python=python),
        launches=replace(made.launches, phase=interned(["forward"] * len(made.launches))),
    )


def test_of_repeated_samples_at_least_half_is_computed_again() -> None:
    found = only(repeated_call.RULE, repeating())
    assert (found.location.line, found.est_saving_ns) == (4, 20 * 50 * US)
    assert found.remedy.startswith("call it before the samples are repeated")
    thrice = repeating("many = x.repeat(4, 1, 1)")
    assert only(repeated_call.RULE, thrice).est_saving_ns == 20 * 75 * US


@pytest.mark.parametrize(
    "words",
    [
        {"second": "y = self.net(many, masks)"},
        {"second": "y = self.net(many + noise)"},
        {"second": "y = self.net(many) * self.gate(x)"},
        {"second": "y = self.cache(many)"},
        {"first": "many = x.repeat_interleave(n, 1)"},
        {"first": "many = x.repeat(1, n, 1)"},
        {"first": "many = torch.cat([x, z])"},
        {"copies": "Memcpy DtoD (Device -> Device)"},  # it may be repeated once
        {"draws": True},
    ],
)
def test_samples_that_differ_are_not_computed_again(words: dict) -> None:
    assert is_silent(repeated_call.RULE, repeating(**words))


def test_what_a_function_does_between_with_samples_makes_them_others() -> None:
    repeats = "x = torch.cat([x, x])"
    twice = RepeatedSamples(2, 1, "net")
    assert calls_of_repeated({1: repeats, 2: "y = net(x).logits"}) == {2: twice}
    assert calls_of_repeated({1: "x = torch.cat([z] * 2)", 2: "return net(x, True)"}) == {2: twice}
    assert calls_of_repeated({1: "y = net(x.repeat(2, 1), flag=1)"}) == {1: twice}
    for between in ("x = x + noise", "x += noise", "x.add_(noise)", "x[:2] = 0", "if x.any("):
        assert calls_of_repeated({1: repeats, 2: between, 3: "y = net(x)"}) == {}
    assert calls_of_repeated({1: repeats, 2: "y = F.relu(x)", 3: "z = net(y)"}) == {}
