"""Owns Student's t distribution, for which nothing that is installed has a function.

The tail is the regularised incomplete beta function, by its continued fraction with Lentz's method
(Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.1 and 26.5.8).
"""

from __future__ import annotations

import math
from functools import lru_cache

_MAX_ITERATIONS, _TOLERANCE, _TINY = 500, 1e-15, 1e-300


def two_sided_p_value(t: float, degrees_of_freedom: float) -> float:
    """Return how often a value of the distribution is as far from zero as ``t``, or farther.

    Args:
        t: the value.
        freedom: degrees of freedom, above 0.
    """
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(degrees_of_freedom / 2, 0.5, degrees_of_freedom / (degrees_of_freedom + t * t))


@lru_cache(maxsize=4096)
def quantile(part: float, degrees_of_freedom: float) -> float:
    """Return the value that is exceeded, to either side, in so small a part of all cases.

    Args:
        part: the part of both tails, such as 0.05.
        freedom: degrees of freedom, above 0.
    """
    low, high = 0.0, 1.0
    while two_sided_p_value(high, degrees_of_freedom) > part:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p_value(middle, degrees_of_freedom) > part else (low, middle)
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
