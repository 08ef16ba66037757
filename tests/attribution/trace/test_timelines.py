import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_ext.attribution.trace.intervals import timeline
from profiler_ext.attribution.trace.lookups import NO_ROW


def opened(spans: list[tuple[int, int]], times: range) -> list[int]:
    starts, ends = (np.array([span[at] for span in spans], dtype=np.int64) for at in (0, 1))
    return timeline(starts, ends).at(np.array(times)).tolist()


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], [NO_ROW] * 6),
        ([(1, 3), (3, 5)], [NO_ROW, 0, 0, 1, 1, NO_ROW]),
        ([(0, 5), (1, 3)], [0, 1, 1, 0, 0, NO_ROW]),
        ([(0, 3), (1, 5)], [0, 1, 1, 1, 1, NO_ROW]),
        ([(0, 5), (0, 5), (0, 2)], [2, 2, 1, 1, 1, NO_ROW]),
        ([(2, 2)], [NO_ROW] * 6),
    ],
)
def test_of_the_spans_that_are_open_the_last_to_open_counts(spans, expected):
    assert opened(spans, range(6)) == expected


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=9))
def test_what_is_open_is_what_the_definition_says(drawn):
    spans = sorted((start, start + length) for start, length in drawn)
    times = range(20)
    last = [max([NO_ROW, *(at for at, s in enumerate(spans) if s[0] <= t < s[1])]) for t in times]
    assert opened(spans, times) == last


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=9))
def test_times_of_changes_are_in_order(drawn):
    spans = np.array(sorted((start, start + length) for start, length in drawn), np.int64)
    starts, ends = spans.reshape(-1, 2).T
    assert (np.diff(timeline(starts, ends).times_ns) >= 0).all()
