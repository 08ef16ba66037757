"""Autotuning does not pay where thousands of steps cannot win back what it took."""

from __future__ import annotations

from dataclasses import replace

from profiler_ext.findings import Location, SavingPer
from profiler_ext.findings.rules.unpaid_tuning import RULE
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.compiles import CompileKind, CompilePhase, CompileTime
from tests.analyses import cpu_step, gpu_step
from tests.findings.stepping import MS, is_silent, judged, only
from tests.findings.test_compiles import compiled

SECOND = 1_000 * MS
RUNS_NS = 160_001
"""What the step runs for its two graphs, whose compile is 0/0."""


def tuned(tuning_s: int, *, made: Analysis | None = None, compile_id: str = "0/0") -> Analysis:
    """A step whose graphs were compiled for five seconds, and tuned."""
    made = made or gpu_step()
    times = (
        CompileTime(CompilePhase.AUTOTUNING, tuning_s * SECOND),
        CompileTime(CompilePhase.KERNELS, 5 * SECOND),
    )
    one = replace(compiled(0, -900_000, (tuning_s + 5) * 1_000), times=times, compile_id=compile_id)
    return replace(made, recording=replace(made.recording, compiles=(one,)))


def test_what_was_tuned_for_a_minute_and_runs_for_a_moment_is_not_won_back() -> None:
    found = only(RULE, tuned(60))
    assert (found.saving_per, found.est_saving_ns, found.total_ns) == (
        SavingPer.PROCESS,
        60 * SECOND,
        65 * SECOND,
    )
    assert found.location == Location("/home/ann/gpt/model.py", 10, graph="0/0")
    until = 60 * SECOND // RUNS_NS
    assert [each.value for each in found.evidence] == [60 * SECOND, 65 * SECOND, RUNS_NS, until]


def test_what_a_step_is_in_for_longer_may_pay() -> None:
    made = gpu_step()
    twice = replace(
        made, launches=replace(made.launches, duration_ns=made.launches.duration_ns * 2)
    )
    assert 16 * SECOND < 50_000 * 2 * RUNS_NS < 17 * SECOND
    assert is_silent(RULE, tuned(16, made=twice))
    assert only(RULE, tuned(17, made=twice)).est_saving_ns == 17 * SECOND


def test_less_than_ten_seconds_are_none() -> None:
    made = gpu_step()
    short = replace(made.launches, duration_ns=made.launches.duration_ns // 100)
    assert is_silent(RULE, tuned(9, made=replace(made, launches=short)))


def test_a_compile_without_autotuning_is_not_judged() -> None:
    made = tuned(60)
    (one,) = made.recording.compiles
    untuned = replace(one, times=(CompileTime(CompilePhase.KERNELS, 65 * SECOND),))
    assert is_silent(RULE, replace(made, recording=replace(made.recording, compiles=(untuned,))))


def test_code_that_no_recorded_step_ran_is_not_judged() -> None:
    assert is_silent(RULE, tuned(60, compile_id="7/0"))


def test_what_other_threads_tune_next_to_it_does_not_count() -> None:
    made = tuned(60)
    (one,) = made.recording.compiles
    other = replace(one, kind=CompileKind.WORKER)
    assert is_silent(RULE, replace(made, recording=replace(made.recording, compiles=(other,))))


def test_without_compiles_or_a_device_it_cannot_be_judged() -> None:
    (unjudged,) = judged(RULE, gpu_step()).rules_skipped
    assert unjudged.reason == "the recording does not tell what compiling took"
    (unjudged,) = judged(RULE, tuned(60, made=cpu_step())).rules_skipped
    assert unjudged.reason == "the launches ran on the CPU, of which not all are known"
