"""Owns the counters of a device: estimated bandwidth and arithmetic, against its peak."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiler_ext.exporters.perfetto.packets import PacketWriter
from profiler_ext.exporters.perfetto.rates import GB_PER_S, TFLOP_PER_S, Rates
from profiler_ext.exporters.perfetto.tracks import Tracks
from profiler_ext.records import Ints, Launches

_BASE, _DIGITS = 2.0**32, 3


class Counters:
    """Draws what launches achieved by Inductor's estimates; overlapping launches add up."""

    def __init__(
        self, writer: PacketWriter, tracks: Tracks, launches: Launches, rates: Rates
    ) -> None:
        """Take where to draw, and what.

        Args:
            writer: writes the packets.
            tracks: makes the tracks.
            launches: the launches.
            rates: what they achieved.
        """
        self._writer = writer
        self._tracks = tracks
        self._launches = launches
        self._rates = rates

    def draw(self, parent: int, rank: int, rows: Ints) -> None:
        """Draw the counters of a device; one without any estimate is left out.

        Args:
            parent: uuid of the device's group.
            rank: place of the first in the group.
            rows: the device's launches, at least one.
        """
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
        """Return the moments at which the sum of the rates of running launches changes, and it."""
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
    """Return rates as integers and two digits behind, lowest last.

    Sums of floats would not come back to zero; those of integers do.
    """
    digits = []
    for _ in range(_DIGITS):
        digits.append(np.floor(rates).astype(np.int64))
        rates = (rates - digits[-1]) * _BASE
    return digits
