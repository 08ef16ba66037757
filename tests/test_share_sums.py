"""Facts about the sums of shares by key: whatever the key, nothing is lost and nothing is twice."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler_ext.records.share_sums import (
    KeyedShares,
    codes_of,
    count_distinct,
    distinct_pairs,
    kernel_names,
    largest_places,
    profiled_shares,
    share_offsets,
    sum_by,
    sum_by_name,
)
from profiler_ext.records.vocabulary import Phase
from tests.analyses import cpu_step, gpu_step

KEYS = 4
_ROWS = st.lists(st.tuples(st.integers(0, KEYS - 1), st.integers(0, 9)), max_size=12)


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.array(rows, np.int64).reshape(-1, 2).T
    return first, second


def keyed(keys: list[int]) -> KeyedShares:
    analysis = gpu_step()
    rows = profiled_shares(analysis)
    return KeyedShares(analysis, rows, np.array(keys, np.int64)[rows], KEYS)


_KEYS = st.lists(
    st.integers(0, KEYS - 1), min_size=len(gpu_step().shares), max_size=len(gpu_step().shares)
)


@given(_ROWS)
def test_each_value_counts_for_its_key_alone(rows: list[tuple[int, int]]) -> None:
    key, values = columns(rows)
    sums = sum_by(key, values, KEYS)
    assert sums.sum() == values.sum()
    assert sums.tolist() == [sum(value for own, value in rows if own == at) for at in range(KEYS)]


@given(_ROWS)
def test_sums_by_two_keys_add_up_to_those_by_each(rows: list[tuple[int, int]]) -> None:
    key, other = columns(rows)
    sums = sum_by((key, other), other, KEYS, 10)
    assert sums.sum(axis=1).tolist() == sum_by(key, other, KEYS).tolist()
    assert sums.sum(axis=0).tolist() == sum_by(other, other, 10).tolist()


def test_rows_of_several_columns_are_summed_column_by_column() -> None:
    values = np.array([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]])
    assert sum_by(np.array([1, 0, 1]), values, 2).tolist() == [[10.0, 20.0], [101.0, 202.0]]


@given(_ROWS)
def test_distinct_pairs_are_a_sorted_set(rows: list[tuple[int, int]]) -> None:
    first, second = distinct_pairs(*columns(rows))
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == sorted(set(rows))


def test_distinct_pairs_of_keys_beyond_16_bits_are_in_order_too() -> None:
    first, second = distinct_pairs(np.array([70_000, 3, 70_000]), np.array([5, 1, 5]))
    assert (first.tolist(), second.tolist()) == ([3, 70_000], [1, 5])


@given(_ROWS)
def test_an_item_counts_once_for_each_key_that_has_it(rows: list[tuple[int, int]]) -> None:
    counts = Counter(key for key, _ in set(rows))
    assert count_distinct(*columns(rows), KEYS).tolist() == [counts[at] for at in range(KEYS)]


@given(st.lists(st.one_of(st.none(), st.text(max_size=1)), max_size=8))
def test_codes_lead_from_each_value_to_itself(values: list[str | None]) -> None:
    codes, known = codes_of(values)
    assert known == list(dict.fromkeys(value for value in values if value is not None))
    assert [None if code < 0 else known[code] for code in codes.tolist()] == values


@given(_ROWS)
def test_sums_by_name_are_those_of_a_counter(rows: list[tuple[int, int]]) -> None:
    sums = sum_by_name(rows)
    assert list(sums) == list(dict.fromkeys(name for name, _ in rows))
    assert sum(sums.values()) == sum(amount for _, amount in rows)


@given(_KEYS)
def test_by_any_key_the_sums_are_the_time_of_the_profiled_launches(keys: list[int]) -> None:
    shares = keyed(keys)
    launches = shares.analysis.launches
    total = int(launches.duration_ns[launches.in_steps].sum())
    assert shares.phases_ns().sum() == total
    assert sum(time for *_, time in shares.pairs_ns(np.zeros(len(shares.rows), np.int64))) == total


@given(_KEYS)
def test_pairs_with_the_place_add_up_to_the_phases(keys: list[int]) -> None:
    shares = keyed(keys)
    places = shares.analysis.places
    sums = np.zeros((KEYS, len(Phase)), np.int64)
    for key, place, time in shares.pairs_ns(shares.analysis.shares.place[shares.rows]):
        sums[key, list(Phase).index(places[place].phase)] += time
    assert sums.tolist() == shares.phases_ns().tolist()


@given(_KEYS)
def test_a_whole_launch_counts_once_for_each_key_that_has_a_share_of_it(keys: list[int]) -> None:
    shares = keyed(keys)
    duration_ns = shares.analysis.launches.duration_ns
    pairs = set(zip(shares.key.tolist(), shares.launches.tolist(), strict=True))
    counts, whole_ns = shares.whole_launches()
    for at in range(KEYS):
        own = [launch for key, launch in pairs if key == at]
        assert counts[at] == len(own)
        assert whole_ns[at] == duration_ns[own].sum() >= shares.phases_ns()[at].sum()


def test_every_share_of_a_profiled_launch_is_chosen_and_no_other() -> None:
    for analysis in (gpu_step(), cpu_step()):
        chosen = profiled_shares(analysis)
        in_steps = analysis.launches.in_steps[analysis.shares.launch]
        assert in_steps[chosen].all() and in_steps.sum() == len(chosen)


def test_the_largest_place_of_a_launch_is_that_of_its_largest_share() -> None:
    for analysis in (gpu_step(), cpu_step()):
        offsets, shares = share_offsets(analysis), analysis.shares
        assert offsets[-1] == len(shares)
        for launch, place in enumerate(largest_places(analysis).tolist()):
            own = slice(offsets[launch], offsets[launch + 1])
            assert set(shares.launch[own].tolist()) == {launch}
            assert place == shares.place[own][int(shares.duration_ns[own].argmax())]


def test_a_kernel_of_no_name_has_that_of_its_event() -> None:
    launches = gpu_step().launches
    codes, names = kernel_names(gpu_step())
    for launch, code in enumerate(codes.tolist()):
        kernel = launches.kernel[launch] or launches.name[launch]
        assert names[code] == (kernel, launches.name[launch], launches.kind[launch])
