"""Whether a difference is significant: its confidence interval, p-value and verdict.

The unit is the largest thing that was repeated (Kalibera and Jones, Quantifying Performance
Changes with Effect Size Confidence Intervals, 2012). With several runs on a side, each run is one
value, the mean of its steps, since runs of one program differ by more than steps of a run; runs of
both sides are assumed to vary by one part of their mean, estimated from all. With one run a side,
its steps are the values: their number is reduced to that of independent steps (lag-1
autocorrelation), the usual variation between runs is added, and the interval is Welch's.

Intervals use Student's t and not resampling: a bootstrap's are too short for a handful of values.
Its tail is the regularised incomplete beta function, by its continued fraction with Lentz's method
(Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.1 and 26.5.8). Many rows are
compared at once, so changes are called by their false discovery rate (Benjamini and Hochberg,
Controlling the False Discovery Rate, 1995).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from profiler_ext.comparison.records import Account, Change, Interval, Verdict
from profiler_ext.records.events import Ints
from profiler_ext.records.share_sums import codes_of, sum_by

Floats = npt.NDArray[np.float64]
MIN_STEPS = 5  # fewer steps of one run do not tell their spread
FALSE_DISCOVERY_RATE = 0.05  # so many of the called changes are none, on average
# One standard deviation between runs of one program, of device time and of the CPU's.
# Measured on an H200 (torch 2.11) with five runs of a GPT of 12 layers: lines by 0.1% (the median)
# to 0.4%, modules and ops by up to 0.9%, kernels by up to 1.5%; causes of idle time, which is the
# CPU's, by 14% to 35%. With these values no row of device time of ten pairs of runs was called a
# change. Where the CPU is the device, its time is no steadier.
DEVICE_BETWEEN_RUNS, CPU_BETWEEN_RUNS = 0.0075, 0.25
MIN_RUN_DEVIATION = 0.0015  # few runs can agree by chance: the least part of their mean
TICK_VARIANCE = 32.0**2 / 6  # devices stamp times in units of 32 ns at most
_TWO_SIDED_ALPHA = 0.05
_MAX_DEGREES_OF_FREEDOM = 1000.0
_MAX_ITERATIONS, _TOLERANCE, _TINY = 500, 1e-15, 1e-300


def two_sided_p_value(t: float, degrees_of_freedom: float) -> float:
    """Return the probability of a value as far from zero as ``t``, or farther."""
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(
        degrees_of_freedom / 2, 0.5, degrees_of_freedom / (degrees_of_freedom + t * t)
    )


@lru_cache(maxsize=4096)
def quantile(part: float, degrees_of_freedom: float) -> float:
    """Return the value that is exceeded, on either side, with a probability."""
    low, high = 0.0, 1.0
    while two_sided_p_value(high, degrees_of_freedom) > part:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if two_sided_p_value(middle, degrees_of_freedom) > part
            else (low, middle)
        )
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # there the fraction of the other end converges faster
        return 1 - _incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log_front += a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / (a * _fraction(a, b, x))


def _fraction(a: float, b: float, x: float) -> float:
    """Return 1 + d1/(1 + d2/(1 + ...)) of the incomplete beta function, by Lentz's method."""
    value = c = 1.0
    d = 0.0
    for step in range(1, _MAX_ITERATIONS):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / ((1 + term * d) or _TINY)
        c = (1 + term / c) or _TINY
        value *= c * d
        if abs(c * d - 1) < _TOLERANCE:
            break
    return value


@dataclass(frozen=True, slots=True)
class Sample:
    """The times of rows in the steps of a side."""

    sums: Ints  # time of each step and row, on all ranks
    ranks: Ints  # how many ranks each step sums
    run: Ints  # row of each step's run, sorted
    on_cpu: bool = False  # the device is the CPU

    def rows(self, chosen: Ints) -> Sample:
        """Return some of its rows."""
        return replace(self, sums=self.sums[:, chosen])

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return len(np.unique(self.run))

    @property
    def means(self) -> Floats:
        """The mean step of each row."""
        means: Floats = self.sums.sum(axis=0) / self.ranks.sum()
        return means

    @property
    def of_runs(self) -> Floats:
        """The mean step of each run and row."""
        of_run = [self.run == run for run in np.unique(self.run)]
        return np.array([self.sums[own].sum(axis=0) / self.ranks[own].sum() for own in of_run])

    @property
    def of_steps(self) -> Floats:
        """Each step, of one rank."""
        steps: Floats = self.sums / self.ranks[:, np.newaxis]
        return steps


@dataclass(frozen=True, slots=True)
class _Error:
    """The variance of a mean, or of a difference of two, of each row."""

    variance: Floats
    degrees_of_freedom: Floats


def has_enough_samples(base: Sample, head: Sample) -> bool:
    """Return whether there are enough steps, or runs, to test a difference."""
    if max(base.runs, head.runs) > 1:
        return base.runs + head.runs > 3
    return min(len(base.run), len(head.run)) >= MIN_STEPS


def between_runs_std_ns(means: Floats, accounts: Sequence[str], *, on_cpu: bool) -> Floats:
    """Return the usual standard deviation between runs, of times of a mean step."""
    of_device = CPU_BETWEEN_RUNS if on_cpu else DEVICE_BETWEEN_RUNS
    is_device = np.array([account == Account.DEVICE for account in accounts], np.bool_)
    usual: Floats = np.abs(means) * np.where(is_device, of_device, CPU_BETWEEN_RUNS)
    return usual


def intervals(base: Sample, head: Sample, usual: tuple[Floats, Floats]) -> list[Interval] | None:
    """Return the interval of each row's difference; ``None`` for too few steps and runs."""
    if not has_enough_samples(base, head):
        return None
    error = _errors(base, head, usual)
    degrees_of_freedom = error.degrees_of_freedom
    delta, deviation = head.means - base.means, np.sqrt(error.variance)
    p_values = np.array(
        [
            two_sided_p_value(d / s, _rounded(f)) if d else 1.0
            for d, s, f in zip(delta, deviation, degrees_of_freedom, strict=True)
        ]
    )
    q_values = benjamini_hochberg(p_values)
    reaches = [
        float(s) * quantile(_TWO_SIDED_ALPHA, _rounded(f))
        for s, f in zip(deviation, degrees_of_freedom, strict=True)
    ]
    return [
        Interval(float(d - reach), float(d + reach), float(p), float(q))
        for d, reach, p, q in zip(delta, reaches, p_values, q_values, strict=True)
    ]


def benjamini_hochberg(p_values: Floats) -> Floats:
    """Return the q-value of each p-value."""
    count = len(p_values)
    order = np.argsort(p_values)
    scaled = p_values[order] * count / np.arange(1, count + 1)
    q_values = np.empty(count)
    q_values[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return q_values


def _errors(base: Sample, head: Sample, usual: tuple[Floats, Floats]) -> _Error:
    if max(base.runs, head.runs) > 1:
        return _error_of_runs(base, head)
    first, second = _error_of_steps(base, usual[0]), _error_of_steps(head, usual[1])
    variance = first.variance + second.variance
    parts = (
        first.variance**2 / first.degrees_of_freedom
        + second.variance**2 / second.degrees_of_freedom
    )
    return _Error(variance, variance**2 / parts)


def _error_of_runs(base: Sample, head: Sample) -> _Error:
    """Return the error by the variation between runs, pooled over both sides.

    A side with one run is assumed to vary as the other side's runs do.
    """
    squares, degrees_of_freedom = np.zeros(base.means.shape), np.zeros(base.means.shape)
    for side in (base, head):
        known = (side.means != 0) & (side.runs > 1)
        parts = side.of_runs / np.where(known, side.means, 1.0)
        squares += np.where(known, parts.var(axis=0) * side.runs, 0.0)
        degrees_of_freedom += np.where(known, side.runs - 1, 0)
    degrees_of_freedom = np.maximum(degrees_of_freedom, 1.0)
    part = np.maximum(squares / degrees_of_freedom, MIN_RUN_DEVIATION**2)
    every = (part * side.means**2 + TICK_VARIANCE for side in (base, head))
    first, second = every
    return _Error(first / base.runs + second / head.runs, degrees_of_freedom)


def _error_of_steps(sample: Sample, usual: Floats) -> _Error:
    steps = sample.of_steps
    count = _effective_sample_size(steps)
    variance = (steps.var(axis=0, ddof=1) + TICK_VARIANCE) / count
    degrees_of_freedom = count - 1
    # The usual spread between runs is not estimated here: it takes no degrees of freedom.
    total = variance + usual**2
    return _Error(total, degrees_of_freedom * (total / variance) ** 2)


def _effective_sample_size(steps: Floats) -> Floats:
    """Return the number of independent steps of each row (lag-1 autocorrelation)."""
    count = len(steps)
    off = steps - steps.mean(axis=0)
    variance_sum = (off**2).sum(axis=0)
    lagged = (off[1:] * off[:-1]).sum(axis=0)
    correlation = np.clip(lagged / np.where(variance_sum > 0, variance_sum, 1.0), 0.0, 0.99)
    # Few steps tell no correlation: ignore what chance alone gives (Bartlett's bound).
    correlation[correlation < 2 / math.sqrt(count)] = 0.0
    independent: Floats = np.maximum(count * (1 - correlation) / (1 + correlation), 2.0)
    return independent


def _rounded(degrees_of_freedom: float) -> float:
    """Return degrees of freedom in tenths, rounded down to the longer interval."""
    return min(max(math.floor(10 * degrees_of_freedom) / 10, 1.0), _MAX_DEGREES_OF_FREEDOM)


def changes(
    base: Sample, head: Sample, launches: tuple[Ints, Ints], accounts: Sequence[str]
) -> list[Change]:
    """Return the change of each row, false discoveries controlled over all of them.

    A row of device time in each step of one side and in none of the other is new or gone, untested.

    Args:
        launches: launches of each row in the base, and in the head.
    """
    structural = [_structural(base, head, row, of) for row, of in enumerate(accounts)]
    usual = [between_runs_std_ns(each.means, accounts, on_cpu=each.on_cpu) for each in (base, head)]
    return _changes(base, head, launches, structural, (usual[0], usual[1]))


def change_of_all(
    base: Sample, head: Sample, launches: tuple[int, int], accounts: Sequence[str]
) -> Change:
    """Return the change of all rows together."""
    totals = [replace(each, sums=each.sums.sum(axis=1, keepdims=True)) for each in (base, head)]
    usual = [_std_of_all(each, accounts) for each in (base, head)]
    counts = [np.array([count], np.int64) for count in launches]
    (change,) = _changes(totals[0], totals[1], (counts[0], counts[1]), [None], (usual[0], usual[1]))
    return change


def _changes(
    base: Sample,
    head: Sample,
    launches: tuple[Ints, Ints],
    structural: Sequence[Verdict | None],
    usual: tuple[Floats, Floats],
) -> list[Change]:
    sums = [each.sums.sum(axis=0) for each in (base, head)]
    steps = [int(each.ranks.sum()) for each in (base, head)]
    equal = sums[0] * steps[1] == sums[1] * steps[0]
    tested = np.flatnonzero(~equal & np.array([each is None for each in structural], np.bool_))
    result = intervals(base.rows(tested), head.rows(tested), (usual[0][tested], usual[1][tested]))
    interval_of = dict(zip(tested.tolist(), result or (), strict=False))
    return [
        Change(
            base_ns=int(sums[0][row]),
            head_ns=int(sums[1][row]),
            base_steps=steps[0],
            head_steps=steps[1],
            base_launches=int(launches[0][row]),
            head_launches=int(launches[1][row]),
            interval=interval_of.get(row),
            verdict=Verdict.EQUAL
            if equal[row]
            else known or _verdict(interval_of.get(row), sums[0][row], sums[1][row]),
        )
        for row, known in enumerate(structural)
    ]


def _std_of_all(sample: Sample, accounts: Sequence[str]) -> Floats:
    """Return the usual deviation of all rows together: rows of one account vary together."""
    of_row, distinct = codes_of(accounts)
    means = sum_by(of_row, sample.means, len(distinct))
    usual = between_runs_std_ns(means, distinct, on_cpu=sample.on_cpu)
    return np.array([math.sqrt(float((usual**2).sum()))])


def _structural(base: Sample, head: Sample, row: int, account: str) -> Verdict | None:
    if account != Account.DEVICE:
        return None
    old, new = base.sums[:, row], head.sums[:, row]
    if not old.any() and new.all():
        return Verdict.NEW
    return Verdict.REMOVED if old.all() and not new.any() else None


def _verdict(interval: Interval | None, base_ns: int, head_ns: int) -> Verdict:
    if interval is None:
        return Verdict.TOO_FEW
    if interval.q_value > FALSE_DISCOVERY_RATE:
        return Verdict.NOT_SIGNIFICANT
    if not base_ns or not head_ns:
        return Verdict.NEW if head_ns else Verdict.REMOVED
    return Verdict.SLOWER if interval.low_ns > 0 else Verdict.FASTER
