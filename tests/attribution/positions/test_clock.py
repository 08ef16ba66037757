"""The watch's clock over the trace's: bounds, their middle, and clocks that were set."""

from __future__ import annotations

from profiler_ext.attribution.positions import watch_clock
from profiler_ext.kineto.names import clock_mark
from profiler_ext.records.events import Events, Thread
from profiler_ext.records.recording import ClockMark
from tests.handmade import Mark, ints, trace

MAIN = Thread(1, 1)


def events(*spans: tuple[int, int, int]) -> Events:
    """The events of marks: number, start and end."""
    marks = [
        Mark(clock_mark(number), "user_annotation", MAIN, start, end - start)
        for number, start, end in spans
    ]
    return trace([*marks, Mark("aten::mm", "cpu_op", MAIN, 5, 10)]).events


def test_all_marks_together_leave_the_room_that_the_closest_of_them_leave() -> None:
    marks = [ClockMark(0, 100, 150), ClockMark(1, 200, 220)]
    clock = watch_clock(events((0, 1110, 1140), (1, 1205, 1215)), marks)
    assert clock is not None
    # The first allows 990 to 1010, the second 995 to 1005.
    assert (clock.offsets_ns.tolist(), clock.error_ns) == ([1000], 5)
    assert clock.on_trace(ints([0, 100, 500])).tolist() == [1000, 1100, 1500]


def test_a_clock_that_was_set_between_two_marks_is_laid_between_their_bounds() -> None:
    marks = [ClockMark(0, 100, 110), ClockMark(1, 300, 310)]
    clock = watch_clock(events((0, 1101, 1109), (1, 1401, 1409)), marks)
    assert clock is not None
    assert clock.moments_ns.tolist() == [100, 300]
    assert clock.offsets_ns.tolist() == [1000, 1100]
    assert clock.error_ns == 2 + 100
    assert clock.on_trace(ints([100, 200, 300])).tolist() == [1100, 1250, 1400]


def test_a_mark_that_the_trace_has_not_and_one_that_cannot_be_are_left_out() -> None:
    marks = [ClockMark(0, 100, 110), ClockMark(1, 200, 205), ClockMark(2, 300, 310)]
    clock = watch_clock(events((0, 1102, 1108), (1, 1190, 1230)), marks)
    assert clock is not None
    # The event of the second mark lasts longer than the watch took for it.
    assert (clock.moments_ns.tolist(), clock.offsets_ns.tolist()) == ([100], [1000])
    assert clock.error_ns == 2


def test_without_any_mark_there_is_no_clock() -> None:
    assert watch_clock(events(), [ClockMark(0, 100, 110)]) is None
    assert watch_clock(events((3, 0, 5)), []) is None
