"""Estimated bandwidth and FLOP rates of launches, as arguments and counter tracks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from profiler_ext.exporters.perfetto.annotations import FloatArgument, IntArgument, NumberArgument
from profiler_ext.exporters.perfetto.packets import PacketWriter
from profiler_ext.exporters.perfetto.tracks import Tracks
from profiler_ext.records.analysis import Analysis, Launches
from profiler_ext.records.events import Interned, Ints
from profiler_ext.records.share_sums import sum_by
from profiler_ext.rooflines.peaks import PEAKS, Peak, peak_of
from profiler_ext.rooflines.rooflines import MAX_PEAK_FRACTION, MaskedFloats, rooflines

GB_PER_S, TFLOP_PER_S = "est_gb_per_s", "est_tflop_per_s"
_PRODUCT = 2.0**-52  # twice the relative error of a product
_NOT_CREDIBLE = f"more than {MAX_PEAK_FRACTION} times the peak: not drawn"
_BASE, _DIGITS = 2.0**32, 3


class Rates:
    """The estimated rates of launches, where there is an estimate."""

    def __init__(self, analysis: Analysis, peaks: Mapping[str, Peak] = PEAKS) -> None:
        self._estimated = rooflines(analysis, peaks)
        self._launches = analysis.launches
        devices = analysis.recording.trace.devices
        self._peaks = {device.id: peak_of(device.name, peaks) for device in devices}

    def peak(self, row: int) -> Peak | None:
        """Return the peaks of a launch's device, ``None`` if unknown."""
        on_gpu = not np.ma.getmaskarray(self._launches.stream[row : row + 1])[0]
        return self._peaks.get(int(self._launches.device[row])) if on_gpu else None

    def main_unit(self, rows: Ints) -> str | None:
        """Return the unit with most of the launches' operations, ``None`` without any."""
        unit = self._estimated.unit
        flops = self._estimated.flops.filled(0)[rows].astype(np.float64)
        done = sum_by(unit.codes[rows], flops, len(unit.strings))
        return unit.strings[int(done.argmax())] or None if done.any() else None

    def of(self, rows: Ints) -> dict[str, MaskedFloats]:
        """Return the rates of launches by ``GB_PER_S`` and ``TFLOP_PER_S``."""
        estimated = self._estimated
        return {GB_PER_S: estimated.gb_per_s[rows], TFLOP_PER_S: estimated.tflop_per_s[rows]}

    def arguments(self) -> list[NumberArgument]:
        """Return the numeric arguments of all launches."""
        estimated = self._estimated
        reals = {
            GB_PER_S: estimated.gb_per_s,
            TFLOP_PER_S: estimated.tflop_per_s,
            "est_percent_of_peak_bandwidth": estimated.bandwidth_fraction * 100,
            "est_percent_of_peak_arithmetic": estimated.arithmetic_fraction * 100,
        }
        whole = {
            "est_bytes": estimated.bytes,
            "est_flops": estimated.flops,
            "roofline_ns": estimated.roofline_ns,
            "could_save_ns": estimated.could_save_ns,
        }
        return [
            *(FloatArgument(name, rounded(column)) for name, column in reals.items()),
            *(IntArgument(name, column) for name, column in whole.items()),
        ]

    def texts(self) -> dict[str, Interned]:
        """Return the text arguments of all launches; ``""`` for none."""
        estimated = self._estimated
        refused = Interned(estimated.refused.astype(np.int32), ("", _NOT_CREDIBLE))
        return {"bound": estimated.bound, "unit": estimated.unit, "estimate": refused}


def rounded(column: MaskedFloats) -> MaskedFloats:
    """Return numbers with one decimal, as Python rounds: to the nearest binary number."""
    values = column.filled(0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        tenths = values * 10
        rounded_values = np.rint(tenths) / 10
        # That product is rounded itself: Python is asked of what is so near to a middle.
        is_certain = np.abs(tenths - np.floor(tenths) - 0.5) > np.abs(tenths) * _PRODUCT
    for row in np.flatnonzero(~is_certain).tolist():
        rounded_values[row] = round(float(values[row]), 1)
    return np.ma.MaskedArray(rounded_values, np.ma.getmaskarray(column))


class Counters:
    """Draws achieved rates by Inductor's estimates; overlapping launches add up."""

    def __init__(
        self, writer: PacketWriter, tracks: Tracks, launches: Launches, rates: Rates
    ) -> None:
        self._writer = writer
        self._tracks = tracks
        self._launches = launches
        self._rates = rates

    def draw(self, parent: int, rank: int, rows: Ints) -> None:
        """Draw the counters of a device, where there is an estimate."""
        peak = self._rates.peak(int(rows[0]))
        bandwidth = None if peak is None else peak.gb_per_s
        unit = self._rates.main_unit(rows)
        arithmetic = None if peak is None else peak.of(unit)
        # Few letters of a track's name are seen, so the unit is called as in the reports.
        words = f"{unit.removesuffix('_tensor')} " if unit and arithmetic else ""
        self._draw_one(parent, rank, rows, GB_PER_S, "GB/s", bandwidth)
        self._draw_one(parent, rank + 1, rows, TFLOP_PER_S, "TFLOP/s", arithmetic, words)

    def _draw_one(
        self,
        parent: int,
        rank: int,
        rows: Ints,
        key: str,
        unit: str,
        peak: float | None,
        peak_of: str = "",
    ) -> None:
        times_ns, values = self._values(rows, key)
        if not len(values):
            return
        against = "" if peak is None else f" ({peak_of}peak {peak:g})"
        track = self._tracks.counter(f"est. {unit}{against}", unit, parent, rank)
        self._writer.counts(track, times_ns, values)

    def _values(self, rows: Ints, key: str) -> tuple[Ints, npt.NDArray[np.float64]]:
        """Return the times at which the summed rate changes, and its values."""
        rates = self._rates.of(rows)[key].filled(0.0)
        some = np.flatnonzero(rates)
        start_ns = self._launches.start_ns[rows][some]
        end_ns = start_ns + self._launches.duration_ns[rows][some]
        times_ns = np.concatenate((start_ns, end_ns))
        order = np.argsort(times_ns, kind="stable")
        ordered_ns = times_ns[order]
        last = np.flatnonzero(np.append(ordered_ns[1:] != ordered_ns[:-1], True)[: len(order)])
        changes = (np.concatenate((digit, -digit))[order] for digit in _digits(rates[some]))
        values = np.zeros(len(last))
        for number, each in enumerate(changes):
            values += np.cumsum(each)[last] * _BASE**-number
        return ordered_ns[last], values


def _digits(rates: npt.NDArray[np.float64]) -> list[Ints]:
    """Return rates as integers and two digits, lowest last: their sums return to zero exactly."""
    digits = []
    for _ in range(_DIGITS):
        digits.append(np.floor(rates).astype(np.int64))
        rates = (rates - digits[-1]) * _BASE
    return digits
