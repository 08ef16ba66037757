"""What happens once: a first step unlike the others, and graphs that no cache keeps."""

from __future__ import annotations

from dataclasses import replace

from profiler_ext.findings import Location, SavingPer
from profiler_ext.findings.rules import first_step, uncached
from profiler_ext.records.analysis import Analysis, Step
from profiler_ext.records.vocabulary import CacheState
from tests.analyses import gpu_step
from tests.findings.stepping import MS, is_silent, judged, only
from tests.findings.test_compiles import compiled as function


def steps(*walls_ms: int) -> Analysis:
    ends = [sum(walls_ms[: at + 1]) * MS for at in range(len(walls_ms))]
    made = tuple(
        Step.on_cpu(at, end - wall * MS, end)
        for at, (wall, end) in enumerate(zip(walls_ms, ends, strict=True))
    )
    return replace(gpu_step(), steps=made)


def test_a_first_step_of_twice_the_time_distorts_the_mean() -> None:
    found = only(first_step.RULE, steps(40, 10, 12, 10))
    assert (found.saving_per, found.est_saving_ns, found.total_ns) == (
        SavingPer.WINDOW,
        7_500_000,
        18 * MS,
    )


def test_steps_that_differ_as_the_first_does_are_none() -> None:
    assert is_silent(first_step.RULE, steps(15, 10, 12, 11))


def test_two_steps_tell_nothing_of_a_first() -> None:
    (unjudged,) = judged(first_step.RULE, steps(40, 10)).rules_skipped
    assert unjudged.reason == "fewer than 3 steps were recorded"


def compiled(state: CacheState, why: str = "no uuid") -> Analysis:
    made = gpu_step()
    graphs = tuple(
        replace(graph, cache_state=state, cache_detail=why, compile_ns=2_000 * MS)
        for graph in made.recording.graphs
    )
    return replace(made, recording=replace(made.recording, graphs=graphs))


def test_graphs_that_no_cache_keeps_cost_each_process_their_compile() -> None:
    found = only(uncached.RULE, compiled(CacheState.BYPASS))
    count = len(gpu_step().recording.graphs)
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.PROCESS, count * 2_000 * MS)
    assert [each.value for each in found.evidence] == [count, count * 2_000 * MS, "no uuid"]
    assert is_silent(uncached.RULE, compiled(CacheState.MISS))


def test_the_line_is_that_of_the_function_where_the_session_tells() -> None:
    made = compiled(CacheState.BYPASS)
    alone = only(uncached.RULE, made).location
    assert (alone.file, alone.line, alone.graph) == (None, None, "0/0")
    changed = (replace(function(0, -9_000, 8_000), compile_id="0/0"),)
    known = replace(made, recording=replace(made.recording, compiles=changed))
    assert only(uncached.RULE, known).location == Location(
        "/home/ann/gpt/model.py", 10, graph="0/0"
    )


def test_of_an_op_that_torch_cannot_keep_the_rest_can_be_compiled_apart() -> None:
    reason = "FX graph cache: bypass (Can't cache HigherOrderOperator: cond)"
    found = only(uncached.RULE, compiled(CacheState.BYPASS, reason))
    assert found.remedy.startswith("move the op that torch cannot cache")
    assert only(uncached.RULE, compiled(CacheState.BYPASS)).remedy.startswith("change what torch's")


def test_of_a_region_that_is_compiled_by_itself_no_cache_is_asked() -> None:
    reason = "FX graph cache: not asked; AOTAutograd's cache: miss"
    found = only(uncached.RULE, compiled(CacheState.BYPASS, reason))
    assert found.remedy.startswith("compile the whole function: torch does not cache regions")


def test_a_cache_that_is_off_can_be_left_on() -> None:
    off = only(uncached.RULE, compiled(CacheState.BYPASS, "FX graph cache: off"))
    assert off.remedy.startswith("leave torch's cache on")
