"""Intervals and tests: known values, alarms at the stated rate, honest limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from profiler_ext.comparison import significance
from profiler_ext.comparison.records import Account, Interval
from profiler_ext.comparison.significance import (
    CPU_BETWEEN_RUNS,
    DEVICE_BETWEEN_RUNS,
    MIN_STEPS,
    Sample,
    benjamini_hochberg,
    between_runs_std_ns,
    has_enough_samples,
    quantile,
    two_sided_p_value,
)

MS = 1_000_000


def sample(values: object, runs: int = 1) -> Sample:
    """Return the times of rows in steps; runs have equally many."""
    sums = np.asarray(values, np.int64)
    each = np.arange(len(sums)) * runs // len(sums)
    return Sample(sums, np.ones(len(sums), np.int64), each)


def intervals(base: Sample, head: Sample, usual: float = 1.0) -> list[Interval] | None:
    """Return the intervals of rows of device time; ``usual`` scales what runs differ by."""
    accounts = [Account.DEVICE] * base.sums.shape[1]
    old, new = (
        usual * between_runs_std_ns(each.means, accounts, on_cpu=False) for each in (base, head)
    )
    return significance.intervals(base, head, (old, new))


@pytest.mark.parametrize(
    ("t", "freedom", "part"),
    [  # from the tables of Abramowitz and Stegun, 26.10
        (12.706, 1, 0.05),
        (4.303, 2, 0.05),
        (2.776, 4, 0.05),
        (4.604, 4, 0.01),
        (2.228, 10, 0.05),
        (2.042, 30, 0.05),
        (1.980, 120, 0.05),
        (3.373, 120, 0.001),
    ],
)
def test_the_distribution_is_that_of_the_tables(t: float, freedom: float, part: float) -> None:
    assert two_sided_p_value(t, freedom) == pytest.approx(part, rel=2e-3)
    assert quantile(part, freedom) == pytest.approx(t, rel=2e-3)


def test_the_distribution_has_its_ends() -> None:
    assert two_sided_p_value(0.0, 3) == 1.0
    assert two_sided_p_value(math.inf, 3) == 0.0
    # With one degree it is Cauchy's, with two it has a closed form too.
    assert two_sided_p_value(1.0, 1) == pytest.approx(0.5)
    assert two_sided_p_value(2.0, 2) == pytest.approx(1 - 2 / math.sqrt(6))


def test_q_values_are_those_of_benjamini_and_hochberg() -> None:
    # The p-values of their example (1995, section 3.2), of which four are rejected at 0.05.
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    p += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    q = benjamini_hochberg(np.array(p))
    assert q[:5] == pytest.approx([0.0015, 0.003, 0.0095, 0.035625, 0.0603], rel=1e-3)
    assert (q <= 0.05).sum() == 4
    shuffled = np.array(p)[::-1]
    assert benjamini_hochberg(shuffled)[::-1] == pytest.approx(q)
    assert len(benjamini_hochberg(np.empty(0))) == 0


def test_the_interval_of_steps_is_welchs() -> None:
    base = np.array([[100], [96], [104], [98], [102], [100]]) * MS
    head = np.array([[120], [118], [122], [119], [121], [120]]) * MS
    found = intervals(sample(base), sample(head), 0)
    assert found is not None
    # s1^2 = 8, s2^2 = 2; se^2 = 10/6; freedom = (10/6)^2 / ((8/6)^2/5 + (2/6)^2/5) = 7.35
    reach = quantile(0.05, 7.3) * math.sqrt(10 / 6) * MS
    assert found[0].low_ns == pytest.approx(20 * MS - reach, rel=1e-6)
    assert found[0].high_ns == pytest.approx(20 * MS + reach, rel=1e-6)
    assert found[0].p_value == pytest.approx(
        two_sided_p_value(20 / math.sqrt(10 / 6), 7.3), rel=1e-3
    )


def test_the_interval_of_runs_is_by_the_part_that_all_of_them_differ_by() -> None:
    base, head = np.array([[90], [110]]) * MS, np.array([[190], [200], [210]]) * MS
    found = intervals(sample(base, runs=2), sample(head, runs=3))
    assert found is not None
    # squares of parts: 2 * 0.1^2 and 2 * 0.05^2, of three degrees of freedom
    part = (2 * 0.1**2 + 2 * 0.05**2) / 3
    deviation = math.sqrt(part * (100**2 / 2 + 200**2 / 3)) * MS
    reach = quantile(0.05, 3.0) * deviation
    assert found[0].low_ns == pytest.approx(100 * MS - reach, rel=1e-6)
    assert found[0].p_value == pytest.approx(two_sided_p_value(100 * MS / deviation, 3.0), rel=1e-6)


def test_few_steps_are_too_few_and_few_runs_too() -> None:
    few, enough = sample([[1]] * (MIN_STEPS - 1)), sample([[1]] * MIN_STEPS)
    assert not has_enough_samples(few, enough) and not has_enough_samples(enough, few)
    assert has_enough_samples(enough, enough)
    assert intervals(few, enough) is None
    one, two, three = (sample([[1]] * 6, runs=runs) for runs in (1, 2, 3))
    assert [
        has_enough_samples(one, two),
        has_enough_samples(one, three),
        has_enough_samples(two, two),
    ] == [False, True, True]


def test_with_several_runs_a_run_is_one_value_however_many_steps_it_has() -> None:
    """Steps of one run agree to a nanosecond, runs differ by a tenth: no difference is sure."""
    values = np.repeat([[100], [110], [105]], 50, axis=0) * MS
    found = intervals(sample(values, runs=3), sample(values + 3 * MS, runs=3))
    assert found is not None
    assert found[0].p_value > 0.4
    assert found[0].low_ns < 0 < found[0].high_ns


def test_one_run_against_several_is_judged_by_what_the_several_differ_by() -> None:
    several = np.repeat([[100], [102], [98], [101], [99]], 10, axis=0) * MS
    same, other = np.full((10, 1), 101 * MS), np.full((10, 1), 120 * MS)
    of_same = intervals(sample(several, runs=5), sample(same))
    of_other = intervals(sample(several, runs=5), sample(other))
    assert of_same is not None and of_other is not None
    assert of_same[0].p_value > 0.3
    assert of_other[0].p_value < 0.01


def test_steps_that_follow_each_other_count_as_fewer() -> None:
    drift = np.linspace(100, 110, 40)[:, np.newaxis] * MS
    mixed = np.random.default_rng(0).permutation(drift)
    head = np.full((40, 1), 107 * MS)
    of_drift, of_mixed = (
        intervals(sample(drift), sample(head), 0),
        intervals(sample(mixed), sample(head), 0),
    )
    assert of_drift is not None and of_mixed is not None
    assert of_drift[0].p_value > 0.05 > of_mixed[0].p_value


@pytest.mark.parametrize(("steps", "runs"), [(5, 1), (12, 1), (20, 4)])
def test_without_a_difference_few_rows_are_called_changed(steps: int, runs: int) -> None:
    """Of 4,000 rows without a difference 5% are below 5%, and after control next to none."""
    random = np.random.default_rng(7)
    base, head = (
        sample(random.normal(1000, 20, (steps, 4000)) * 1000, runs=runs) for _ in range(2)
    )
    found = intervals(base, head, 0)
    assert found is not None
    below = np.mean([each.p_value < 0.05 for each in found])
    assert 0.03 < below < 0.065
    assert sum(each.q_value < 0.05 for each in found) <= 2
    covered = np.mean([each.low_ns <= 0 <= each.high_ns for each in found])
    assert covered == pytest.approx(1 - below, abs=0.005)


def test_a_difference_of_a_twentieth_is_found_in_ten_steps() -> None:
    random = np.random.default_rng(3)
    base = random.normal(1000, 8, (10, 200)) * 1000
    head = random.normal(1000, 8, (10, 200)) * 1000
    head[:, 0] *= 1.05
    found = intervals(sample(base), sample(head))
    assert found is not None
    assert [row for row, each in enumerate(found) if each.q_value < 0.05] == [0]


def test_times_that_never_vary_are_no_surer_than_the_clock() -> None:
    found = intervals(sample(np.full((5, 1), 1000)), sample(np.full((5, 1), 1003)))
    assert found is not None
    assert found[0].p_value > 0.05


def test_idle_time_differs_more_between_runs_than_device_time() -> None:
    means = np.array([100.0, 100.0, -40.0])
    accounts = [Account.DEVICE, Account.IDLE, Account.OTHER_STEPS]
    usual = between_runs_std_ns(means, accounts, on_cpu=False)
    assert usual.tolist() == [
        100 * DEVICE_BETWEEN_RUNS,
        100 * CPU_BETWEEN_RUNS,
        40 * CPU_BETWEEN_RUNS,
    ]


def test_where_the_cpu_is_the_device_its_time_is_no_steadier_than_idle_time() -> None:
    usual = between_runs_std_ns(
        np.array([100.0, 100.0]), [Account.DEVICE, Account.IDLE], on_cpu=True
    )
    assert usual.tolist() == [100 * CPU_BETWEEN_RUNS, 100 * CPU_BETWEEN_RUNS]


def test_runs_that_agree_by_chance_are_no_surer_than_runs_usually_are() -> None:
    """Two runs of each side agree to a millionth; a difference of a thousandth is still noise."""
    base, head = np.array([[1_000_000], [1_000_001]]), np.array([[1_001_000], [1_001_001]])
    found = intervals(sample(base, runs=2), sample(head, runs=2))
    assert found is not None
    assert found[0].p_value > 0.2
