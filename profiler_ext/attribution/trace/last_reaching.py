"""Owns the search for the last place before each whose value reaches its limit, for all at once.

Of spans in order of start it finds the one that is still open, which a walk with a stack finds too,
a step of Python for each span.
"""

from __future__ import annotations

import numpy as np

from profiler_ext.attribution.trace.lookups import NO_ROW, Rows
from profiler_ext.records import Ints

_MIN_VALUE = np.iinfo(np.int64).min


def last_reaching(values: Ints, limits: Ints) -> Rows:
    """Return for each place the last one before it whose value is its limit or more.

    Args:
        values: one a place.
        limits: what is searched for, one a place.

    Returns:
        The place, or ``NO_ROW`` where none before it has such a value.
    """
    result = np.arange(-1, len(values) - 1, dtype=np.int32)  # most often it is the one before
    places = blocks = np.append(0, np.flatnonzero(values[:-1] < limits[1:]) + 1)[: len(values)]
    result[places] = NO_ROW
    levels = _maxima(values)
    hits: list[tuple[Ints, Ints]] = []
    for maxima in levels:
        # What lies before a place is so many whole blocks; only of the last, if it is the first
        # of a pair, a larger block says nothing.
        is_hit = (blocks % 2 == 1) & (maxima[blocks - 1] >= limits[places])
        hits.append((places[is_hit], blocks[is_hit] - 1))
        goes_on = ~is_hit & (blocks > 1)
        places, blocks = places[goes_on], blocks[goes_on] // 2
    places, blocks = np.empty((2, 0), dtype=np.int64)
    for maxima, (more, own) in zip(reversed(levels), reversed(hits), strict=True):
        # The last half that holds such a value: there is one, so it is the first if not the second.
        second = np.minimum(2 * blocks + 1, len(maxima) - 1)
        halves = np.where(maxima[second] >= limits[places], second, 2 * blocks)
        places, blocks = np.append(places, more), np.append(halves, own)
    result[places] = blocks
    return result


def _maxima(values: Ints) -> list[Ints]:
    """Return the values, the greater of each two, of each four, and so on."""
    levels = [values]
    while len(levels[-1]) > 1:
        last = levels[-1]
        if len(last) % 2:
            last = np.append(last, _MIN_VALUE)
        levels.append(np.maximum(last[::2], last[1::2]))
    return levels
