"""Robust outliers among few times, by their distance from the median."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

MIN_SAMPLES = 4  # fewer layers are not judged: of three, the outlier is ambiguous
_DEVIATIONS = 6
_EQUAL = 0.1
_ONE_IN = 6


def outlier_indices(times: Sequence[float], beyond: float) -> list[int]:
    """Return the indices of outliers."""
    # beyond: the least distance from the median, as a fraction of it; six times the median
    # deviation is required, too
    if len(times) < MIN_SAMPLES:
        return []
    usual = median(times)
    spread = median(abs(time - usual) for time in times)
    bound = max(beyond * usual, _DEVIATIONS * spread)
    return [at for at, time in enumerate(times) if abs(time - usual) > bound]


def outlier_indices_of_equal_sizes(
    times: Sequence[float], beyond: float, ends: Collection[int]
) -> list[int]:
    """Return the indices of outliers among layers whose sizes may change along their list."""
    # They have one size only where most, apart from outliers, take the same time. ¶ Args: / beyond:
    # the least distance from the median, as a fraction of it. / ends: indices of the list's first
    # and last layers, where sizes change first; never outliers.
    inner = [at for at in range(len(times)) if at not in ends]
    odd = [inner[at] for at in outlier_indices([times[at] for at in inner], beyond)]
    if not odd or len(odd) > max(1, len(inner) // _ONE_IN):
        return []
    return odd if are_equal([times[at] for at in inner if at not in odd]) else []


def are_equal(times: Sequence[float]) -> bool:
    """Tell whether all are within a tenth of their median."""
    usual = median(times)
    return all(abs(time - usual) <= _EQUAL * usual for time in times)
