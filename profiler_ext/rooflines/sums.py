"""Sums rooflines over parts of launches: by line, by module, by kernel.

A launch's bytes, operations and times are split over its parts as its time is, in whole numbers
that add up, so a table's rows add up to its total.
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
# Least part of a row's time, as its inverse, that needs a roofline for a bound
_MIN_BOUND_SHARE = 2


@dataclass(frozen=True, slots=True)
class RooflineSums:
    """One row for each key; an unknown value is masked, or ``""``."""

    bytes: MaskedInts  # bytes moved
    flops: MaskedInts  # floating-point operations
    gb_per_s: MaskedFloats  # bytes over the time of the parts with known bytes
    tflop_per_s: MaskedFloats  # operations over the time of the parts with known operations
    # The operations of the parts with a roofline over their time at it
    attainable_tflop_per_s: MaskedFloats
    # Time at the roofline over time taken; masked where parts with a roofline are less than half of
    # the row's time
    peak_fraction: MaskedFloats
    roofline_ns: MaskedInts  # time at the roofline
    could_save_ns: MaskedInts  # time above the reachable one
    bound: Interned  # the ``Bound`` of most of their time; ``""`` if less than half of the row's
    unit: Interned  # the ``Unit`` of most operations, where known; else of most time


def of_shares(analysis: Analysis, amount: MaskedInts) -> MaskedInts:
    """Split an amount of each launch over its shares, as its time is split, exactly."""
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
    """Rooflines of launches, split over the launches' parts."""

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
    """Sums over parts of launches, one row for each key; rows can be summed further.

    Attributes:
        launch_rooflines: the rooflines of the launches.
    """

    launch_rooflines: Rooflines
    took_ns: Ints  # the time of the parts
    # A column each of bytes, operations, time at the roofline, operations and time at it of those
    # with both, and possible savings, over the parts where known
    amounts: Ints
    known_ns: Ints  # the time of these parts
    known: Ints  # their number
    bounds: Floats  # weight of each bound
    units: Floats  # weight of each unit

    def by(self, key: Ints, rows: int) -> PartSums:
        """Sum rows with the same key."""
        # key: the target row of each row; below zero for none
        some = np.flatnonzero(key >= 0)
        columns: tuple[npt.NDArray[Any], ...] = self[1:]
        sums = (sum_by(key[some], each[some], rows) for each in columns)
        return PartSums(self.launch_rooflines, *sums)

    def summed(self) -> RooflineSums:
        """Return the rooflines of the sums."""
        nothing = self.known.T == 0
        moved, computed, roofline, bounded_flops, at_roofline, saved = (
            np.ma.MaskedArray(*each) for each in zip(self.amounts.T, nothing, strict=True)
        )
        moving_ns, computing_ns, bounded_ns, *_ = (
            np.ma.MaskedArray(*each) for each in zip(self.known_ns.T, nothing, strict=True)
        )
        # A sliver of a row's time does not represent it.
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
    selected = (*parts[:3], *both, parts.could_save_ns)
    amounts = [_known(each, shares) for each in selected]
    sums, known_ns, known = (np.stack(each, axis=1) for each in zip(*amounts, strict=True))
    duration_ns = shares.analysis.launches.duration_ns
    weight = np.where(
        launch_rooflines.flops.mask, np.minimum(duration_ns, 1), launch_rooflines.flops.data + 2
    )
    return PartSums(
        launch_rooflines,
        sum_by(shares.key, shares.durations_ns, shares.size),
        sums,
        known_ns,
        known,
        _weighed(shares, launch_rooflines.bound, duration_ns),
        _weighed(shares, launch_rooflines.unit, weight),
    )


def _known(parts: MaskedInts, shares: KeyedShares) -> tuple[Ints, Ints, Ints]:
    """Return the sums of the known amounts of all parts, the time of those parts, their number."""
    some = np.flatnonzero(~np.ma.getmaskarray(parts)[shares.rows])
    key, rows = shares.key[some], shares.size
    amounts = sum_by(key, parts.data[shares.rows[some]], rows)
    took_ns = sum_by(key, shares.durations_ns[some], rows)
    return amounts, took_ns, np.bincount(key, minlength=rows)


def _weighed(shares: KeyedShares, column: Interned, weight: Ints) -> Floats:
    launch = shares.launches
    part = shares.durations_ns / np.maximum(shares.analysis.launches.duration_ns[launch], 1)
    weights = part * weight[launch] + 1e-9
    words = sum_by((shares.key, column.codes[launch]), weights, shares.size, len(column.strings))
    words[:, column.strings.index("")] = 0
    return words


def _most(weights: Floats, strings: tuple[str, ...]) -> Interned:
    """Return the word of most weight in each row, ``""`` without any."""
    return Interned(weights.argmax(axis=1).astype(np.int32), strings)


def _masked_words(words: Interned, has_bound: Rows) -> Interned:
    nothing = words.strings.index("")
    return Interned(np.where(has_bound, words.codes, nothing).astype(np.int32), words.strings)


def _ratio(amount: MaskedInts, by: MaskedInts) -> MaskedFloats:
    ratio: MaskedFloats = amount / np.ma.masked_equal(by, 0)
    return ratio
