"""What ran on a stream in an order that its calls cannot have made is told, in any thread."""

from __future__ import annotations

import pytest

from profiler_ext.attribution.trace.launches import in_every_longest_order


@pytest.mark.parametrize(
    ("values", "sure"),
    [
        ([1, 2, 3], [True, True, True]),
        ([1, 3, 2, 4], [True, False, False, True]),
        ([1, 9, 2, 3, 4], [True, False, True, True, True]),
        ([], []),
    ],
)
def test_what_stands_in_its_place_whichever_is_taken_out_is_sure(
    values: list[int], sure: list[bool]
) -> None:
    assert in_every_longest_order(values) == sure
