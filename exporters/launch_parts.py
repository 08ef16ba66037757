"""Owns the parts of launches as columns, the largest part of each launch first."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from profiler_ext.records import Analysis, Codes, Ints

NO_PLACE = -1


class PartColumns:
    """The parts of all launches.

    Attributes:
        firsts: where the parts of each launch begin, and where the last end.
        place: the place of each part.
        duration_ns: its time.
    """

    def __init__(self, analysis: Analysis) -> None:
        """Sort the shares."""
        shares = analysis.shares
        order = np.lexsort((-shares.duration_ns, shares.launch))
        self.place: Codes = shares.place[order]
        self.duration_ns: Ints = shares.duration_ns[order]
        launches = np.arange(len(analysis.launches) + 1)
        self.firsts: Ints = np.searchsorted(shares.launch[order], launches)

    def largest(self) -> Ints:
        """Return the place of each launch's largest part, ``NO_PLACE`` where it has none."""
        some = self.firsts[:-1] < self.firsts[1:]
        places = np.full(len(some), NO_PLACE)
        places[some] = self.place[self.firsts[:-1][some]]
        return places

    def of(self, launch: int) -> list[int]:
        """Return the places of one launch."""
        places: list[int] = self.place[self.firsts[launch] : self.firsts[launch + 1]].tolist()
        return places

    def durations_ns(self, launch: int) -> list[int]:
        """Return the times of the parts of one launch."""
        first, end = self.firsts[launch], self.firsts[launch + 1]
        times: list[int] = self.duration_ns[first:end].tolist()
        return times

    def keys(self) -> list[bytes]:
        """Return for each launch what is the same for those with the same places."""
        whole, size = self.place.tobytes(), self.place.itemsize
        return [whole[first:end] for first, end in pairwise((self.firsts * size).tolist())]
