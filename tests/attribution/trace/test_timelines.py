import numpy as np
import pytest

from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.attribution.trace.timelines import timeline


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
