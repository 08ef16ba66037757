"""Owns the sums of rooflines over parts of launches: by line, by module, by kernel.

A launch's bytes, operations and times are split over its parts as its time is, in whole numbers
that add up to the launch; so what is said of the rows of a table adds up to what is said of all.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    given = np.zeros(len(duration_ns), np.int64)
    np.add.at(given, launch, parts)
    is_last = np.ones(len(launch), np.bool_)
    is_last[:-1] = launch[1:] != launch[:-1]
    parts[is_last] += (amount.data - given)[launch[is_last]]
    return np.ma.MaskedArray(parts, np.ma.getmaskarray(amount)[launch])


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
    sums = _Sums(analysis, share, key, rows)
    moved, moving_ns = sums.of(found.bytes)
    computed, computing_ns = sums.of(found.flops)
    roofline, bounded_ns = sums.of(found.roofline_ns)
    known = np.ma.MaskedArray(found.flops.data, found.flops.mask | found.roofline_ns.mask)
    bounded_flops, _ = sums.of(known)
    at_roofline, _ = sums.of(np.ma.MaskedArray(found.roofline_ns.data, known.mask))
    saved, _ = sums.of(found.could_save_ns)
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

    def of(self, amount: MaskedInts) -> tuple[MaskedInts, MaskedInts]:
        """Return the sums of the known amounts, and the time of their parts."""
        known = ~np.ma.getmaskarray(amount)[self._launch]
        parts = of_shares(self._analysis, amount).data[self._share]
        total, took_ns = np.zeros(self._rows, np.int64), np.zeros(self._rows, np.int64)
        np.add.at(total, self._key[known], parts[known])
        np.add.at(took_ns, self._key[known], self._took_ns[known])
        nothing = np.bincount(self._key[known], minlength=self._rows) == 0
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
