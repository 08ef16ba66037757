"""Owns the counters of a device: estimated bandwidth and arithmetic, against its peak."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from profiler_ext.exporters.perfetto.packets import PacketWriter
from profiler_ext.exporters.perfetto.rates import GB_PER_S, TFLOP_PER_S, Rates
from profiler_ext.exporters.perfetto.tracks import Tracks
from profiler_ext.records import Launches

_FRACTION_BITS = 64


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

    def draw(self, parent: int, rank: int, rows: Sequence[int]) -> None:
        """Draw the counters of a device; one without any estimate is left out.

        Args:
            parent: uuid of the device's group.
            rank: place of the first in the group.
            rows: the device's launches, at least one.
        """
        peak = self._rates.peak(rows[0])
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
        rows: Sequence[int],
        key: str,
        unit: str,
        peak: float | None,
        peak_of: str = "",
    ) -> None:
        values = list(self._values(rows, key))
        if not values:
            return
        against = "" if peak is None else f" ({peak_of}peak {peak:g})"
        track = self._tracks.counter(f"est. {unit}{against}", unit, parent, rank)
        for time_ns, value in values:
            self._writer.count(track, time_ns, value)

    def _values(self, rows: Sequence[int], key: str) -> Iterator[tuple[int, float]]:
        changes: dict[int, list[float]] = defaultdict(list)
        for row in rows:
            rate = self._rates.of(row).get(key)
            if rate:
                start_ns = int(self._launches.start_ns[row])
                changes[start_ns].append(rate)
                changes[start_ns + int(self._launches.duration_ns[row])].append(-rate)
        running = 0
        for time_ns in sorted(changes):
            # Sums of floats would not come back to zero; those of integers do.
            running += sum(int(math.ldexp(change, _FRACTION_BITS)) for change in changes[time_ns])
            yield time_ns, running / 2**_FRACTION_BITS
