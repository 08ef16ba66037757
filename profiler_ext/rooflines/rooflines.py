"""The roofline of each launch: how fast it was, how fast it could be, and what bounds it.

A call that moves ``B`` bytes and does ``F`` operations takes at least ``max(B / bandwidth, F / peak
of its unit)``: its roofline. A good kernel reaches ``REACHABLE`` of the maker's peaks, and none
ends in less than ``LATENCY_NS``. So a call could take ``max(LATENCY_NS, roofline / REACHABLE)``;
the rest is ``could_save_ns``. It is zero for short launches (up to ``SHORT`` latencies, with little
to do), and where the device had nothing to run afterwards, since the step would be no shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiler_ext.kineto import classify
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Events, Interned, Ints, MaskedInts, flag_rows
from profiler_ext.rooflines.compute_units import Bound
from profiler_ext.rooflines.estimates import Estimates, Rows, estimate
from profiler_ext.rooflines.peaks import PEAKS, Peak, peak_of

MaskedFloats = np.ma.MaskedArray[Any, np.dtype[np.float64]]
# A cache serves up to about twice the memory's bandwidth; beyond this the estimate is wrong.
MAX_PEAK_FRACTION = 2
REACHABLE_FRACTION = 0.8
LATENCY_NS = 5_000
SHORT_FACTOR = 4
_BOUNDS = ("", *Bound)


def drained(analysis: Analysis) -> Rows:
    """Flag launches whose end the CPU did not wait for, and after which the device was idle."""
    # The CPU began to enqueue the next launch after this one had ended.
    launches = analysis.launches
    end_ns = launches.start_ns + launches.duration_ns
    enqueued_ns = _enqueued(analysis)
    is_drained = np.zeros(len(end_ns), np.bool_)
    on_gpu = ~np.ma.getmaskarray(launches.stream)
    for device in np.unique(launches.device[on_gpu]):
        rows = np.flatnonzero(on_gpu & (launches.device == device))
        rows = rows[np.lexsort((rows, launches.start_ns[rows]))]
        until = np.maximum.accumulate(end_ns[rows])
        is_late = enqueued_ns[rows[1:]] > until[:-1]
        is_drained[rows[:-1][is_late & (end_ns[rows[:-1]] == until[:-1])]] = True
    return is_drained & ~_awaited(analysis.recording.trace.events, end_ns)


def _enqueued(analysis: Analysis) -> Ints:
    """Return when the CPU began to enqueue each launch; 0 where unknown."""
    events = analysis.recording.trace.events
    rows = np.flatnonzero(
        flag_rows(events.category, classify.is_runtime_call)
        & ~np.ma.getmaskarray(events.correlation)
    )
    number, first, count = np.unique(
        events.correlation.data[rows], return_index=True, return_counts=True
    )
    correlations = analysis.launches.correlation
    if not len(number):
        return np.zeros(len(correlations), np.int64)
    at = np.minimum(np.searchsorted(number, correlations.data), len(number) - 1)
    known = (number[at] == correlations.data) & (count[at] == 1) & ~np.ma.getmaskarray(correlations)
    return np.where(known, events.start_ns[rows[first[at]]], 0)


def _awaited(events: Events, end_ns: Ints) -> Rows:
    """Flag launches whose end lies in a call that waits for the device."""
    is_call = flag_rows(events.category, classify.is_runtime_call)
    rows = np.flatnonzero(is_call & flag_rows(events.name, classify.is_device_wait))
    if not len(rows):
        return np.zeros(len(end_ns), np.bool_)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    until = np.maximum.accumulate(events.end_of(rows))
    begun = np.searchsorted(events.start_ns[rows], end_ns, side="right") - 1
    return (begun >= 0) & (until[np.maximum(begun, 0)] >= end_ns)


@dataclass(frozen=True, slots=True)
class Rooflines:
    """One row for each launch; an unknown value is masked, or ``""``.

    Bytes, operations and times of a call of several launches are shared among them by time.
    """

    bytes: MaskedInts  # bytes moved
    flops: MaskedInts  # floating-point operations
    is_product: Rows  # the operations are those of products, convolutions or attention
    unit: Interned  # the ``Unit`` that computed
    unit_evidence: Interned
    gb_per_s: MaskedFloats  # 10^9 bytes a second
    tflop_per_s: MaskedFloats  # 10^12 operations a second
    attainable_tflop_per_s: MaskedFloats  # the same at its roofline
    bandwidth_fraction: MaskedFloats  # part of the device's peak bandwidth
    arithmetic_fraction: MaskedFloats  # part of the peak of the unit
    roofline_ns: MaskedInts  # time at its roofline
    bound: Interned
    could_save_ns: MaskedInts  # time above the reachable one
    refused: Rows  # the estimate is not credible: more than ``MAX_PEAK_FRACTION`` times a peak

    @property
    def peak_fraction(self) -> MaskedFloats:
        """The part of its time that a launch takes at its roofline: the larger of the two."""
        parts = (self.bandwidth_fraction, self.arithmetic_fraction)
        largest: MaskedFloats = np.ma.stack(parts).max(axis=0)
        unknown = np.ma.getmaskarray(largest) | np.ma.getmaskarray(self.roofline_ns)
        return np.ma.MaskedArray(largest.data, unknown)


def rooflines(analysis: Analysis, peaks: Mapping[str, Peak] = PEAKS) -> Rooflines:
    """Return the rooflines of all launches, computed once.

    There is one row for each launch. A launch has no roofline where its device has no peak, its
    work or unit is unknown, or its estimate is not credible. ``peaks`` are by the words of devices'
    names.
    """
    best = tuple((name, peak.gb_per_s, *peak.tflop_per_s.items()) for name, peak in peaks.items())
    return analysis.derived.once(("rooflines", best), lambda: _rooflines(analysis, peaks))


def _rooflines(analysis: Analysis, peaks: Mapping[str, Peak]) -> Rooflines:
    estimated, duration_ns = estimate(analysis), analysis.launches.duration_ns
    took_ns = estimated.calls.total(duration_ns)
    rates = _per(estimated.bytes, took_ns), _per(estimated.flops, took_ns * 1000)
    best = _peak_columns(analysis, estimated, peaks)
    fractions = [_per(rate, peak) for rate, peak in zip(rates, best, strict=True)]
    refused = np.logical_or(*(np.ma.filled(f > MAX_PEAK_FRACTION, False) for f in fractions))
    call_roofline_ns = _roofline(estimated, fractions, took_ns, refused)
    is_short, is_drained = _is_short(estimated, call_roofline_ns, took_ns), drained(analysis)
    reachable = np.ceil(call_roofline_ns.data / REACHABLE_FRACTION).astype(np.int64)
    could_take_ns = np.maximum(_latency_ns(estimated), reachable)
    saved = np.maximum(took_ns - could_take_ns, 0)
    could_save = estimated.calls.share(
        np.ma.MaskedArray(saved, np.ma.getmaskarray(call_roofline_ns)), duration_ns
    )
    could_save[(is_short | is_drained) & ~np.ma.getmaskarray(call_roofline_ns)] = 0
    return Rooflines(
        bytes=_without(estimated.calls.share(estimated.bytes, duration_ns), refused),
        flops=_without(estimated.calls.share(estimated.flops, duration_ns), refused),
        is_product=estimated.is_product,
        unit=estimated.units.unit,
        unit_evidence=estimated.units.evidence,
        gb_per_s=_without(rates[0], refused),
        tflop_per_s=_without(rates[1], refused),
        attainable_tflop_per_s=_per(estimated.flops, call_roofline_ns * 1000),
        bandwidth_fraction=_without(fractions[0], refused),
        arithmetic_fraction=_without(fractions[1], refused),
        roofline_ns=estimated.calls.share(call_roofline_ns, duration_ns),
        bound=_bound(call_roofline_ns, fractions, is_short, is_drained),
        could_save_ns=could_save,
        refused=refused,
    )


def _roofline(
    estimated: Estimates, fractions: list[MaskedFloats], took_ns: Ints, refused: Rows
) -> MaskedInts:
    """Return each launch's time at its roofline."""
    memory, arithmetic = fractions
    unknown = np.ma.getmaskarray(memory) | ~estimated.is_complete | refused
    unknown |= estimated.is_product & np.ma.getmaskarray(arithmetic)
    part = np.maximum(memory.filled(0), arithmetic.filled(0))
    call_roofline_ns = np.ceil(part * took_ns).astype(np.int64)
    return np.ma.MaskedArray(call_roofline_ns, unknown | (call_roofline_ns == 0))


def _is_short(estimated: Estimates, roofline_ns: MaskedInts, took_ns: Ints) -> Rows:
    """Flag launches whose fixed cost is most of what their call could take, and took."""
    latency_ns = _latency_ns(estimated)
    return (roofline_ns.data < REACHABLE_FRACTION * latency_ns) & (
        took_ns < SHORT_FACTOR * latency_ns
    )


def _latency_ns(estimated: Estimates) -> Ints:
    return LATENCY_NS * estimated.calls.total(np.ones(len(estimated.bytes), np.int64))


def _bound(
    roofline_ns: MaskedInts, fractions: list[MaskedFloats], is_short: Rows, is_drained: Rows
) -> Interned:
    memory, arithmetic = (fraction.filled(0) for fraction in fractions)
    code = np.where(arithmetic > memory, _code(Bound.COMPUTE), _code(Bound.MEMORY))
    code = np.where(is_short, _code(Bound.LATENCY), code)
    code = np.where(is_drained, _code(Bound.LAUNCH), code)
    code = np.where(np.ma.getmaskarray(roofline_ns), 0, code)
    return Interned(code.astype(np.int32), tuple(map(str, _BOUNDS)))


def _code(bound: Bound) -> int:
    return _BOUNDS.index(bound)


def _peak_columns(
    analysis: Analysis, estimated: Estimates, peaks: Mapping[str, Peak]
) -> tuple[MaskedFloats, MaskedFloats]:
    named = {device.id: device.name for device in analysis.recording.trace.devices}
    known = {number: peak for number, name in named.items() if (peak := peak_of(name, peaks))}
    # The trace of a CPU's launches may name GPUs too; those are not what ran them.
    on_gpu = ~np.ma.getmaskarray(analysis.launches.stream)
    bandwidth, arithmetic = np.zeros(len(on_gpu)), np.zeros(len(on_gpu))
    unit = estimated.units.unit
    for number, peak in known.items():
        there = on_gpu & (analysis.launches.device == number)
        bandwidth[there] = peak.gb_per_s
        of_unit = np.array([peak.of(text) or 0.0 for text in unit.strings])
        arithmetic[there] = of_unit[unit.codes[there]]
    return np.ma.masked_equal(bandwidth, 0), np.ma.masked_equal(arithmetic, 0)


def _per(amount: Any, divisor: Any) -> MaskedFloats:
    by = np.ma.getdata(divisor)
    nothing = np.ma.getmaskarray(amount) | np.ma.getmaskarray(divisor) | (by == 0)
    return np.ma.MaskedArray(np.ma.getdata(amount) / np.where(nothing, 1, by), nothing)


def _without(column: Any, refused: Rows) -> Any:
    return np.ma.MaskedArray(np.ma.getdata(column), np.ma.getmaskarray(column) | refused)
