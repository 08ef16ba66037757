"""All idle time is attributed to the line at which the CPU was, and adds up to the breakdown's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from profiler_ext.attribution import attribute
from profiler_ext.kineto.names import clock_mark
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Thread
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import ModuleFrame
from profiler_ext.records.provenance import Gap
from profiler_ext.records.recording import (
    ClockMark,
    Function,
    Position,
    PythonLines,
    Recording,
    Settings,
    thread_positions,
)
from tests.attribution.reading import assert_conserves
from tests.attribution.timeline import MAIN
from tests.handmade import Mark, pieces, trace

OTHER = Thread(100, 101)
STREAMS = (Thread(0, 7), Thread(1, 7))
USER, LIBRARY = "/home/me/train.py", "/lib/site-packages/modelling/gpt.py"
SETTINGS = Settings(user_roots=("/home/me",), library_roots=("/lib/site-packages",))
AHEAD_NS = 5_000
POSITIONS = (
    Position(None, function=0, line=3, code="loss = model(x)"),
    Position(0, module=0),
    Position(1, function=1, line=7, code="return self.up(x)"),
    Position(None, function=0, line=4, code="print(loss.item())"),
    Position(None, function=0, line=0),
)
LOSS, CALL, UP, ITEM, UNKNOWN = range(5)
Moves = Sequence[tuple[int, int]]


def kernel(start_ns: int, duration_ns: int, device: int = 0) -> Mark:
    args = {"device": device, "stream": 7, "correlation": start_ns}
    return Mark("k", "kernel", STREAMS[device], start_ns, duration_ns, args)


def step(number: int, start_ns: int, duration_ns: int, thread: Thread = MAIN) -> Mark:
    return Mark(f"ProfilerStep#{number}", "user_annotation", thread, start_ns, duration_ns, {})


def lines(until_ns: int, **threads: Moves) -> PythonLines:
    """Return the lines of threads; the watch's clock is ahead of the trace's."""
    fields = {"main": MAIN.tid, "other": OTHER.tid}
    return PythonLines(
        functions=(Function(USER, "main"), Function(LIBRARY, "forward")),
        modules=(ModuleFrame("h.0", "Block"),),
        positions=POSITIONS,
        threads=tuple(
            thread_positions(
                int(fields[name]), [at + AHEAD_NS for at, _ in own], [p for _, p in own]
            )
            for name, own in threads.items()
        ),
        clock=(ClockMark(0, AHEAD_NS, AHEAD_NS),),
        end_ns=until_ns + AHEAD_NS,
    )


def analysed(
    marks: Sequence[Mark], python: PythonLines | None, *gaps: GapReason, marked: bool = True
) -> Analysis:
    mark = [Mark(clock_mark(0), "user_annotation", OTHER, 0, 0, {})] if marked else []
    reported = tuple(Gap(reason, "detail") for reason in gaps)
    recording = Recording(trace([*marks, *mark]), settings=SETTINGS, python=python, gaps=reported)
    analysis = attribute(recording)
    assert_conserves(analysis)
    return analysis


def times(analysis: Analysis) -> list[tuple[object, ...]]:
    """Return step, device, line, user's line, module, gap and time, in order of time."""
    sums: dict[tuple[object, ...], int] = {}
    for each in pieces(analysis):
        at = each.place
        key = (each.step, each.device, at.line, at.user_line, at.module, at.gap)
        sums[key] = sums.get(key, 0) + each.duration_ns
    return [(*key, duration_ns) for key, duration_ns in sums.items()]


def test_an_idle_span_is_cut_where_the_thread_of_the_steps_went_on() -> None:
    marks = [
        step(1, 0, 100),
        kernel(30, 10),
        kernel(99, 10),
        Mark("cudaStreamSynchronize", "cuda_runtime", MAIN, 60, 35, {"correlation": 9}),
        Mark("aten::item", "cpu_op", MAIN, 55, 42, {}),
    ]
    moves = [(-5, LOSS), (20, CALL), (22, UP), (50, LOSS), (52, ITEM), (99, -1)]
    analysis = analysed(marks, lines(99, main=moves, other=[(0, ITEM)]))
    assert times(analysis) == [
        (1, 0, 3, 3, None, None, 22),
        (1, 0, 3, 3, "h.0", None, 2),
        (1, 0, 7, 3, "h.0", None, 18),
        (1, 0, 4, 4, None, None, 47),
    ]


def test_a_call_in_which_the_recording_ends_launches_no_more() -> None:
    marks = [
        step(1, 0, 100),
        kernel(10, 30),
        kernel(0, 110, 1),
        Mark("Torch-Compiled Region: 1/0", "cpu_op", MAIN, 20, 79, {}),
    ]
    analysis = analysed(marks, lines(60, main=[(-5, LOSS)]))
    after = [(each.start_ns, each.cause) for each in pieces(analysis) if each.start_ns >= 40]
    assert after == [(40, "launching"), (60, "profiler"), (99, "profiler")]


def test_each_step_and_each_device_has_its_own() -> None:
    marks = [
        step(1, 0, 50),
        step(2, 50, 50),
        kernel(0, 40),
        kernel(60, 35),
        kernel(0, 95, 1),
        kernel(99, 5, 1),
    ]
    analysis = analysed(marks, lines(200, main=[(-5, LOSS), (50, ITEM)]))
    assert times(analysis) == [
        (1, 0, 3, 3, None, None, 10),
        (1, 0, 4, 4, None, None, 10),
        (2, 0, 4, 4, None, None, 9),
        (2, 1, 4, 4, None, None, 4),
    ]


def test_the_thread_of_the_steps_is_that_of_their_events() -> None:
    marks = [step(1, 0, 50, OTHER), Mark("aten::mm", "cpu_op", MAIN, 0, 10, {})]
    python = lines(200, main=[(-5, LOSS)], other=[(-5, ITEM)])
    assert times(analysed(marks, python)) == [(1, 0, 4, 4, None, None, 40)]


def test_without_steps_it_is_the_thread_that_launches_most() -> None:
    marks = [
        Mark("aten::mm", "cpu_op", OTHER, 0, 10, {}),
        Mark("aten::add", "cpu_op", MAIN, 20, 10, {}),
        Mark("aten::mm", "cpu_op", MAIN, 40, 10, {}),
    ]
    python = lines(200, main=[(-5, LOSS)], other=[(-5, ITEM)])
    assert times(analysed(marks, python)) == [(0, 0, 3, 3, None, None, 20)]


def test_before_the_first_line_and_in_unknown_ones_there_is_a_gap() -> None:
    marks = [step(1, 0, 40), kernel(39, 1)]
    analysis = analysed(marks, lines(200, main=[(10, LOSS), (15, -1), (25, UNKNOWN)]))
    assert times(analysis) == [
        (1, 0, None, None, None, "no_line_ran", 20),
        (1, 0, 3, 3, None, None, 5),
        (1, 0, None, None, None, "line_of_hot_code", 14),
    ]


def test_after_too_many_lines_the_gap_says_so() -> None:
    marks = [step(1, 0, 50), kernel(0, 10), kernel(40, 5)]
    analysis = analysed(marks, lines(30, main=[(-5, LOSS)]), GapReason.LINES_FULL)
    assert times(analysis) == [
        (1, 0, 3, 3, None, None, 20),
        (1, 0, None, None, None, "lines_full", 10),
    ]


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ((GapReason.LINES_NEED_PYTHON_312,), "lines_need_python_3_12"),
        ((GapReason.CAPTURE_FAILED, GapReason.LINES_OFF), "lines_off"),
        ((), "lines_not_recorded"),
    ],
)
def test_without_lines_the_reason_is_that_of_the_recording(
    gaps: tuple[GapReason, ...], expected: str
) -> None:
    item = Mark("aten::item", "cpu_op", MAIN, 45, 50, {})
    marks = [step(1, 0, 101), kernel(30, 10), item, kernel(100, 1)]
    assert times(analysed(marks, None, *gaps)) == [(1, 0, None, None, None, expected, 90)]


def test_where_the_clocks_cannot_be_tied_no_line_is_reported() -> None:
    marks = [step(1, 0, 101), kernel(30, 10), kernel(100, 1)]
    analysis = analysed(marks, lines(99, main=[(-5, LOSS)]), marked=False)
    assert times(analysis) == [(1, 0, None, None, None, "lines_failed", 90)]


def test_after_a_wait_the_cause_is_at_the_line_that_waited() -> None:
    marks = [
        step(1, 0, 100),
        *launched(1, 0, 2, 50),
        Mark("cudaStreamSynchronize", "cuda_runtime", MAIN, 10, 42, {}),
        *launched(2, 70, 72, 100),
    ]
    analysis = analysed(marks, lines(200, main=[(-5, ITEM), (60, LOSS)]))
    reported = [
        (p.cause, p.duration_ns, p.place.line, p.cause_place.line) for p in pieces(analysis)
    ]
    assert reported == [
        ("launching", 2, 4, 4),
        ("synchronisation", 2, 4, 4),
        ("after_synchronisation", 8, 4, 4),
        ("after_synchronisation", 10, 3, 4),
        ("after_synchronisation", 2, 3, 4),
    ]


def test_when_the_lines_have_ended_python_is_the_end_of_the_recording() -> None:
    marks = [step(1, 0, 100), *launched(1, 0, 2, 50), kernel(0, 100, 1)]
    analysis = analysed(marks, lines(80, main=[(-5, LOSS)]))
    assert [(p.cause, p.start_ns, p.duration_ns) for p in pieces(analysis)] == [
        ("launching", 0, 2),
        ("end_of_step", 50, 30),
        ("profiler", 80, 20),
    ]


def launched(number: int, start_ns: int, end_ns: int, until_ns: int) -> list[Mark]:
    """Return the call that launches a kernel, which runs from the call's end."""
    ran = {"device": 0, "stream": 7, "correlation": number}
    call = {"correlation": number}
    return [
        Mark("cudaLaunchKernel", "cuda_runtime", MAIN, start_ns, end_ns - start_ns, call),
        Mark("k", "kernel", STREAMS[0], end_ns, until_ns - end_ns, ran),
    ]
