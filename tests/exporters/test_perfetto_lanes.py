from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from profiler_ext.exporters.perfetto.label_spans import split_overlapping
from profiler_ext.exporters.perfetto.tracks import assign_lanes
from profiler_ext.records.analysis import Launches
from profiler_ext.records.events import Thread
from tests.handmade import Mark, Row, launches


def _split(spans: Sequence[tuple[int, int]], nesting: bool = True) -> list[list[int]]:
    starts, ends = np.array(spans, np.int64).T
    return [lane.tolist() for lane in assign_lanes(starts, ends, nesting)]


def test_crossing_slices_go_to_different_lanes() -> None:
    assert _split([(0, 10), (5, 15), (10, 12)]) == [[0, 2], [1]]


def test_inner_slices_share_the_lane_only_where_nesting_is_allowed() -> None:
    assert _split([(2, 4), (0, 10)]) == [[1, 0]]
    assert _split([(2, 4), (0, 10)], nesting=False) == [[1], [0]]


def test_of_two_slices_with_one_start_the_longer_is_the_outer_one() -> None:
    assert _split([(0, 4), (0, 10)]) == [[1, 0]]


def _taken(spans: Sequence[tuple[int, int]]) -> list[tuple[int, bool]]:
    """The begins and ends, each behind its begin in the file, in the order of Perfetto."""
    starts, ends = np.array(spans, np.int64).T
    (lane,) = assign_lanes(starts, ends, nesting=True)
    written = [(spans[row][at], at == 0) for row in lane.tolist() for at in (0, 1)]
    return sorted(written, key=lambda each: each[0])


def test_an_end_is_taken_before_the_begin_at_the_same_time() -> None:
    assert _taken([(0, 10), (10, 20)]) == [(0, True), (10, False), (10, True), (20, False)]


def test_a_slice_without_length_ends_before_the_next_begins() -> None:
    at_five = [(5, True), (5, False)]
    assert _taken([(5, 5), (5, 5)]) == at_five * 2
    assert _taken([(0, 9), (5, 5), (5, 5)]) == [(0, True), *at_five * 2, (9, False)]
    assert _taken([(0, 5), (5, 5), (5, 7)]) == [
        *[(0, True), (5, False), (5, True)],
        *[(5, True), (5, False), (7, False)],
    ]


def _stacked(spans: Sequence[tuple[int, int]]) -> list[tuple[int, bool]]:
    found: list[tuple[int, bool]] = []
    ends: list[int] = []
    for start, end in spans:
        while ends and ends[-1] <= start:
            found.append((ends.pop(), False))
        found.append((start, True))
        ends.append(end)
    return found + [(end, False) for end in reversed(ends)]


def _naive(spans: Sequence[tuple[int, int]], nesting: bool) -> list[list[int]]:
    lanes: list[list[int]] = []
    for row in sorted(range(len(spans)), key=lambda row: (spans[row][0], -spans[row][1])):
        free = (
            lane
            for lane in lanes
            if all(_are_apart(spans[each], spans[row], nesting) for each in lane)
        )
        lane = next(free, None)
        if lane is None:
            lanes.append(lane := [])
        lane.append(row)
    return lanes


def _are_apart(before: tuple[int, int], after: tuple[int, int], nesting: bool) -> bool:
    return before[1] <= after[0] or (nesting and after[1] <= before[1])


@pytest.mark.parametrize("nesting", [True, False])
@pytest.mark.parametrize(("latest", "longest"), [(300, 40), (3_000, 20), (20, 4), (9, 2)])
def test_each_slice_has_the_first_lane_in_which_it_crosses_no_other(
    latest: int, longest: int, nesting: bool
) -> None:
    for seed in range(20):
        numbers = np.random.default_rng(seed).integers(0, [[latest, longest]], size=(120, 2))
        spans = [(start, start + length) for start, length in numbers.tolist()]
        lanes = _naive(spans, nesting)
        assert _split(spans, nesting) == lanes
        for lane in lanes:
            kept = [spans[row] for row in lane]
            assert _taken(kept) == _stacked(kept)


def test_launches_that_overlap_stand_in_lists_of_their_own() -> None:
    marks = [Mark("k", "kernel", Thread(0, 7), 10 * n, 25, {"stream": 7}) for n in range(5)]
    table = launches(marks, [Row(n, (), "eager", "other", "op") for n in range(5)])
    assert _apart(table, [0, 1, 2, 3, 4], most=64) == [[0, 3], [1, 4], [2]]
    assert _apart(table, [0, 1, 2, 3, 4], most=2) == [[0, 3], [1, 4]]
    assert _apart(table, [0, 3], most=2) == [[0, 3]]


def _apart(table: Launches, rows: list[int], most: int) -> list[list[int]]:
    return [each.tolist() for each in split_overlapping(table, np.array(rows), most)]
