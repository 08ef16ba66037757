"""The sums of rooflines over parts of launches: by line, by module, by kernel.

A launch's bytes, operations and times are split over its parts as its time is, in whole numbers
that add up to the launch; so what is said of the rows of a table adds up to what is said of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Interned, Ints, MaskedInts
from profiler_ext.records.share_sums import KeyedShares, sum_by
from profiler_ext.rooflines.estimates import Rows
from profiler_ext.rooflines.rooflines import MaskedFloats, Rooflines

Floats = npt.NDArray[np.float64]
_MIN_BOUND_SHARE = 2
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

    Returns:
        One number for each row of ``analysis.shares``; those of a launch add up to its own.
    """
    shares, duration_ns = analysis.shares, analysis.launches.duration_ns
    launch = shares.launch
    part = shares.duration_ns / np.maximum(duration_ns[launch], 1)
    parts = np.floor(amount.data[launch] * part).astype(np.int64)
    firsts = np.flatnonzero(np.append(True, launch[1:] != launch[:-1])[: len(launch)])
    split_sum = np.add.reduceat(parts, firsts) if len(firsts) else parts
    lasts = np.append(firsts[1:], len(launch))[: len(firsts)] - 1
    parts[lasts] += amount.data[launch[lasts]] - split_sum
    return np.ma.MaskedArray(parts, np.ma.getmaskarray(amount)[launch])


class _Parts(NamedTuple):
    """What rooflines say of launches, split over the parts of these."""

    bytes: MaskedInts
    flops: MaskedInts
    roofline_ns: MaskedInts
    could_save_ns: MaskedInts


def _parts_of(analysis: Analysis, launch_rooflines: Rooflines) -> _Parts:
    def split() -> tuple[Rooflines, _Parts]:
        amounts = (
            launch_rooflines.bytes,
            launch_rooflines.flops,
            launch_rooflines.roofline_ns,
            launch_rooflines.could_save_ns,
        )
        return launch_rooflines, _Parts(*(of_shares(analysis, amount) for amount in amounts))

    # What is kept with its rooflines has them to itself: no others get their number.
    return analysis.derived.once(("parts of rooflines", id(launch_rooflines)), split)[1]


class PartSums(NamedTuple):
    """What parts of launches add up to, one row for each key; rows can be added up further.

    Attributes:
        found: the rooflines of the launches.
        took_ns: the time of the parts.
        amounts: bytes, operations, time at the roofline, operations and time at it of those of
            which both are known, and what could be saved: a column each, of the parts that tell it.
        known_ns: the time of these parts.
        known: their number.
        bounds: what speaks for each bound.
        units: what speaks for each unit.
    """

    launch_rooflines: Rooflines
    took_ns: Ints
    amounts: Ints
    known_ns: Ints
    known: Ints
    bounds: Floats
    units: Floats

    def by(self, key: Ints, rows: int) -> PartSums:
        """Return the sums of rows that count for the same.

        Args:
            key: the row that each of these counts for; below zero for none.
        """
        some = np.flatnonzero(key >= 0)
        columns: tuple[npt.NDArray[Any], ...] = self[1:]
        sums = (sum_by(key[some], each[some], rows) for each in columns)
        return PartSums(self.launch_rooflines, *sums)

    def told(self) -> RooflineSums:
        """Return what the sums say of rooflines."""
        nothing = self.known.T == 0
        moved, computed, roofline, bounded_flops, at_roofline, saved = (
            np.ma.MaskedArray(*each) for each in zip(self.amounts.T, nothing, strict=True)
        )
        moving_ns, computing_ns, bounded_ns, *_ = (
            np.ma.MaskedArray(*each) for each in zip(self.known_ns.T, nothing, strict=True)
        )
        # What is known of a sliver says nothing of the row.
        has_bound = _MIN_BOUND_SHARE * bounded_ns.filled(0) >= self.took_ns
        return RooflineSums(
            bytes=moved,
            flops=computed,
            gb_per_s=_ratio(moved, moving_ns),
            tflop_per_s=_ratio(computed, computing_ns * 1000),
            attainable_tflop_per_s=_ratio(bounded_flops, at_roofline * 1000),
            peak_fraction=_ratio(roofline, np.ma.masked_where(~has_bound, bounded_ns)),
            roofline_ns=roofline,
            could_save_ns=saved,
            bound=_masked_words(_most(self.bounds, self.launch_rooflines.bound.strings), has_bound),
            unit=_most(self.units, self.launch_rooflines.unit.strings),
        )


def part_sums(shares: KeyedShares, launch_rooflines: Rooflines) -> PartSums:
    """Return the sums of some parts of launches."""
    parts = _parts_of(shares.analysis, launch_rooflines)
    is_unknown = parts.flops.mask | parts.roofline_ns.mask
    both = (np.ma.MaskedArray(each.data, is_unknown) for each in (parts.flops, parts.roofline_ns))
    told = (*parts[:3], *both, parts.could_save_ns)
    amounts = [_known(each, shares) for each in told]
    sums, known_ns, known = (np.stack(each, axis=1) for each in zip(*amounts, strict=True))
    duration_ns = shares.analysis.launches.duration_ns
    return PartSums(
        launch_rooflines,
        sum_by(shares.key, shares.durations_ns, shares.size),
        sums,
        known_ns,
        known,
        _weighed(shares, launch_rooflines.bound, duration_ns),
        _weighed(shares, launch_rooflines.unit, _weight(launch_rooflines, duration_ns)),
    )


def _known(parts: MaskedInts, shares: KeyedShares) -> tuple[Ints, Ints, Ints]:
    """Return the sums of the known amounts of all parts, the time of those parts, their number."""
    some = np.flatnonzero(~np.ma.getmaskarray(parts)[shares.rows])
    key, rows = shares.key[some], shares.size
    amounts = sum_by(key, parts.data[shares.rows[some]], rows)
    took_ns = sum_by(key, shares.durations_ns[some], rows)
    return amounts, took_ns, np.bincount(key, minlength=rows)


def _weighed(shares: KeyedShares, column: Interned, weight: Ints) -> Floats:
    """Return what each word weighs among the parts of each key; no word weighs nothing."""
    launch = shares.launches
    part = shares.durations_ns / np.maximum(shares.analysis.launches.duration_ns[launch], 1)
    weights = part * weight[launch] + 1e-9
    words = sum_by((shares.key, column.codes[launch]), weights, shares.size, len(column.strings))
    words[:, column.strings.index("")] = 0
    return words


def _most(weights: Floats, strings: tuple[str, ...]) -> Interned:
    """Return the word that weighs most in each row, ``""`` where none does."""
    return Interned(weights.argmax(axis=1).astype(np.int32), strings)


def _masked_words(words: Interned, has_bound: Rows) -> Interned:
    nothing = words.strings.index("")
    return Interned(np.where(has_bound, words.codes, nothing).astype(np.int32), words.strings)


def _weight(launch_rooflines: Rooflines, duration_ns: Ints) -> Ints:
    """Weigh units by operations; those whose operations are not known, by time, come after."""
    return np.where(
        launch_rooflines.flops.mask, np.minimum(duration_ns, 1), launch_rooflines.flops.data + 2
    )


def _ratio(amount: MaskedInts, by: MaskedInts) -> MaskedFloats:
    ratio: MaskedFloats = amount / np.ma.masked_equal(by, 0)
    return ratio
