"""Compile time in the steps, and functions that are compiled anew, with the guard that failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.findings import Figure, Location, SavingPer
from profiler_ext.findings.rules import compiling, recompilation
from profiler_ext.records.analysis import Analysis, Step
from profiler_ext.records.compiles import (
    Compilation,
    CompileKind,
    CompilePhase,
    CompileTime,
    Recompilation,
)
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import StepCall, StepCalls
from tests.analyses import gpu_step
from tests.findings.stepping import MS, is_silent, judged, only

SIZE = Recompilation(
    "0/0",
    "tensor 'x' size mismatch at index 0. expected 32, actual 8",
    (Frame("/home/ann/gpt/train.py", 40, "main", "loss = model(x, y)"),),
)


def compiled(index: int, begun_ms: int, took_ms: int, *failed: Recompilation) -> Compilation:
    took = took_ms * MS
    return Compilation(
        index=index,
        kind=CompileKind.FRAME,
        compile_id=f"0/{index}",
        dynamo_number=index,
        thread=1,
        started_ns=begun_ms * MS,
        duration_ns=took,
        times=(CompileTime(CompilePhase.INDUCTOR, took),),
        function="forward",
        file="/home/ann/gpt/model.py",
        line=10,
        recompiles=failed,
    )


def having(*compiles: Compilation, steps: int = 4, wall_ms: int = 100) -> Analysis:
    made = gpu_step()
    spans = tuple(
        Step.on_cpu(at, at * wall_ms * MS, (at + 1) * wall_ms * MS) for at in range(steps)
    )
    return replace(made, steps=spans, recording=replace(made.recording, compiles=compiles))


def test_a_compile_in_one_step_distorts_the_mean() -> None:
    found = only(compiling.RULE, having(compiled(0, 10, 60)))
    assert (found.saving_per, found.est_saving_ns, found.total_ns) == (
        SavingPer.WINDOW,
        15 * MS,
        100 * MS,
    )
    assert found.location == Location("/home/ann/gpt/model.py", 10, graph="0/0")
    assert [each.value for each in found.evidence] == [1, 60 * MS, 1, "Inductor"]


def test_a_decode_step_whose_cuda_graph_is_recorded_for_each_prompt_says_so() -> None:
    took = 60 * MS
    times = (CompileTime(CompilePhase.CUDA_GRAPHS, took),)
    recordings = [
        replace(compiled(0, 1000 * at, 60), kind=CompileKind.RUN_TIME, times=times)
        for at in range(2, 5)
    ]
    analysis = having(*recordings, steps=2)
    calls = tuple(StepCalls(at, (StepCall("the module `M`", 8, 1),)) for at in range(2))
    settings = replace(analysis.recording.settings, step_calls=calls)
    decoding = replace(analysis, recording=replace(analysis.recording, settings=settings))
    found = only(compiling.RULE, decoding)
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.PROCESS, 2 * took)
    assert [each.value for each in found.evidence[:2]] == [3, took]
    assert is_silent(compiling.RULE, analysis)  # sizes are not known
    fewer = replace(decoding.recording, compiles=tuple(recordings[:2]))
    assert is_silent(compiling.RULE, replace(decoding, recording=fewer))


def test_a_compile_in_each_step_is_at_stake_in_each() -> None:
    found = only(compiling.RULE, having(*(compiled(at, 100 * at + 5, 20 + at) for at in range(4))))
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.STEP, 21 * MS)
    assert found.remedy.startswith("keep constant what the failing guard compares")


def test_a_compile_within_another_counts_once_and_one_next_to_it_not_at_all() -> None:
    other = replace(compiled(2, 10, 80), kind=CompileKind.WORKER)
    found = only(compiling.RULE, having(compiled(0, 10, 60), compiled(1, 20, 30), other))
    assert found.evidence[1].value == 60 * MS


def test_what_was_compiled_before_the_steps_is_none() -> None:
    assert is_silent(compiling.RULE, having(compiled(0, -500, 400)))


def test_graphs_without_compiles_are_of_a_recording_that_does_not_tell() -> None:
    for rule in (compiling.RULE, recompilation.RULE):
        (unjudged,) = judged(rule, gpu_step()).rules_skipped
        assert unjudged.reason == "the recording does not tell what compiling took"


def test_a_guard_that_fails_costs_each_process_the_further_compiles() -> None:
    more = (compiled(at, -9_000 + 2_000 * at, 1_500, SIZE) for at in (1, 2))
    found = only(recompilation.RULE, having(compiled(0, -10_000, 1_000), *more))
    assert (found.saving_per, found.est_saving_ns, found.total_ns) == (
        SavingPer.PROCESS,
        3_000 * MS,
        4_000 * MS,
    )
    assert found.summary == "forward was compiled again, as a guard failed"
    assert found.evidence[0] == Figure("compiled once more", 2)
    assert found.location == Location("/home/ann/gpt/train.py", 40, "loss = model(x, y)")
    assert found.evidence[2].value == SIZE.guard
    assert "dynamic=True" in found.remedy


def test_a_guard_on_a_value_has_another_remedy() -> None:
    failed = Recompilation("0/0", "self.scale == 0.5")
    found = only(recompilation.RULE, having(compiled(1, -5_000, 1_500, failed)))
    assert found.location == Location("/home/ann/gpt/model.py", 10)
    assert found.remedy.startswith("keep what the guard compares constant")


@pytest.mark.parametrize(
    "guard", ["GLOBAL_STATE changed: grad_mode ", "self._modules['norm'].training == True"]
)
def test_one_code_for_training_and_one_for_evaluation_are_right(guard: str) -> None:
    of_other = Recompilation("0/0", guard)
    both = (compiled(0, -9_000, 4_000), compiled(1, -4_000, 3_000, of_other))
    assert is_silent(recompilation.RULE, having(*both))
    found = only(recompilation.RULE, having(*both, compiled(2, -900, 500, of_other)))
    assert (found.est_saving_ns, found.evidence[0]) == (500 * MS, Figure("compiled once more", 1))
    found = only(recompilation.RULE, having(*both, compiled(2, -900, 500, SIZE)))
    assert (found.est_saving_ns, found.evidence[0]) == (500 * MS, Figure("compiled once more", 1))


def test_of_equal_blocks_the_first_has_an_input_that_wants_no_gradient() -> None:
    guards = ("GLOBAL_STATE changed: grad_mode ", "tensor 'x' requires_grad mismatch. expected 0")
    again = (compiled(at, -900, 500, Recompilation("0/0", each)) for at, each in enumerate(guards))
    assert is_silent(recompilation.RULE, having(compiled(2, -9_000, 4_000), *again))


def test_functions_that_are_compiled_once_each_are_none() -> None:
    assert is_silent(
        recompilation.RULE, having(compiled(0, -9_000, 4_000), compiled(1, -4_000, 3_000))
    )
