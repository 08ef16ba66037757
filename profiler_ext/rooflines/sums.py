"""Owns the sums of rooflines over parts of launches: by line, by module, by kernel.

A launch's bytes, operations and times are split over its parts as its time is, in whole numbers
that add up to the launch; so what is said of the rows of a table adds up to what is said of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from profiler_ext.records import Analysis, Interned, Ints, MaskedInts
from profiler_ext.rooflines.calls import Rows
from profiler_ext.rooflines.rooflines import MaskedFloats, Rooflines

_PARTS = 2
"""One of so many parts of a row's time at least has a roofline, or the row has no bound."""


@dataclass(frozen=True, slots=True)
class RooflineSums:
    """One row for each key; a value that is not known of any part is masked, or ``""``.

    Attributes:
        bytes: bytes moved.
        flops: floating-point operations.
        gb_per_s: bytes over the time of the parts of which they are known.
        tflop_per_s: operations over the time of the parts of which they are known.
        attainable_tflop_per_s: the operations of the parts with a roofline over the time that
            they take at it.
        peak_fraction: which part of the time of those with a roofline they take at it; not known
            where these are less than half of the row's time.
        roofline_ns: what these take at their roofline.
        could_save_ns: how much sooner these could be over.
        bound: the ``Bound`` of most of their time; ``""`` where it is less than half of the row's.
        unit: the ``Unit`` of most operations, where operations are known; else of most time.
    """

    bytes: MaskedInts
    flops: MaskedInts
    gb_per_s: MaskedFloats
    tflop_per_s: MaskedFloats
    attainable_tflop_per_s: MaskedFloats
    peak_fraction: MaskedFloats
    roofline_ns: MaskedInts
    could_save_ns: MaskedInts
    bound: Interned
    unit: Interned


def of_shares(analysis: Analysis, amount: MaskedInts) -> MaskedInts:
    """Split what each launch has over its parts, as its time is split.

    Args:
        analysis: what attribution found.
        amount: one number for each launch: bytes, operations or nanoseconds.

    Returns:
        One number for each row of ``analysis.shares``; those of a launch add up to its own.
    """
    shares, duration_ns = analysis.shares, analysis.launches.duration_ns
    launch = shares.launch
    part = shares.duration_ns / np.maximum(duration_ns[launch], 1)
    parts = np.floor(amount.data[launch] * part).astype(np.int64)
    firsts = np.flatnonzero(np.append(True, launch[1:] != launch[:-1])[: len(launch)])
    given = np.add.reduceat(parts, firsts) if len(firsts) else parts
    lasts = np.append(firsts[1:], len(launch))[: len(firsts)] - 1
    parts[lasts] += amount.data[launch[lasts]] - given
    return np.ma.MaskedArray(parts, np.ma.getmaskarray(amount)[launch])


class _Parts(NamedTuple):
    """What rooflines say of launches, split over the parts of these."""

    bytes: MaskedInts
    flops: MaskedInts
    roofline_ns: MaskedInts
    could_save_ns: MaskedInts


def _parts_of(analysis: Analysis, found: Rooflines) -> _Parts:
    def split() -> tuple[Rooflines, _Parts]:
        amounts = (found.bytes, found.flops, found.roofline_ns, found.could_save_ns)
        return found, _Parts(*(of_shares(analysis, amount) for amount in amounts))

    # What is kept with its rooflines has them to itself: no others get their number.
    return analysis.derived.once(("parts of rooflines", id(found)), split)[1]


def summed(analysis: Analysis, found: Rooflines, share: Ints, key: Ints, rows: int) -> RooflineSums:
    """Return the sums of some parts of launches.

    Args:
        analysis: what attribution found.
        found: the rooflines of its launches.
        share: the rows of ``analysis.shares`` to sum.
        key: the row that each of these counts for.
        rows: how many rows there are.

    Returns:
        The sums, one row for each key.
    """
    sums, parts = _Sums(analysis, share, key, rows), _parts_of(analysis, found)
    moved, moving_ns = sums.of(parts.bytes)
    computed, computing_ns = sums.of(parts.flops)
    roofline, bounded_ns = sums.of(parts.roofline_ns)
    is_unknown = parts.flops.mask | parts.roofline_ns.mask
    bounded_flops, _ = sums.of(np.ma.MaskedArray(parts.flops.data, is_unknown))
    at_roofline, _ = sums.of(np.ma.MaskedArray(parts.roofline_ns.data, is_unknown))
    saved, _ = sums.of(parts.could_save_ns)
    # What is known of a sliver says nothing of the row.
    is_told = _PARTS * bounded_ns.filled(0) >= sums.took_ns
    return RooflineSums(
        bytes=moved,
        flops=computed,
        gb_per_s=_ratio(moved, moving_ns),
        tflop_per_s=_ratio(computed, computing_ns * 1000),
        attainable_tflop_per_s=_ratio(bounded_flops, at_roofline * 1000),
        peak_fraction=_ratio(roofline, np.ma.masked_where(~is_told, bounded_ns)),
        roofline_ns=roofline,
        could_save_ns=saved,
        bound=_told(sums.most(found.bound, analysis.launches.duration_ns), is_told),
        unit=sums.most(found.unit, _weight(found, analysis.launches.duration_ns)),
    )


def _told(words: Interned, is_told: Rows) -> Interned:
    nothing = words.strings.index("")
    return Interned(np.where(is_told, words.codes, nothing).astype(np.int32), words.strings)


def _weight(found: Rooflines, duration_ns: Ints) -> Ints:
    """Weigh units by operations; those whose operations are not known, by time, come after."""
    return np.where(found.flops.mask, np.minimum(duration_ns, 1), found.flops.data + 2)


class _Sums:
    def __init__(self, analysis: Analysis, share: Ints, key: Ints, rows: int) -> None:
        self._analysis, self._share, self._key, self._rows = analysis, share, key, rows
        self._launch = analysis.shares.launch[share]
        self._took_ns = analysis.shares.duration_ns[share]

    @property
    def took_ns(self) -> Ints:
        """The time of each key."""
        total = np.zeros(self._rows, np.int64)
        np.add.at(total, self._key, self._took_ns)
        return total

    def of(self, parts: MaskedInts) -> tuple[MaskedInts, MaskedInts]:
        """Return the sums of the known amounts of all parts, and the time of those parts."""
        known = np.flatnonzero(~np.ma.getmaskarray(parts)[self._share])
        key = self._key[known]
        total, took_ns = np.zeros((2, self._rows), np.int64)
        np.add.at(total, key, parts.data[self._share[known]])
        np.add.at(took_ns, key, self._took_ns[known])
        nothing = np.bincount(key, minlength=self._rows) == 0
        return np.ma.MaskedArray(total, nothing), np.ma.MaskedArray(took_ns, nothing)

    def most(self, column: Interned, weight: Ints) -> Interned:
        """Return the word that weighs most among the parts of each key, ``""`` where none is."""
        part = self._took_ns / np.maximum(self._analysis.launches.duration_ns[self._launch], 1)
        words = np.zeros((self._rows, len(column.strings)))
        codes = column.codes[self._launch]
        np.add.at(words, (self._key, codes), part * weight[self._launch] + 1e-9)
        words[:, column.strings.index("")] = 0
        return Interned(words.argmax(axis=1).astype(np.int32), column.strings)


def _ratio(amount: MaskedInts, by: MaskedInts) -> MaskedFloats:
    ratio: MaskedFloats = amount / np.ma.masked_equal(by, 0)
    return ratio
