"""Owns what slices and counters say of the estimated rates of launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from profiler_ext.exporters.perfetto.packets import Argument
from profiler_ext.records import Analysis, MaskedInts
from profiler_ext.rooflines.peaks import PEAKS, Peak, peak_of
from profiler_ext.rooflines.rooflines import MOST_OF_PEAK, MaskedFloats, rooflines

GB_PER_S, TFLOP_PER_S = "est_gb_per_s", "est_tflop_per_s"
_NOT_CREDIBLE = f"more than {MOST_OF_PEAK} times the peak: not drawn"


class Rates:
    """The estimated rates of launches; a launch without an estimate has none."""

    def __init__(self, analysis: Analysis, peaks: Mapping[str, Peak] = PEAKS) -> None:
        """Estimate them, and keep them as lists: a million rows are read one by one.

        Args:
            analysis: what attribution found.
            peaks: what devices can do at best, by the words of their names.
        """
        estimated = rooflines(analysis, peaks)
        devices = analysis.recording.trace.devices
        self._peaks = {device.id: peak_of(device.name, peaks) for device in devices}
        self._devices: list[int] = analysis.launches.device.tolist()
        self._on_gpu: list[bool] = (~np.ma.getmaskarray(analysis.launches.stream)).tolist()
        self._refused: list[bool] = estimated.refused.tolist()
        self._units = estimated.unit
        self._flops = estimated.flops.filled(0)
        self._bounds = estimated.bound
        self._numbers = _lists(
            {
                "est_bytes": estimated.bytes,
                "est_flops": estimated.flops,
                "roofline_ns": estimated.roofline_ns,
                "could_save_ns": estimated.could_save_ns,
            }
        )
        self._rates = _lists({GB_PER_S: estimated.gb_per_s, TFLOP_PER_S: estimated.tflop_per_s})
        self._percents = _lists(
            {
                "est_percent_of_peak_bandwidth": estimated.bandwidth_fraction * 100,
                "est_percent_of_peak_arithmetic": estimated.arithmetic_fraction * 100,
            }
        )

    def peak(self, row: int) -> Peak | None:
        """Return what a launch's device can do at best, ``None`` where it is not known."""
        return self._peaks.get(self._devices[row]) if self._on_gpu[row] else None

    def main_unit(self, rows: Sequence[int]) -> str | None:
        """Return the unit that did most of some launches' operations, ``None`` without any."""
        done = np.zeros(len(self._units.strings))
        np.add.at(done, self._units.codes[list(rows)], self._flops[list(rows)])
        return self._units.strings[int(done.argmax())] or None if done.any() else None

    def of(self, row: int) -> Mapping[str, float]:
        """Return a launch's rates by ``GB_PER_S`` and ``TFLOP_PER_S``."""
        return _known(self._rates, row)

    def arguments(self, row: int) -> dict[str, Argument | None]:
        """Return what a launch's slice says of its rates."""
        numbers = {**self.of(row), **_known(self._percents, row)}
        arguments: dict[str, Argument | None] = {key: round(n, 1) for key, n in numbers.items()}
        arguments |= {key: int(n) for key, n in _known(self._numbers, row).items()}
        arguments |= {"bound": self._bounds[row] or None, "unit": self._units[row] or None}
        if self._refused[row]:
            arguments["estimate"] = _NOT_CREDIBLE
        return {key: value for key, value in arguments.items() if value is not None}


def _lists(columns: Mapping[str, MaskedFloats | MaskedInts]) -> dict[str, list[float | None]]:
    # An absent value is ``None`` in a list; a column without any value is left out.
    return {key: column.tolist() for key, column in columns.items() if column.count()}


def _known(columns: Mapping[str, list[float | None]], row: int) -> dict[str, float]:
    return {key: value for key, column in columns.items() if (value := column[row]) is not None}
