"""How long a step takes where nobody records is told by the steps before it, or else estimated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from profiler_ext.findings.critical_path import Replay
from profiler_ext.findings.facts import Facts
from profiler_ext.findings.unprofiled_step import Training
from profiler_ext.records.analysis import Analysis
from tests.findings.stepping import US, Script, trained


def steps(kernel_us: int, *, waits: bool = False) -> Script:
    """Five steps of 100 launches, of which each costs the CPU 10 us."""
    script = Script()
    for _ in range(5):
        for _ in range(100):
            script.launch("vectorized_elementwise_kernel", kernel_us * US)
        if waits:
            script.wait("aten::_local_scalar_dense")
        script.end_step()
    return script


def with_settings(analysis: Analysis, **settings: Any) -> Analysis:
    recording = analysis.recording
    return replace(
        analysis, recording=replace(recording, settings=replace(recording.settings, **settings))
    )


def training(script: Script, *before_us: int) -> Training:
    return Facts(trained(script.analysis(), *(each * US for each in before_us))).training


def test_a_cpu_that_sets_the_pace_was_slowed_by_what_the_steps_before_took_less() -> None:
    found = training(steps(2), 810, 5_000, 800)
    assert (found.is_known, found.is_device_bound, found.step_ns) == (True, False, 800 * US)
    assert (round(found.slowdown, 2), found.overhead_ns) == (1.25, 200_400)


def test_a_device_that_is_busy_all_the_while_sets_the_pace_of_all_launches() -> None:
    analysis = trained(steps(9).analysis(), 905 * US, 900 * US, 905 * US)
    assert not Facts(trained(analysis)).pace.is_critical.any()
    facts = Facts(analysis)
    assert facts.training == Training(
        True, False, True, 2.0, 905 * US, 905 * US, facts.step_ns - 905 * US, 500 * US
    )
    assert facts.pace.is_critical.all()


def test_a_step_in_which_the_program_ran_ahead_tells_the_work_of_the_cpu() -> None:
    """Where the device sets the pace, by the program's own clock of the steps before."""
    analysis = trained(steps(9).analysis(), 905 * US, 900 * US, 905 * US, on_device=True)
    unknown, ahead = (
        Facts(with_settings(analysis, unprofiled_cpu_ns=each)).training for each in (None, 700 * US)
    )
    assert (ahead.is_cpu_known, ahead.cpu_ns) == (True, pytest.approx(700 * US, rel=1e-3))
    assert ahead.slowdown == pytest.approx(1_000 / 700, rel=1e-3)
    assert not unknown.is_cpu_known
    reading = trained(steps(9, waits=True).analysis(), 905 * US, 900 * US, 905 * US, on_device=True)
    assert not Facts(with_settings(reading, unprofiled_cpu_ns=700 * US)).training.is_cpu_known


def test_a_program_that_runs_ahead_of_the_device_is_at_a_step_for_less_than_it_takes() -> None:
    found = training(steps(40), 700, 710, 720)
    assert (found.is_known, found.is_device_bound, found.step_ns) == (True, True, 4_000 * US)


def test_a_step_takes_at_most_the_mean_of_those_alike() -> None:
    found = training(steps(9), 4_000, 905, 905, 905, 955)
    assert (found.step_ns, found.most_ns) == (905 * US, 917_500)


def waiting() -> Script:
    """Five steps of 20 launches, for each of which the CPU waits: 1,040 us, no less than 920."""
    script = Script()
    for _ in range(5):
        for _ in range(20):
            script.launch("vectorized_elementwise_kernel", 40 * US)
            script.wait("aten::_local_scalar_dense")
        script.end_step()
    return script


def test_where_a_quick_cpu_comes_near_the_steps_before_they_tell_the_step_and_not_the_cpu() -> None:
    found = training(waiting(), 900, 900, 900)
    assert (found.is_known, found.step_ns, found.slowdown) == (True, 900 * US, 1.45)
    assert not training(waiting(), 820, 820, 820).is_known


def test_a_cpu_that_was_slowed_by_more_than_is_known_is_as_quick_as_is_known() -> None:
    # Four times as quick it takes 253 us, and 1.45 times as quick more than twice as long.
    found = on_device(steps(1), 240, 240, 240)
    assert (found.step_ns, found.slowdown) == (240 * US, 4.0)
    assert on_device(steps(1), 210, 210, 210).slowdown == 1.45  # no replay is near that


def test_a_device_that_fills_a_step_does_not_tell_how_much_quicker_the_cpu_is() -> None:
    # Twice as quick it takes no longer than four times as quick: the device needs 600 us
    found = on_device(steps(6), 595, 595, 595)
    assert (found.is_device_bound, found.slowdown, found.cpu_ns) == (True, 2.0, 500 * US)


def test_few_steps_and_steps_unlike_the_recorded_ones_tell_nothing() -> None:
    estimate = training(steps(2))
    assert not estimate.is_known
    assert estimate.overhead_ns == 1_000 * US - int(1_000 * US / 1.45)
    assert training(steps(2), 810, 810) == estimate
    assert training(steps(2), 1_200, 1_200, 1_200) == estimate
    assert training(steps(2), 0, 0, 0) == estimate


def test_a_wait_is_no_work_that_a_recording_slows() -> None:
    # Each step the CPU works 1,000 us and then waits for the last kernel, of 40 us each.
    facts = Facts(steps(40, waits=True).analysis())
    assert facts.replay is not None
    recorded_ns = facts.analysis.steps[2].wall_ns
    assert facts.replay.step_ns(1.0) == recorded_ns
    quicker_ns = facts.replay.step_ns(2.0)
    # The first launch comes 3.75 us earlier, and nothing else sets the pace.
    assert recorded_ns - quicker_ns == 3.75 * US
    without = replace(facts.replay.unchanged, waits=~facts.replay.waits.is_for_value)
    assert facts.replay.step_ns(2.0, without) == facts.busy_ns


def queued(kernels: int, *, reads: bool = False) -> Replay:
    """Return the replay of five steps of kernels of 38 us, 2 us after the one before each."""
    script = Script()
    for _ in range(5):
        for at in range(kernels):
            script.launch("vectorized_elementwise_kernel", 38 * US)
            script.free_ns += 2 * US
            if reads and at % 10 == 0:
                script.wait("aten::_local_scalar_dense")
        script.end_step()
    replay = Facts(script.analysis()).replay
    assert replay is not None
    return replay


def test_the_way_from_one_kernel_of_a_queue_to_the_next_is_the_devices_time() -> None:
    replay = queued(100)
    assert replay.step_ns(1.0) == replay.step_ns(2.0) == replay.recorded_ns == 4_000 * US
    kept = replay.unchanged
    kept.busy[::2] = 0
    assert replay.step_ns(1.0, kept) == 2_000 * US  # with the kernels their ways are gone
    kept.busy[::2] = 0.5
    assert replay.step_ns(1.0, kept) == 3_050 * US  # a faster kernel has its way
    merged = replace(kept, count=np.where(kept.busy < 1, 0.5, 1.0))
    assert replay.step_ns(1.0, merged) == 3_000 * US


def test_without_waits_a_device_takes_that_way_to_kernels_that_were_late_for_it_too() -> None:
    replay = queued(100, reads=True)
    without = replace(replay.unchanged, waits=~replay.waits.is_for_value)
    assert replay.step_ns(2.0, without) == 4_000 * US < replay.step_ns(2.0)


def test_the_profilers_own_time_is_no_work_of_the_cpu_that_it_slows() -> None:
    script = Script()
    for _ in range(3):
        for _ in range(50):
            script.launch("vectorized_elementwise_kernel", 2 * US)
        script.work("Buffer Flush", 290 * US, "overhead")
        script.launch("vectorized_elementwise_kernel", 2 * US)
        script.end_step()
    found = training(script)
    own_ns = 800 * US - 288 * US  # the last kernel before runs for 2 us of it
    assert (found.cpu_ns, found.overhead_ns) == (int(own_ns / 1.45), 800 * US - int(own_ns / 1.45))


def on_device(script: Script, *before_us: int) -> Training:
    before_ns = (each * US for each in before_us)
    return Facts(trained(script.analysis(), *before_ns, on_device=True)).training


def test_what_the_device_took_for_the_steps_before_is_what_a_step_takes() -> None:
    found = on_device(steps(40), 4_020, 4_030, 9_000, 4_010)
    assert (found.is_known, found.step_ns, found.most_ns) == (True, 4_020 * US, 4_020 * US)
    shorter = on_device(steps(2), 330, 320, 310)
    assert (shorter.is_known, shorter.step_ns) == (True, 320 * US)


def test_steps_of_the_device_that_are_few_or_longer_than_the_recorded_ones_tell_nothing() -> None:
    assert not on_device(steps(40), 4_000, 4_000).is_known
    assert not on_device(steps(2), 1_200, 1_200, 1_200).is_known


def halves(*before_us: int, call: str = "cudaLaunchKernel") -> Facts:
    """Five steps of 50 short and 50 longer kernels: the CPU is too slow for both if recorded."""
    script = Script()
    for _ in range(5):
        for kernel, took_us in (("short", 2), ("long", 7)):
            for _ in range(50):
                script.launch(kernel, took_us * US, call=call)
        script.wait()
        script.end_step()
    return Facts(trained(script.analysis(), *(each * US for each in before_us), on_device=True))


def gain_us(facts: Facts, kernel: str, gone: float = 1.0) -> float:
    rows = np.flatnonzero(facts.named(kernel.__eq__))
    return facts.median_per_step(rows, facts.critical_ns(rows, gone)) / US


def test_what_sets_the_pace_is_what_a_step_without_profiling_waits_for() -> None:
    assert [gain_us(halves(), each) for each in ("short", "long")] == [0, 7]  # the last one
    # The CPU is twice as fast: 5 us for each launch, of which longer kernels fall behind
    facts = halves(610, 611, 612)
    assert facts.training.slowdown == pytest.approx(2, rel=0.02)
    assert gain_us(facts, "short") == 0
    # The launches are left, for 5 us each
    assert gain_us(facts, "long") == pytest.approx(50 * (7 - 5), rel=0.1)
    assert gain_us(facts, "long", 1 / 7) == pytest.approx(50 * 1, rel=0.1)


def test_launches_of_a_cuda_graph_are_judged_as_recorded() -> None:
    assert gain_us(halves(610, 611, 612, call="cudaGraphLaunch"), "long") == 7


def test_what_launches_cost_is_what_a_replay_without_them_takes_less() -> None:
    facts = halves(610, 611, 612)
    rows = np.flatnonzero(facts.named("short".__eq__))
    saved_ns = facts.median_per_step(rows, facts.removal_saving_ns(rows))
    assert saved_ns == pytest.approx(50 * 5 * US, rel=0.1)
    every = np.flatnonzero(facts.in_steps(facts.launches.duration_ns > 0))
    saved_ns = facts.median_per_step(every, facts.removal_saving_ns(every))
    assert saved_ns <= facts.training.step_ns


def test_what_an_op_does_by_itself_for_long_is_not_slowed() -> None:
    script = Script()
    for _ in range(5):
        for _ in range(10):
            for _ in range(10):
                script.launch("vectorized_elementwise_kernel", 1 * US)
            script.work("aten::sort", 100 * US, "cpu_op")
        script.end_step()
    # Of 2,000 us a half is that of ops on the CPU, the other half takes a half without a recording
    facts = Facts(trained(script.analysis(), *[1_500 * US] * 3, on_device=True))
    assert facts.training.slowdown == pytest.approx(2, rel=0.02)
