"""The last place before each whose value reaches a limit, as a walk backwards finds it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from profiler_ext.attribution.trace.intervals import last_reaching


def walked(values: list[int], limits: list[int]) -> list[int]:
    """Return the same by looking at each place before each."""
    before = [range(at - 1, -1, -1) for at in range(len(values))]
    return [next((j for j in b if values[j] >= limits[at]), -1) for at, b in enumerate(before)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 100])
@pytest.mark.parametrize("most", [1, 3, 12, 1000])
def test_it_is_what_a_walk_backwards_finds(count, most):
    chance = random.Random(count * 1000 + most)
    for _ in range(10):
        values, limits = ([chance.randint(-1, most) for _ in range(count)] for _ in range(2))
        found = last_reaching(np.array(values, np.int64), np.array(limits, np.int64))
        assert found.tolist() == walked(values, limits)


def test_a_value_that_is_never_open_reaches_nothing():
    least = np.iinfo(np.int64).min
    values, limits = np.array([5, least, least, 5]), np.array([1, 1, 5, 6])
    assert last_reaching(values, limits).tolist() == [-1, 0, 0, -1]
