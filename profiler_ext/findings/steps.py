"""Owns what is summed by step: an amount of each, spans of time within each, in linear time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiler_ext.records import Ints, Step


def sum_by_step(steps: Sequence[Step], number: Ints, amount: Ints) -> list[int]:
    """Return the sum of an amount in each step.

    Args:
        steps: the profiled steps.
        number: the number of the step that each amount is of; of none where there is no such step.
        amount: the amounts.
    """
    if not steps:
        return []
    known, of_step = np.unique([step.number for step in steps], return_inverse=True)
    at = np.minimum(np.searchsorted(known, number), len(known) - 1)
    is_of = known[at] == number
    sums = np.zeros(len(known), np.int64)
    np.add.at(sums, at[is_of], amount[is_of])
    result: list[int] = sums[of_step].tolist()
    return result


def time_within(parts: Sequence[tuple[int, int]], begins: Ints, ends: Ints) -> list[int]:
    """Return how long spans of time are within each part; what overlaps counts for each span.

    Args:
        parts: when each part begins and ends.
        begins: when each span began.
        ends: when it ended.
    """
    bounds = np.array(parts, np.int64).reshape(-1, 2).T
    until = [_before(begins, own) - _before(ends, own) for own in bounds]
    result: list[int] = (until[1] - until[0]).tolist()
    return result


def _before(times: Ints, moments: Ints) -> Ints:
    """Return for each moment the sum of how long before it each of these times was."""
    ordered = np.sort(times)
    count = np.searchsorted(ordered, moments)
    sums = np.concatenate([[0], np.cumsum(ordered)])
    before: Ints = count * moments - sums[count]
    return before
