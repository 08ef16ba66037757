"""A break costs the idle time from one graph to the next; one that the device works across none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.findings import Location, SavingPer
from profiler_ext.findings.facts import time_within
from profiler_ext.findings.rules import graph_break
from profiler_ext.findings.rules.graph_break import RULE
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.compiles import Compilation, CompileKind, GraphBreak
from profiler_ext.records.lineage import Frame
from tests.findings.stepping import CPU, MS, US, Script, is_silent, judged, only
from tests.handmade import Mark

REASON = """Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):

Call to a builtin that Dynamo does not trace
  Explanation: it prints

  Developer debug context: builtin print
"""
BREAK = GraphBreak(
    REASON,
    (Frame("/m.py", 12, "forward", "print(x.shape)"),),
)


def compiled(compile_id: str, line: int, *, resumed: bool) -> Compilation:
    return Compilation(
        index=int(compile_id[0]),
        kind=CompileKind.FRAME,
        compile_id=compile_id,
        dynamo_number=0,
        thread=1,
        started_ns=-9_000 * MS,
        duration_ns=MS,
        times=(),
        file="/m.py",
        line=line,
        is_resumed=resumed,
        breaks=() if resumed else (BREAK,),
    )


def steps(kernel_us: int, resumed_at: int = 12) -> Analysis:
    """Steps of two graphs, with 300 us of Python between them."""
    script = Script()
    for _ in range(3):
        first = script.now_ns
        graph(script, kernel_us)
        script.now_ns += 200 * US
        second = script.now_ns
        script.now_ns += 100 * US
        graph(script, kernel_us)
        for name, begun in (("0/0", first), ("1/0", second)):
            spent = script.now_ns - begun
            region = f"Torch-Compiled Region: {name}"
            script.marks.append(Mark(region, "user_annotation", CPU, begun, spent))
        script.end_step()
    made = script.analysis()
    compiles = (compiled("0/0", 10, resumed=False), compiled("1/0", resumed_at, resumed=True))
    return replace(made, recording=replace(made.recording, compiles=compiles))


def graph(script: Script, kernel_us: int) -> None:
    begun = script.now_ns
    for _ in range(10):
        script.launch("triton_poi_fused_gelu_0", kernel_us * US, op="triton_poi_fused_gelu_0")
    spent = script.now_ns - begun
    script.marks.append(
        Mark("## Call CompiledFxGraph fabc ##", "user_annotation", CPU, begun, spent)
    )


def test_a_break_is_reported_with_the_idle_way_to_the_next_graph() -> None:
    found = only(RULE, steps(5))
    assert found.location == Location("/m.py", 12, "print(x.shape)")
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.UNKNOWN, 0)
    # The last kernel of the first graph runs 5 us into the way.
    assert [each.value for each in found.evidence] == [
        1,
        300 * US - 5 * US,
        "Call to a builtin that Dynamo does not trace; Explanation: it prints",
    ]


def test_a_function_that_goes_on_at_another_line_is_of_no_break() -> None:
    assert is_silent(RULE, steps(5, resumed_at=13))


def test_a_break_that_the_device_works_across_costs_nothing() -> None:
    assert is_silent(RULE, steps(200))


def test_the_idle_time_of_all_breaks_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, reported = steps(5), []
    lines = (compiled(f"{at}/0", at, resumed=True) for at in range(2, 100))
    breaks = (replace(BREAK, stack=(Frame("/m.py", at, "forward", ""),)) for at in range(2, 100))
    broken = replace(compiled("0/0", 10, resumed=False), breaks=(BREAK, *breaks))
    compiles = (broken, compiled("1/0", 12, resumed=True), *lines)
    many = replace(made, recording=replace(made.recording, compiles=compiles))
    monkeypatch.setattr(
        graph_break, "time_within", lambda *spans: reported.append(spans) or time_within(*spans)
    )
    assert only(RULE, many) == only(RULE, made)
    assert len(reported) == 2


def test_without_compiles_it_cannot_be_judged() -> None:
    made = steps(5)
    (unjudged,) = judged(
        RULE, replace(made, recording=replace(made.recording, compiles=()))
    ).rules_skipped
    assert unjudged.reason == "nothing was compiled"
