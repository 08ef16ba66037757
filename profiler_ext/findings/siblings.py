"""Owns the measure by which one of several layers that are alike stands out from the others."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

FEWEST = 4
"""Fewer layers are not judged: of three nobody can say which is the odd one."""
_DEVIATIONS = 6


def standing_out(times: Sequence[float], beyond: float) -> list[int]:
    """Return which of some times stand out from their median.

    Args:
        times: the times of layers that are alike.
        beyond: so large a part of the median they must be away from it; they must be away by six
            times the median of all deviations too.

    Returns:
        Their indices.
    """
    if len(times) < FEWEST:
        return []
    usual = median(times)
    spread = median(abs(time - usual) for time in times)
    bound = max(beyond * usual, _DEVIATIONS * spread)
    return [at for at, time in enumerate(times) if abs(time - usual) > bound]
