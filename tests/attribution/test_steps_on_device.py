"""A step lasts from when the device is done with the step before it to when it is done with it."""

from __future__ import annotations

from profiler_ext.attribution import attribute
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Thread
from profiler_ext.records.recording import Recording
from profiler_ext.records.vocabulary import Scope
from tests.attribution.reading import assert_conserves, rows
from tests.handmade import Mark, trace

CPU = Thread(100, 100)
OWN, COPY = 7, 20


def step(number: int, start_ns: int, end_ns: int) -> Mark:
    name = f"ProfilerStep#{number}"
    return Mark(name, "user_annotation", CPU, start_ns, end_ns - start_ns)


def ran(
    called_ns: int | None,
    start_ns: int,
    end_ns: int,
    stream: int = OWN,
    device: int = 0,
    name: str = "k",
    category: str = "kernel",
) -> list[Mark]:
    """Return a kernel and its call; of one that was enqueued before the recording no call."""
    number = 1000 * device + start_ns + stream
    args = {"correlation": number, "device": device, "stream": stream}
    kernel = Mark(name, category, Thread(device, stream), start_ns, end_ns - start_ns, args)
    if called_ns is None:
        return [kernel]
    return [kernel, Mark("cudaLaunchKernel", "cuda_runtime", CPU, called_ns, 1, args)]


def analysed(*marks: Mark) -> Analysis:
    analysis = attribute(Recording(trace(sorted(marks, key=lambda mark: mark.start_ns))))
    assert_conserves(analysis)
    return analysis


def spans(analysis: Analysis) -> list[tuple[int, int, int]]:
    return [(each.number, each.start_ns, each.end_ns) for each in analysis.steps]


def idle(analysis: Analysis) -> list[int]:
    return [line.duration_ns for line in analysis.breakdown if line.scope == Scope.IDLE]


def test_a_cpu_that_runs_ahead_does_not_shorten_the_steps() -> None:
    marks = [step(0, 0, 30), step(1, 30, 60), step(2, 60, 90)]
    kernels = [*ran(10, 11, 111), *ran(40, 111, 211), *ran(70, 211, 311)]
    analysis = analysed(*marks, *kernels)
    assert spans(analysis) == [(0, 0, 111), (1, 111, 211), (2, 211, 311)]
    assert idle(analysis) == [11, 0, 0]


def test_where_the_cpu_is_slower_a_step_lasts_as_long_as_from_mark_to_mark() -> None:
    marks = [step(0, 0, 100), step(1, 100, 200), step(2, 200, 300)]
    analysis = analysed(*marks, *ran(90, 91, 96), *ran(190, 191, 196), *ran(290, 291, 296))
    assert spans(analysis) == [(0, 0, 96), (1, 96, 196), (2, 196, 296)]


def test_earlier_work_that_the_trace_has_the_calls_of_is_of_no_step() -> None:
    analysis = analysed(step(5, 20, 50), *ran(5, 10, 300), *ran(30, 300, 400))
    assert spans(analysis) == [(5, 300, 400)]
    assert rows(analysis, "step") == [(None,), (5,)]


def test_earlier_work_whose_calls_came_before_the_trace_is_of_no_step() -> None:
    backlog = [mark for at in range(10, 310, 100) for mark in ran(None, at, at + 100)]
    steps = [step(0, 0, 30), step(1, 30, 60)]
    analysis = analysed(*steps, *backlog, *ran(8, 310, 410), *ran(40, 410, 510))
    assert spans(analysis) == [(0, 310, 410), (1, 410, 510)]
    assert rows(analysis, "step") == [(None,)] * 3 + [(0,), (1,)]


def test_a_launch_without_a_call_is_of_the_step_that_enqueued_what_follows_it() -> None:
    steps = [step(0, 0, 30), step(1, 30, 60)]
    analysis = analysed(*steps, *ran(8, 9, 110), *ran(None, 110, 120), *ran(40, 120, 200))
    assert rows(analysis, "step") == [(0,), (1,), (1,)]


def test_a_launch_without_a_call_that_nothing_waited_behind_was_enqueued_as_it_ran() -> None:
    steps = [step(0, 0, 30), step(1, 30, 60)]
    analysis = analysed(*steps, *ran(None, 5, 10), *ran(12, 13, 20), *ran(40, 41, 45))
    assert rows(analysis, "step") == [(0,), (0,), (1,)]


def test_what_goes_on_next_to_the_next_step_does_not_hold_it_up() -> None:
    steps = [step(0, 0, 30), step(1, 30, 60), step(2, 60, 90)]
    own = [*ran(10, 11, 100), *ran(40, 100, 200), *ran(70, 200, 300)]
    analysis = analysed(*steps, *own, *ran(12, 13, 280, COPY, category="gpu_memcpy"))
    assert spans(analysis) == [(0, 0, 100), (1, 100, 200), (2, 200, 300)]
    assert rows(analysis, "step") == [(0,), (0,), (1,), (2,)]


def test_a_collective_is_waited_for() -> None:
    steps = [step(0, 0, 30), step(1, 30, 60)]
    reduced = ran(12, 13, 120, COPY, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    analysis = analysed(*steps, *ran(10, 11, 100), *reduced, *ran(40, 120, 200))
    assert spans(analysis) == [(0, 0, 120), (1, 120, 200)]


def test_of_several_devices_the_last_to_be_done_ends_a_step() -> None:
    steps = [step(0, 0, 30), step(1, 30, 60)]
    other = [*ran(14, 15, 180, device=1), *ran(46, 180, 190, device=1)]
    analysis = analysed(*steps, *ran(10, 11, 100), *ran(40, 100, 200), *other)
    assert spans(analysis) == [(0, 0, 180), (1, 180, 200)]
    assert idle(analysis) == [11, 15, 0, 10]


def test_a_step_with_nothing_but_copies_ends_with_them() -> None:
    steps = [step(0, 0, 30), step(1, 30, 60)]
    analysis = analysed(*steps, *ran(10, 11, 100), *ran(40, 41, 150, COPY, category="gpu_memcpy"))
    assert spans(analysis) == [(0, 0, 100), (1, 100, 150)]


def test_a_step_that_enqueued_nothing_ends_at_its_mark_or_with_the_step_before_it() -> None:
    marks = [step(0, 0, 30), step(1, 30, 60), step(2, 60, 90)]
    behind = analysed(*marks, *ran(10, 11, 111), *ran(70, 111, 211))
    assert spans(behind) == [(0, 0, 111), (1, 111, 111), (2, 111, 211)]
    ahead = analysed(*marks, *ran(10, 11, 21), *ran(70, 71, 81))
    assert spans(ahead) == [(0, 0, 21), (1, 21, 60), (2, 60, 81)]


def test_a_step_that_does_not_follow_the_last_one_begins_by_itself() -> None:
    kernels = [*ran(10, 11, 21), *ran(70, 71, 81)]
    left_out = analysed(step(0, 0, 30), step(4, 60, 90), *kernels)
    assert spans(left_out) == [(0, 0, 21), (4, 60, 81)]
    between = analysed(step(0, 0, 30), step(1, 60, 90), *kernels, *ran(40, 41, 61))
    assert spans(between) == [(0, 0, 21), (1, 21, 81)]
    assert rows(between, "step") == [(0,), (None,), (1,)]
