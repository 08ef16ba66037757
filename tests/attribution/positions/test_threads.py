"""The position during an event: the only one that leaves room for all of it."""

from __future__ import annotations

import pytest

from profiler_ext.attribution.positions import (
    NO_POSITION,
    AmbiguousPositionError,
    PositionsOfThreads,
    WatchClock,
    next_outside,
)
from profiler_ext.records.recording import (
    Function,
    Position,
    PythonLines,
    ThreadPositions,
    thread_positions,
)
from tests.handmade import ints

FIRST, SECOND, WITHIN = 0, 1, 2
"""Two lines of a frame, and a line of a frame that the first calls."""
POSITIONS = (Position(None, 0, 1), Position(None, 0, 2), Position(FIRST, 1, 9))


def positions(
    *threads: ThreadPositions, error_ns: int = 0, end_ns: int = 1000
) -> PositionsOfThreads:
    lines = PythonLines(
        functions=(Function("/m.py", "step"), Function("/m.py", "inner")),
        modules=(),
        positions=POSITIONS,
        threads=threads,
        clock=(),
        end_ns=end_ns,
    )
    return PositionsOfThreads(lines, WatchClock(ints([0]), ints([0]), error_ns))


ONE = thread_positions(7, [100, 200, 300], [FIRST, SECOND, NO_POSITION])


def test_an_event_has_the_position_that_holds_from_before_it_until_after_it() -> None:
    threads = positions(ONE)
    assert [threads.during(7, *span) for span in ((100, 200), (120, 130), (200, 300))] == [
        FIRST,
        FIRST,
        SECOND,
    ]
    assert [threads.during(7, *span) for span in ((50, 60), (300, 310), (150, 250))] == [
        NO_POSITION
    ] * 3


def test_an_event_at_a_border_has_the_only_position_that_leaves_room_within_the_error() -> None:
    threads = positions(ONE, error_ns=5)
    assert threads.during(7, 98, 150) == FIRST  # begins within the error before it
    assert threads.during(7, 198, 290) == SECOND  # much of it is in the second
    assert threads.during(7, 110, 204) == FIRST


def test_an_event_shorter_than_the_error_at_a_border_is_open() -> None:
    threads = positions(ONE, error_ns=5)
    with pytest.raises(AmbiguousPositionError):
        threads.during(7, 199, 201)
    with pytest.raises(AmbiguousPositionError):
        threads.during(7, 190, 192, overhang_ns=10)
    assert threads.during(7, 190, 192) == FIRST


def test_an_event_that_holds_frames_is_of_the_line_that_called_them() -> None:
    calls = thread_positions(
        7, [100, 120, 140, 160, 180, 200], [FIRST, WITHIN, FIRST, WITHIN, FIRST, NO_POSITION]
    )
    threads = positions(calls)
    assert threads.during(7, 110, 190) == FIRST  # over both calls: the line goes on between them
    assert threads.during(7, 125, 135) == WITHIN
    assert threads.during(7, 145, 155) == FIRST
    assert threads.is_still(7, 125, 135)
    assert not threads.is_still(7, 125, 145)
    assert threads.stays(7, 110, 190)
    assert [threads.stays(7, *span) for span in ((110, 201), (130, 145), (50, 110))] == [False] * 3
    assert threads.stays(7, 50, 90)
    assert threads.stays(8, 50, 200)


def test_a_thread_s_id_that_is_given_again_has_the_positions_of_both() -> None:
    later = thread_positions(7, [500, 600], [SECOND, NO_POSITION])
    threads = positions(ONE, later)
    assert [threads.during(7, *span) for span in ((120, 130), (400, 410), (520, 530))] == [
        FIRST,
        NO_POSITION,
        SECOND,
    ]


def test_after_the_watch_ended_and_in_unknown_threads_nobody_stands_anywhere() -> None:
    open_end = thread_positions(7, [100], [FIRST])
    threads = positions(open_end, end_ns=400)
    assert [threads.during(7, *span) for span in ((150, 160), (390, 410), (450, 460))] == [
        FIRST,
        NO_POSITION,
        NO_POSITION,
    ]
    assert threads.during(8, 150, 160) == NO_POSITION


def test_a_position_that_comes_again_after_others_of_its_depth_is_another_time() -> None:
    depths, entries = (
        ints([1, 2, 1, 1, 1, 0]),
        ints([FIRST, WITHIN, FIRST, SECOND, FIRST, NO_POSITION]),
    )
    assert next_outside(depths, entries).tolist() == [3, 2, 3, 4, 5, 5]
