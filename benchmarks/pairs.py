"""How two sides are compared in pairs: whose turn it is, and the interval of their ratio.

A host of many users is slow for seconds and quick for seconds. What is compared is therefore taken
close together (A B B A, then B A A B: what grows steadily meets both), each ratio is within such a
turn, and the interval is that of the sign test, which no few bad turns widen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from statistics import median

from benchmarks.figures import Figure

WITH, WITHOUT = "with", "without"
_SELDOM = 0.025
"""So seldom is the true median beyond one end of an interval."""


def sides_of_turn(number: int) -> tuple[str, ...]:
    """Return the sides of a turn in their order, each twice.

    Args:
        number: which turn; every other one begins with the other side.
    """
    first, then = (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH)
    return first, then, then, first


def turns(take: Callable[[str], dict[str, float]], ends: float) -> Iterator[dict[str, float]]:
    """Yield of each turn the ratio of with to without, for each thing that was measured.

    Args:
        take: measures a side once.
        ends: no turn begins after it but the first, on the clock of ``time.monotonic``.
    """
    for number in count():
        taken: dict[str, list[dict[str, float]]] = {WITH: [], WITHOUT: []}
        for side in sides_of_turn(number):
            taken[side].append(take(side))
        yield {
            what: _sum(taken[WITH], what) / _sum(taken[WITHOUT], what) for what in taken[WITH][0]
        }
        if time.monotonic() > ends:
            return


def _sum(taken: Sequence[dict[str, float]], what: str) -> float:
    return sum(each[what] for each in taken)


def compared(figure: str, ratios: Sequence[float]) -> Figure:
    """Return the figure of some ratios: their median, with its 95% interval.

    Args:
        figure: what was compared.
        ratios: of each pair or turn.
    """
    low, middle, high = interval(ratios)
    return Figure(figure, middle, "x", len(ratios), (low, high))


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of some values, between the ends of its 95% interval.

    These are the values that so many lie beyond that a fair coin would seldom give fewer heads: of
    ten the second from either end.

    Args:
        values: any number of them; of fewer than six the interval is all of them.
    """
    ordered, tosses = sorted(values), len(values)
    beyond, so_few = 0, _chance(tosses, 0)
    while so_few <= _SELDOM:
        beyond += 1
        so_few += _chance(tosses, beyond)
    cut = max(0, beyond - 1)
    return ordered[cut], median(ordered), ordered[-1 - cut]


def _chance(tosses: int, heads: int) -> float:
    """Return how likely a fair coin gives so many heads; by logarithms: 2**1024 is no float."""
    ways = math.lgamma(tosses + 1) - math.lgamma(heads + 1) - math.lgamma(tosses - heads + 1)
    return math.exp(ways - tosses * math.log(2))
