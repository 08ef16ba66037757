"""Short kernels that come one by one are the finding; kernels that queue up are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import profiler_ext
from profiler_ext.findings import NOWHERE, Confidence, FigureUnit
from profiler_ext.findings.rules import cpu_work
from profiler_ext.findings.rules.launch_bound import RULE
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Phase, Scope
from tests.analyses import cpu_step
from tests.findings.stepping import MS, US, Script, is_silent, judged, only, placed, steps, trained
from tests.handmade import interned

SESSIONS = Path(__file__).parents[1] / "fixtures" / "h200" / "cases"


OF_TORCH = "void at::native::vectorized_elementwise_kernel<4>"
AT_A_LINE = {"file": "/m.py", "line": 3, "phase": Phase.FORWARD}


def test_short_kernels_leave_the_device_waiting():
    found = only(RULE, steps(2 * US).analysis())
    assert found.confidence is Confidence.ESTIMATED
    # Each launch costs the CPU 10 us, of which the device works 2.
    # Of the 500 us of a step the CPU would need 344 828 ns if nobody recorded it.
    idle_ns = (3 * 400 + 2) * US // 3 - (500_000 - 344_827)
    # A graph leaves the way to its first launch
    assert 0.99 * idle_ns < found.est_saving_ns < idle_ns
    # A wait of 2 us is over 2 us after the last kernel, which ends the last step.
    assert found.total_ns == (3 * 504 * US - 2 * US) // 3
    figures = {each.name: (each.value, each.unit) for each in found.evidence}
    assert figures["launches a step"] == (50, FigureUnit.COUNT)
    assert figures["median launch"] == (2 * US, FigureUnit.NS)
    assert "for what runs eagerly" in found.remedy


def test_what_compiling_fuses_is_added_to_what_the_device_waits():
    idle_ns = only(RULE, steps(2 * US).analysis()).est_saving_ns
    found = only(RULE, placed(steps(2 * US, kernel=OF_TORCH).analysis(), mul=AT_A_LINE))
    assert found.est_saving_ns == idle_ns + 60 * US
    assert {each.name: each.value for each in found.evidence}["kernels of eager ops"] == 100 * US


@pytest.mark.parametrize("case", ["cond", "while_loop"])
def test_what_chooses_its_way_or_loops_is_not_reported_to_be_replayed(case):
    (session,) = SESSIONS.glob(f"{case}.session.*")
    found = only(RULE, profiler_ext.load(session).analysis)
    assert found.remedy.startswith("a larger batch; or torch.where in place of torch.cond")


def test_what_the_steps_before_took_tells_what_the_recording_added():
    found = only(RULE, trained(steps(2 * US).analysis(), 400 * US, 9 * MS, 380 * US, 390 * US))
    # It added what the mean step has beyond 390 us, the lower median of what they took before.
    idle_ns = (3 * 400 + 2) * US // 3 - (503_333 - 390 * US)
    assert 0.99 * idle_ns < found.est_saving_ns < idle_ns
    assert found.total_ns == 390 * US
    figures = {each.name: each.value for each in found.evidence}
    assert figures["step time without profiling"] == 390 * US


def test_a_device_that_only_the_recording_lets_wait_is_none():
    analysis = steps(5 * US).analysis()
    assert not is_silent(RULE, analysis)
    assert is_silent(RULE, trained(analysis, 260 * US, 255 * US, 255 * US))


def test_kernels_that_queue_up_are_none():
    assert is_silent(RULE, steps(40 * US).analysis())


def test_a_graph_that_is_replayed_is_not_to_be_replayed():
    found = only(RULE, steps(2 * US, call="cudaGraphLaunch").analysis())
    assert found.remedy.startswith("a larger batch")


def test_ranks_that_communicate_are_not_reported_to_replay_all_of_it():
    script = steps(2 * US)
    script.launch("ncclDevKernel_AllReduce_Sum_bf16", 5 * US, op="c10d::allreduce_")
    script.end_step()
    assert only(RULE, script.analysis()).remedy.startswith("a larger batch on each rank")


def test_a_wait_for_data_or_for_the_device_is_no_launching():
    script = Script()
    for _ in range(2):
        script.work("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5 * MS)
        for _ in range(20):
            script.launch("vectorized_elementwise_kernel", 40 * US)
        script.wait()
        script.end_step()
    assert is_silent(RULE, script.analysis())


def test_on_the_cpu_it_cannot_be_judged():
    (unjudged,) = judged(RULE, cpu_step()).rules_skipped
    assert unjudged.reason == "the launches ran on the CPU, which waits for no launch"


def busy_elsewhere(pauses_ns: tuple[int, ...]) -> Script:
    script = Script()
    for _ in range(3):
        for pause_ns in pauses_ns:
            script.launch("vectorized_elementwise_kernel", 2 * US)
            script.now_ns += pause_ns
        script.end_step()
    return script


def test_python_that_launches_nothing_for_long_is_no_launching():
    analysis = busy_elsewhere((0,) * 20 + (5 * MS,) + (0,) * 20).analysis()
    assert is_silent(RULE, analysis)
    found = only(cpu_work.RULE, analysis)
    assert found.summary == "GPU idle: Python launches nothing for long"
    assert found.remedy.startswith("move that Python out of the step")
    # What takes so long at a stretch takes as long without a recording
    assert 5 * MS - 10 * US < found.est_saving_ns <= 5 * MS


def test_python_that_is_short_and_often_is_that_of_launching():
    found = only(RULE, busy_elsewhere((125 * US,) * 41).analysis())
    assert found.summary == "GPU idle: the CPU is launch-bound"
    assert "for what runs eagerly" in found.remedy


def test_an_op_that_computes_on_the_cpu_is_named():
    script = Script()
    for _ in range(3):
        for _ in range(20):
            script.launch("vectorized_elementwise_kernel", 2 * US)
        script.work("aten::normal_", 5 * MS, "cpu_op")
        script.launch("vectorized_elementwise_kernel", 2 * US)
        script.end_step()
    found = only(cpu_work.RULE, script.analysis())
    assert found.summary == "GPU idle: aten::normal_ runs on the CPU"
    assert 5 * MS - 10 * US < found.est_saving_ns <= 5 * MS + 10 * US
    assert found.remedy.startswith("do it on the GPU")


def test_launches_of_a_backward_count_for_the_line_of_their_forward():
    found = only(RULE, placed(steps(2 * US).analysis(), mul=AT_A_LINE | {"module": "blocks.3.mlp"}))
    assert (found.location.file, found.location.line) == ("/m.py", 3)
    figures = {each.name: each.value for each in found.evidence}
    assert str(figures["most of it"]).endswith(" of blocks.*.mlp")


def layered(layers: int) -> Analysis:
    """Steps of four launches in each layer: two of one function that each layer calls."""
    script = Script()
    for _ in range(3):
        for number in range(layers):
            for op in ("norm", "scale", "round", "matmul"):
                script.launch("vectorized_elementwise_kernel", 2 * US, op=f"aten::{op}_{number}")
        script.end_step()
    calling = Frame("/m.py", 40, "loss", "return head(model(x))")
    places = {}
    for number in range(layers):
        block = Frame("/m.py", 20, "forward", "return self.layer(self.norm(x))")
        for op, line in (("norm", 20), ("scale", 7), ("round", 7), ("matmul", 9)):
            own = () if op == "norm" else (Frame("/layer.py", line, "forward", "..."),)
            stack = (calling, block, *own)
            last = {"file": stack[-1].file, "line": line, "function": "forward", "stack": stack}
            module = f"blocks.{number}.{op}"
            places[f"{op}_{number}"] = last | {"module": module, "phase": Phase.FORWARD}
    return placed(script.analysis(), **places)


def test_without_a_line_it_has_the_innermost_function_of_layers_with_most_of_the_time():
    found = only(RULE, layered(12))
    assert (found.location.file, found.location.line) == ("/layer.py", 7)
    made = layered(12)
    compiled = interned([Scope.COMPILED.value] * len(made.launches))
    launches = replace(made.launches, scope=compiled)
    assert only(RULE, replace(made, launches=launches)).location == NOWHERE


def test_without_layers_it_has_the_innermost_function_with_most_of_the_time():
    found = only(RULE, layered(3))
    assert (found.location.file, found.location.line) == ("/layer.py", 7)
