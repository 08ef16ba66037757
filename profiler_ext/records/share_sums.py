"""Sums by key: of the shares of launches, and of other columns that have a key and an amount.

Whole numbers add up exactly in any order; real numbers are added in the order of their rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Codes, Ints, first_rows, numbered, sorted_distinct
from profiler_ext.records.vocabulary import Phase

_Key = Ints | Codes
_Number = TypeVar("_Number", bound=np.generic)
_Name = TypeVar("_Name", bound=Hashable)
_FEW = 1 << 16


def sum_by(
    key: _Key | tuple[_Key, _Key], values: npt.NDArray[_Number], *sizes: int
) -> npt.NDArray[_Number]:
    """Return the sum of the values of each key, ``0`` to ``size - 1``.

    Of two keys and two sizes it has a row for each first key, a column for each second.
    """
    sums = np.zeros((*sizes, *values.shape[1:]), values.dtype)
    if isinstance(key, tuple):  # one index is added up in a fifth of the time of two
        key = np.ravel_multi_index(key, sizes)
    np.add.at(sums.reshape(prod(sizes), *values.shape[1:]), key, values)
    return sums


def distinct_pairs(first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """Return each pair of two columns once, in order; no number is below zero."""
    every = int(second.max(initial=0)) + 1
    # numpy sorts 16 bits in linear time; what is then left to sort is mostly in order.
    few = first.astype(np.uint16) if first.max(initial=0) < _FEW else first
    pairs = (first * every + second)[np.argsort(few, kind="stable")]
    firsts, seconds = np.divmod(sorted_distinct(pairs), every)
    return firsts, seconds


def count_distinct(key: Ints, item: Ints, size: int) -> Ints:
    """Return how many different items each key has."""
    return np.bincount(distinct_pairs(key, item)[0], minlength=size).astype(np.int64)


def codes_of(values: Iterable[_Name | None]) -> tuple[Ints, list[_Name]]:
    """Number values in the order of their first appearance; ``None`` is -1."""
    known: dict[_Name, int] = {}
    codes = [-1 if each is None else known.setdefault(each, len(known)) for each in values]
    return np.array(codes, np.int64), list(known)


def sum_by_name(amounts: Iterable[tuple[_Name, int]]) -> dict[_Name, int]:
    """Return the sum of the amounts of each name, in the order of their first appearance."""
    sums: dict[_Name, int] = {}
    for name, amount in amounts:
        sums[name] = sums.get(name, 0) + amount
    return sums


@dataclass(frozen=True, slots=True)
class KeyedShares:
    """Some shares of an analysis, each with the key that it counts for.

    Attributes:
        analysis: whose they are.
        rows: their rows in ``analysis.shares``, in order.
        key: the key of each, from 0 to ``size - 1``.
        size: how many keys there are.
    """

    analysis: Analysis
    rows: Ints
    key: Ints
    size: int

    @property
    def launches(self) -> Ints:
        """The launch of each."""
        return self.analysis.shares.launch[self.rows]

    @property
    def durations_ns(self) -> Ints:
        """The time of each."""
        return self.analysis.shares.duration_ns[self.rows]

    def phases_ns(self) -> Ints:
        """Return the time of each key by phase, a column for each ``Phase``."""
        phases = list(Phase)
        of_place = np.array([phases.index(place.phase) for place in self.analysis.places], np.int64)
        phase = of_place[self.analysis.shares.place[self.rows]]
        return sum_by((self.key, phase), self.durations_ns, self.size, len(phases))

    def pairs_ns(self, code: _Key) -> list[tuple[int, int, int]]:
        """Return each key and code that occur together, in order, with their time.

        Args:
            code: a number for each of the shares, from 0 on.
        """
        pair = numbered((self.key, code))
        firsts = first_rows(pair)
        columns = (self.key[firsts], code[firsts], sum_by(pair, self.durations_ns, len(firsts)))
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def launch_pairs(self) -> tuple[Ints, Ints]:
        """Return each key and launch that has a share in it once, in order."""
        return distinct_pairs(self.key, self.launches)

    def whole_launches(self) -> tuple[Ints, Ints]:
        """Return how many launches have a share in each key, and how long these are in all."""
        key, launch = self.launch_pairs()
        whole_ns = sum_by(key, self.analysis.launches.duration_ns[launch], self.size)
        return np.bincount(key, minlength=self.size).astype(np.int64), whole_ns


def profiled_shares(analysis: Analysis) -> Ints:
    """Return the rows of the shares of launches in the profiled steps."""
    return np.flatnonzero(analysis.launches.in_steps[analysis.shares.launch])


def share_offsets(analysis: Analysis) -> Ints:
    """Return where the shares of each launch begin, and where the last one's end."""
    return np.searchsorted(analysis.shares.launch, np.arange(len(analysis.launches) + 1))


def largest_places(analysis: Analysis) -> Ints:
    """Return the place of each launch's largest share, the first of equal ones; -1 for none."""
    shares = analysis.shares
    smallest_first = np.lexsort((-shares.duration_ns, shares.launch))[::-1]
    places = np.full(len(analysis.launches), -1, np.int64)
    places[shares.launch[smallest_first]] = shares.place[smallest_first]  # the last one stays
    return places


def kernel_names(analysis: Analysis) -> tuple[Ints, list[tuple[str, str, str]]]:
    """Number the launches by kernel (or the event, where Inductor launched none), name and kind."""
    launches = analysis.launches
    shown, name, kind = launches.kernel_or_name, launches.name, launches.kind
    codes = numbered((launches.kernel.codes, name.codes, kind.codes))
    return codes, [(shown[row], name[row], kind[row]) for row in first_rows(codes).tolist()]
