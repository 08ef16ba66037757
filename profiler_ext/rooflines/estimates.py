"""Owns what launches achieved by estimate: bytes, operations, their rates, the part of the peak.

Bytes and operations are estimates of a call site, made when it was compiled. They count what
the kernel asks for, so what a cache serves makes the bandwidth higher than the memory's.

A call of a library may run several kernels; its estimate belongs to all of them. They share it
in proportion to their time, so that the estimates of the launches of a call add up to the
call's, and each launch has the rate of the call.

A collective has no estimate: it waits for other ranks, and moves between devices what it moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from profiler_ext.records import Analysis, CallSite, Ints, LaunchKind, MaskedInts, SiteKind
from profiler_ext.rooflines.peaks import PEAKS, Peak, peak_of

Rows = npt.NDArray[np.bool_]
MaskedFloats = np.ma.MaskedArray[Any, np.dtype[np.float64]]
# A cache serves up to about twice the memory's bandwidth; beyond this the estimate is wrong.
MOST_OF_PEAK = 2


@dataclass(frozen=True, slots=True)
class Estimates:
    """One row for each launch; a value that is not known is masked.

    Attributes:
        bytes: bytes moved.
        flops: floating-point operations.
        gb_per_s: 10^9 bytes a second.
        tflop_per_s: 10^12 floating-point operations a second.
        bandwidth_fraction: part of the device's peak bandwidth.
        arithmetic_fraction: part of the device's peak arithmetic.
        refused: the estimate is not credible: it was more than ``MOST_OF_PEAK`` times a peak.
    """

    bytes: MaskedInts
    flops: MaskedInts
    gb_per_s: MaskedFloats
    tflop_per_s: MaskedFloats
    bandwidth_fraction: MaskedFloats
    arithmetic_fraction: MaskedFloats
    refused: Rows

    @property
    def peak_fraction(self) -> MaskedFloats:
        """The larger part of the two peaks: how near a launch is to what bounds it."""
        parts = (self.bandwidth_fraction, self.arithmetic_fraction)
        largest: MaskedFloats = np.ma.stack(parts).max(axis=0)
        return largest


def estimate(analysis: Analysis, peaks: Mapping[str, Peak] = PEAKS) -> Estimates:
    """Return the estimates of all launches.

    Args:
        analysis: what attribution found.
        peaks: what devices can do at best, by the words of their names.

    Returns:
        One row for each launch. A launch outside call sites, without a number in its site (a
        formula of dynamic sizes), or with an estimate that is not credible has none.
    """
    sites = _sites(analysis)
    calls = _calls(analysis, sites.is_library)
    took_ns = calls.total(analysis.launches.duration_ns)
    rates = _per(sites.bytes, took_ns), _per(sites.flops, took_ns * 1000)
    best = _peak_columns(analysis, peaks)
    fractions = [_per(rate, peak) for rate, peak in zip(rates, best, strict=True)]
    refused = np.logical_or(*(np.ma.filled(f > MOST_OF_PEAK, False) for f in fractions))
    return Estimates(
        bytes=_without(calls.share(sites.bytes, analysis.launches.duration_ns), refused),
        flops=_without(calls.share(sites.flops, analysis.launches.duration_ns), refused),
        gb_per_s=_without(rates[0], refused),
        tflop_per_s=_without(rates[1], refused),
        bandwidth_fraction=_without(fractions[0], refused),
        arithmetic_fraction=_without(fractions[1], refused),
        refused=refused,
    )


@dataclass(frozen=True, slots=True)
class _Calls:
    """Which launches belong to one call of a call site.

    Attributes:
        number: the call of each launch.
        last: one launch of each call, to which rounding goes.
    """

    number: Ints
    last: Ints

    def total(self, values: Ints) -> Ints:
        """Return the sum over its call for each launch."""
        sums = np.zeros(len(self.last), np.int64)
        np.add.at(sums, self.number, values)
        return sums[self.number]

    def share(self, amount: MaskedInts, duration_ns: Ints) -> MaskedInts:
        """Share a call's amount among its launches by time; the parts add up to it."""
        whole = amount.filled(0)
        took_ns = np.maximum(self.total(duration_ns), 1)
        parts = np.floor(whole * (duration_ns / took_ns)).astype(np.int64)
        parts[self.last] += (whole - self.total(parts))[self.last]
        return np.ma.MaskedArray(parts, np.ma.getmaskarray(amount))


def _calls(analysis: Analysis, is_library: Rows) -> _Calls:
    """Tell calls apart: launches of a library's site that follow each other on a stream.

    A generated kernel is a call by itself, as is a launch outside call sites.
    """
    launches = analysis.launches
    stream = launches.stream.filled(-1)
    order = np.lexsort((launches.start_ns, stream, launches.device, ~is_library))
    same = (launches.device, stream, launches.graph.data, launches.call_site.data)
    key = np.column_stack(same)[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (key[1:] != key[:-1]).any(axis=1) | ~is_library[order][1:]
    begins |= _comes_again(analysis, order, begins)
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(begins) - 1
    return _Calls(number, order[np.append(begins, True)[1:]])


def _comes_again(analysis: Analysis, order: Ints, begins: Rows) -> Rows:
    """Whether a launch repeats the first of its run: the site is called again."""
    launches, events = analysis.launches, analysis.recording.trace.events
    first = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
    op = launches.op_event.filled(-1)
    called = np.where(op < 0, -1, np.append(events.name.codes, -1)[op])
    kernel = launches.name.codes
    again = (op[order] != op[first]) & (called[order] == called[first])
    repeated: Rows = again & (kernel[order] == kernel[first])
    return repeated


@dataclass(frozen=True, slots=True)
class _Sites:
    """What the call sites of launches say: bytes, operations, whether a library is called."""

    bytes: MaskedInts
    flops: MaskedInts
    is_library: Rows


def _sites(analysis: Analysis) -> _Sites:
    launches = analysis.launches
    known = ~(np.ma.getmaskarray(launches.graph) | np.ma.getmaskarray(launches.call_site))
    known &= ~launches.kind.where(LaunchKind.COMMUNICATION)
    pairs = np.column_stack((launches.graph.data[known], launches.call_site.data[known]))
    distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
    sites = [_site(analysis, int(graph), int(ordinal)) for graph, ordinal in distinct]
    of_launch = np.full(len(known), len(sites), np.int64)
    of_launch[known] = inverse.ravel()
    every = [*sites, None]
    is_library = [site is not None and site.kind is SiteKind.EXTERN for site in every]
    return _Sites(
        bytes=_numbers([None if site is None else site.bytes_moved for site in every])[of_launch],
        flops=_numbers([None if site is None else site.flops for site in every])[of_launch],
        is_library=np.array(is_library)[of_launch],
    )


def _site(analysis: Analysis, graph: int, ordinal: int) -> CallSite | None:
    sites = analysis.recording.graphs[graph].call_sites
    return sites[ordinal] if ordinal < len(sites) else None


def _numbers(expressions: Sequence[str | None]) -> MaskedInts:
    # With dynamic shapes an estimate is a formula of sizes that the trace does not hold.
    known = [text is not None and text.isdecimal() for text in expressions]
    values = [int(text or 0) if good else 0 for text, good in zip(expressions, known, strict=True)]
    return np.ma.MaskedArray(np.array(values, np.int64), ~np.array(known, np.bool_))


def _peak_columns(
    analysis: Analysis, peaks: Mapping[str, Peak]
) -> tuple[MaskedFloats, MaskedFloats]:
    named = {device.id: device.name for device in analysis.recording.trace.devices}
    known = {number: peak for number, name in named.items() if (peak := peak_of(name, peaks))}
    # The trace of a CPU's launches may name GPUs too; those are not what ran them.
    on_gpu = ~np.ma.getmaskarray(analysis.launches.stream)
    bandwidth, arithmetic = np.zeros(len(on_gpu)), np.zeros(len(on_gpu))
    for number, peak in known.items():
        there = on_gpu & (analysis.launches.device == number)
        bandwidth[there], arithmetic[there] = peak.gb_per_s, peak.tflop_per_s
    return np.ma.masked_equal(bandwidth, 0), np.ma.masked_equal(arithmetic, 0)


def _per(amount: MaskedInts | MaskedFloats, divisor: Ints | MaskedFloats) -> MaskedFloats:
    by = np.ma.getdata(divisor)
    nothing = np.ma.getmaskarray(amount) | np.ma.getmaskarray(divisor) | (by == 0)
    return np.ma.MaskedArray(np.ma.getdata(amount) / np.where(nothing, 1, by), nothing)


def _without(column: Any, refused: Rows) -> Any:
    return np.ma.MaskedArray(np.ma.getdata(column), np.ma.getmaskarray(column) | refused)
