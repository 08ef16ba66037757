"""A layer stands out that is far from the median of its like, and further than these scatter."""

from __future__ import annotations

import pytest

from profiler_ext.findings.outliers import outlier_indices, outlier_indices_of_equal_sizes


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
    assert outlier_indices(times, beyond) == found


@pytest.mark.parametrize(
    ("times", "ends", "found"),
    [
        ([100, 101, 240, 99, 100], [], [2]),
        ([180, 101, 240, 99, 100, 145], [0, 5], [2]),
        ([240, 100, 101, 99, 100], [0], []),
        ([300, 100, 101, 240, 99], [0, 4], []),
        ([400, 200, 200, 100, 100, 100, 100], [], []),
        ([100, 101, 240, 99, 100], [1, 3], []),
        ([800, 800, 400, 100, 100, 100, 100, 100, 100], [0], []),
        ([100, 115, 240, 99, 100], [], []),
        ([100] * 11 + [300, 300], [0], [11, 12]),
        ([100] * 9 + [300, 300], [0], []),
        ([], [], []),
    ],
)
def test_where_sizes_change_one_stands_out_only_of_equals_and_not_at_an_end(times, ends, found):
    assert outlier_indices_of_equal_sizes(times, 0.5, ends) == found
