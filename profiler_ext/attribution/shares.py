"""Owns the split of a launch's time into integer parts that add up to it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiler_ext.records import Ints

_SAFE_PRODUCT = 2**62


def split(durations_ns: Ints, weights: Sequence[int]) -> Ints:
    """Split each duration by the weights, by the method of the largest remainder.

    Args:
        durations_ns: time of each launch.
        weights: one for each part; all zero means equal parts.

    Returns:
        One row for each launch and one column for each part; a row adds up to its launch.
        Of equal remainders the earlier part gets the odd nanosecond.
    """
    parts = list(weights) if any(weights) else [1] * len(weights)
    total = sum(parts)
    exact = int(durations_ns.max(initial=0)) * total < _SAFE_PRODUCT
    dtype = np.dtype(np.int64) if exact else np.dtype(object)
    product = durations_ns.astype(dtype)[:, None] * np.array(parts, dtype=dtype)[None, :]
    whole: Ints = (product // total).astype(np.int64)
    remainder = product % total
    by_remainder = np.argsort(-remainder, axis=1, kind="stable")
    rank = np.argsort(by_remainder, axis=1, kind="stable")
    left_over = durations_ns - whole.sum(axis=1)
    odd: Ints = (rank < left_over[:, None]).astype(np.int64)
    return whole + odd
