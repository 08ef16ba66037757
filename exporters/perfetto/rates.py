"""Owns what slices and counters say of the estimated rates of launches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from profiler_ext.exporters.perfetto.own_arguments import NumberArgument, FloatArgument, IntArgument
from profiler_ext.records import Analysis, Interned, Ints
from profiler_ext.rooflines.peaks import PEAKS, Peak, peak_of
from profiler_ext.rooflines.rooflines import MAX_PEAK_FRACTION, MaskedFloats, rooflines

GB_PER_S, TFLOP_PER_S = "est_gb_per_s", "est_tflop_per_s"
_PRODUCT = 2.0**-52  # twice the relative error of a product
_NOT_CREDIBLE = f"more than {MAX_PEAK_FRACTION} times the peak: not drawn"


class Rates:
    """The estimated rates of launches; a launch without an estimate has none."""

    def __init__(self, analysis: Analysis, peaks: Mapping[str, Peak] = PEAKS) -> None:
        """Estimate them.

        Args:
            analysis: what attribution found.
            peaks: what devices can do at best, by the words of their names.
        """
        self._estimated = rooflines(analysis, peaks)
        self._launches = analysis.launches
        devices = analysis.recording.trace.devices
        self._peaks = {device.id: peak_of(device.name, peaks) for device in devices}

    def peak(self, row: int) -> Peak | None:
        """Return what a launch's device can do at best, ``None`` where it is not known."""
        on_gpu = not np.ma.getmaskarray(self._launches.stream[row : row + 1])[0]
        return self._peaks.get(int(self._launches.device[row])) if on_gpu else None

    def main_unit(self, rows: Ints) -> str | None:
        """Return the unit that did most of some launches' operations, ``None`` without any."""
        unit = self._estimated.unit
        done = np.zeros(len(unit.strings))
        np.add.at(done, unit.codes[rows], self._estimated.flops.filled(0)[rows])
        return unit.strings[int(done.argmax())] or None if done.any() else None

    def of(self, rows: Ints) -> dict[str, MaskedFloats]:
        """Return the rates of launches by ``GB_PER_S`` and ``TFLOP_PER_S``."""
        estimated = self._estimated
        return {GB_PER_S: estimated.gb_per_s[rows], TFLOP_PER_S: estimated.tflop_per_s[rows]}

    def arguments(self) -> list[NumberArgument]:
        """Return what the slices of all launches say of their rates."""
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

    def words(self) -> dict[str, Interned]:
        """Return what the slices of all launches say of their rates in words; nothing is ``""``."""
        estimated = self._estimated
        refused = Interned(estimated.refused.astype(np.int32), ("", _NOT_CREDIBLE))
        return {"bound": estimated.bound, "unit": estimated.unit, "estimate": refused}


def rounded(column: MaskedFloats) -> MaskedFloats:
    """Return numbers with one decimal, as Python rounds: the nearest to the binary number."""
    values = column.filled(0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        tenths = values * 10
        rounded_values = np.rint(tenths) / 10
        # That product is rounded itself: Python is asked of what is so near to a middle.
        is_certain = np.abs(tenths - np.floor(tenths) - 0.5) > np.abs(tenths) * _PRODUCT
    for row in np.flatnonzero(~is_certain).tolist():
        rounded_values[row] = round(float(values[row]), 1)
    return np.ma.MaskedArray(rounded_values, np.ma.getmaskarray(column))
