"""A layer stands out that is far from the median of its like, and further than these scatter."""

from __future__ import annotations

import pytest

from profiler_ext.findings.siblings import standing_out


@pytest.mark.parametrize(
    ("times", "beyond", "found"),
    [
        ([100, 100, 100, 151], 0.5, [3]),
        ([100, 100, 100, 150], 0.5, []),
        ([100, 100, 100, 111, 89], 0.1, [3, 4]),
        ([100, 102, 98, 101, 112, 99], 0.1, [4]),
        ([100, 110, 90, 105, 95, 140], 0.1, []),
        ([100, 100, 900], 0.1, []),
        ([0, 0, 0, 0, 5], 0.5, [4]),
        ([], 0.1, []),
    ],
)
def test_what_is_far_from_the_others_by_their_own_measure_stands_out(times, beyond, found):
    assert standing_out(times, beyond) == found
