"""Owns how sure a difference is: its interval, and the chance that it is noise.

The unit is the largest thing that was repeated (Kalibera and Jones, Quantifying Performance
Changes with Effect Size Confidence Intervals, 2012): where a side has several runs, each run is
one value, the mean of its steps, as two runs of one program differ by more than the steps of one
do; runs of both sides are taken to differ by one part of their mean, which all of them together
tell. Where each side has one run, its steps are the values; what follows the first of them depends
on what came before, so the number of steps is taken down to that of independent ones (lag-1
autocorrelation), what runs differ by is put in by its usual size, and the interval is Welch's.
Intervals are by Student's t and not by resampling: of a handful of values a bootstrap's are too
short. Many rows are compared at once, so what is called a change is chosen by the rate of false
discoveries (Benjamini and Hochberg, Controlling the False Discovery Rate, 1995).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from profiler_ext.comparison.records import Interval
from profiler_ext.comparison.student import quantile, two_sided_p_value
from profiler_ext.comparison.words import Account
from profiler_ext.records import Ints

MIN_STEPS = 5
"""With fewer steps of one run their spread is not known well enough to say anything."""
FALSE_DISCOVERY_RATE = 0.05
"""Of the rows that are called changed so many are not, on average."""
DEVICE_BETWEEN_RUNS, CPU_BETWEEN_RUNS = 0.0075, 0.25
"""What a GPU's time and the CPU's differ by between runs of one program: one standard deviation.

Measured on an H200 (torch 2.11) with five runs of a GPT of 12 layers: lines by 0.1% (the median)
to 0.4%, modules and ops by up to 0.9%, kernels by up to 1.5%; causes of idle time by 14% to 35%,
as that is the CPU's. With these no row of device time of ten pairs of runs was called a change.
Where the CPU is the device its time is no steadier than that.
"""
MIN_RUN_DEVIATION = 0.0015
"""Few runs can agree by chance: by such a part of their mean they differ at least."""
TICK_VARIANCE = 32.0**2 / 6
"""Devices stamp times in units of 32 ns at most, so no time of a step is known better."""
_TWO_SIDED_ALPHA = 0.05
_MAX_DEGREES_OF_FREEDOM = 1000.0
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sample:
    """The times of rows in the steps of a side.

    Attributes:
        sums: for each step and row, the time on all ranks.
        ranks: for each step, of how many ranks it is the sum.
        run: for each step, the row of its run; in order.
        on_cpu: the device is the CPU.
    """

    sums: Ints
    ranks: Ints
    run: Ints
    on_cpu: bool = False

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
        runs = np.unique(self.run)
        of = [
            self.sums[self.run == run].sum(axis=0) / self.ranks[self.run == run].sum()
            for run in runs
        ]
        return np.array(of)

    @property
    def of_steps(self) -> Floats:
        """Each step, of one rank."""
        steps: Floats = self.sums / self.ranks[:, np.newaxis]
        return steps


@dataclass(frozen=True, slots=True)
class _Error:
    """The variance of a mean, or of a difference of two, of each row, and its freedom."""

    variance: Floats
    degrees_of_freedom: Floats


def has_enough_samples(base: Sample, head: Sample) -> bool:
    """Tell whether there are enough steps, or runs, to tell a difference from noise.

    Args:
        base: the base's steps.
        head: the head's.
    """
    if max(base.runs, head.runs) > 1:
        return base.runs + head.runs > 3
    return min(len(base.run), len(head.run)) >= MIN_STEPS


def between_runs_std_ns(means: Floats, accounts: Sequence[str], *, on_cpu: bool) -> Floats:
    """Return what times of a mean step usually differ by between runs, as a standard deviation.

    Args:
        means: the times.
        accounts: the part of wall time that each is of.
        on_cpu: the device is the CPU.
    """
    of_device = CPU_BETWEEN_RUNS if on_cpu else DEVICE_BETWEEN_RUNS
    is_device = np.array([account == Account.DEVICE for account in accounts], np.bool_)
    usual: Floats = np.abs(means) * np.where(is_device, of_device, CPU_BETWEEN_RUNS)
    return usual


def intervals(base: Sample, head: Sample, usual: tuple[Floats, Floats]) -> list[Interval] | None:
    """Return how sure the difference of each row is.

    Args:
        base: the base's steps; their rows are the head's.
        head: the head's.
        usual: what each row usually differs by between runs, of the base and of the head.

    Returns:
        One for each row; ``None`` where there are too few steps and runs.
    """
    if not has_enough_samples(base, head):
        return None
    error = _errors(base, head, usual)
    degrees_of_freedom = error.degrees_of_freedom
    delta, deviation = head.means - base.means, np.sqrt(error.variance)
    p_values = np.array(
        [_p_value(d, s, f) for d, s, f in zip(delta, deviation, degrees_of_freedom, strict=True)]
    )
    return [
        Interval(float(d - reach), float(d + reach), float(p), float(q))
        for d, s, f, p, q in zip(
            delta, deviation, degrees_of_freedom, p_values, benjamini_hochberg(p_values), strict=True
        )
        for reach in (float(s) * quantile(_TWO_SIDED_ALPHA, _rounded(f)),)
    ]


def benjamini_hochberg(p_values: Floats) -> Floats:
    """Return for each p-value the rate of false discoveries at which it is one of those made.

    Args:
        p_values: one for each row.
    """
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
    parts = first.variance**2 / first.degrees_of_freedom + second.variance**2 / second.degrees_of_freedom
    return _Error(variance, variance**2 / parts)


def _error_of_runs(base: Sample, head: Sample) -> _Error:
    """Return the error by what runs differ by, as a part of their mean, of both sides together.

    A side with one run differs from others like it as much as the other side's runs do.
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
    # The usual spread between runs is known, not estimated here: it takes no freedom.
    total = variance + usual**2
    return _Error(total, degrees_of_freedom * (total / variance) ** 2)


def _effective_sample_size(steps: Floats) -> Floats:
    """Return as how many independent steps those of each row count (lag-1 autocorrelation).

    A correlation counts where it is more than chance alone gives (Bartlett's bound): few steps
    tell none.
    """
    count = len(steps)
    off = steps - steps.mean(axis=0)
    variance_sum = (off**2).sum(axis=0)
    lagged = (off[1:] * off[:-1]).sum(axis=0)
    correlation = np.clip(lagged / np.where(variance_sum > 0, variance_sum, 1.0), 0.0, 0.99)
    correlation[correlation < 2 / math.sqrt(count)] = 0.0
    independent: Floats = np.maximum(count * (1 - correlation) / (1 + correlation), 2.0)
    return independent


def _p_value(delta: float, deviation: float, degrees_of_freedom: float) -> float:
    return two_sided_p_value(delta / deviation, _rounded(degrees_of_freedom)) if delta else 1.0


def _rounded(degrees_of_freedom: float) -> float:
    """Return degrees of freedom in tenths, downwards: that is the longer interval."""
    return min(max(math.floor(10 * degrees_of_freedom) / 10, 1.0), _MAX_DEGREES_OF_FREEDOM)
