from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from profiler_ext.exporters.perfetto.label_spans import apart
from profiler_ext.exporters.perfetto.lanes import SliceContent, Span, in_file_order, split
from profiler_ext.records import Thread
from tests.handmade import Mark, Row, launches


def _say(row: int) -> SliceContent:
    return SliceContent(b"", {"row": row})


def _span(start: int, end: int) -> Span:
    return Span(start, end, 0, _say)


def test_crossing_spans_go_to_different_lanes() -> None:
    spans = [_span(0, 10), _span(5, 15), _span(10, 12)]
    assert split(spans, nesting=True) == [[spans[0], spans[2]], [spans[1]]]


def test_inner_spans_share_the_lane_only_where_nesting_is_allowed() -> None:
    spans = [_span(2, 4), _span(0, 10)]
    assert split(spans, nesting=True) == [[spans[1], spans[0]]]
    assert split(spans, nesting=False) == [[spans[1]], [spans[0]]]


def test_of_two_spans_with_one_start_the_longer_is_the_outer_one() -> None:
    inner, outer = _span(0, 4), _span(0, 10)
    assert split([inner, outer], nesting=True) == [[outer, inner]]


def test_an_end_is_written_before_the_begin_at_the_same_time() -> None:
    first, second = _span(0, 10), _span(10, 20)
    order = list(in_file_order([first, second]))
    assert order == [(0, first), (10, None), (10, second), (20, None)]


def test_random_spans_never_cross_within_a_lane() -> None:
    numbers = np.random.default_rng(0).integers(0, 1_000, size=(400, 2))
    spans = [_span(int(min(pair)), int(max(pair))) for pair in numbers]
    lanes = split(spans, nesting=True)
    assert sorted(span for lane in lanes for span in lane) == sorted(spans)
    for lane in lanes:
        for a, b in combinations(lane, 2):
            assert b.start_ns >= a.end_ns or b.end_ns <= a.end_ns


@pytest.mark.parametrize("nesting", [True, False])
def test_each_span_has_the_first_lane_in_which_it_crosses_no_other(nesting: bool) -> None:
    numbers = np.random.default_rng(1).integers(0, [[300, 40]], size=(500, 2)).tolist()
    spans = [_span(start, start + length) for start, length in numbers]
    naive: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)):
        free = (lane for lane in naive if all(_are_apart(each, span, nesting) for each in lane))
        lane = next(free, None)
        if lane is None:
            naive.append(lane := [])
        lane.append(span)
    assert split(spans, nesting) == naive


def _are_apart(before: Span, after: Span, nesting: bool) -> bool:
    return before.end_ns <= after.start_ns or (nesting and after.end_ns <= before.end_ns)


def test_launches_that_overlap_stand_in_lists_of_their_own() -> None:
    marks = [Mark("k", "kernel", Thread(0, 7), 10 * n, 25, {"stream": 7}) for n in range(5)]
    table = launches(marks, [Row(n, (), "eager", "other", "op") for n in range(5)])
    assert apart(table, [0, 1, 2, 3, 4], most=64) == [[0, 3], [1, 4], [2]]
    assert apart(table, [0, 1, 2, 3, 4], most=2) == [[0, 3], [1, 4]]
    assert apart(table, [0, 3], most=2) == [[0, 3]]
