from __future__ import annotations

import numpy as np
import pytest

from profiler_ext.attribution.launches.launch_table import (
    LaunchAttribution,
    main_phases,
    main_places,
    split,
)
from profiler_ext.records.analysis import Place
from profiler_ext.records.vocabulary import LaunchKind, Phase


def _split(durations, weights):
    return split(np.array(durations, dtype=np.int64), weights).tolist()


def test_parts_follow_the_weights_and_the_largest_remainder_gets_the_odd_nanosecond():
    assert _split([10, 7, 0], [1, 2]) == [[3, 7], [2, 5], [0, 0]]
    assert _split([10], [1, 1, 1]) == [[4, 3, 3]]
    assert _split([100], [5, 0]) == [[100, 0]]


def test_without_weights_the_parts_are_equal():
    assert _split([5], [0, 0]) == [[3, 2]]


def test_huge_weights_are_exact():
    assert _split([10**12], [10**30, 3 * 10**30]) == [[250_000_000_000, 750_000_000_000]]


def test_what_a_float_cannot_tell_apart_is_exact():
    assert _split([2**53 + 1], [3, 5]) == [[3 * 2**50, 5 * 2**50 + 1]]


def test_no_launch_has_no_parts():
    assert _split([], [1, 2]) == []


@pytest.mark.parametrize("seed", range(20))
def test_parts_add_up_and_are_within_one_nanosecond_of_exact(seed):
    random = np.random.default_rng(seed)
    durations = random.integers(0, 10**9, 50)
    weights = random.integers(0, 10**6, random.integers(1, 30)).tolist()
    parts = split(durations, weights)
    assert parts.sum(axis=1).tolist() == durations.tolist()
    total = sum(weights) or len(weights)
    exact = np.outer(durations, weights if sum(weights) else [1] * len(weights)) / total
    assert (abs(parts - exact) <= 1).all()
    assert (parts >= 0).all()


def test_the_phase_of_a_launch_has_most_of_its_time_all_its_places_taken_together():
    places = tuple(Place(phase=phase) for phase in (Phase.BACKWARD, Phase.GRADIENT_ACCUMULATION))
    several = LaunchAttribution(LaunchKind.TRITON, (0, 1, 0), (3, 4, 2))
    even = LaunchAttribution(LaunchKind.TRITON, (1, 0), (5, 5))
    without = LaunchAttribution(LaunchKind.TRITON, (1, 0, 0), (0, 0, 0))
    assert main_places([several], places) == (places[1],)
    assert main_phases([several, even, without], places) == (
        Phase.BACKWARD,
        Phase.GRADIENT_ACCUMULATION,
        Phase.BACKWARD,
    )
