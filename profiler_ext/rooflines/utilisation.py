"""Owns the model FLOPs utilisation (MFU) of the profiled steps.

The operations of the model are those of its matrix products, convolutions and attention, forward
and backward: what a checkpoint computes once more is left out, as are the optimizer's and
whatever is computed element by element. Utilisation is the time that these take at the peak of the
unit that did them, over the wall time of the steps. With one unit, that is the operations a second
over its peak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from profiler_ext.records import Analysis, Ints, Phase
from profiler_ext.rooflines.calls import Rows
from profiler_ext.rooflines.peaks import PEAKS, Peak, peak_of
from profiler_ext.rooflines.rooflines import Rooflines, rooflines
from profiler_ext.rooflines.sums import of_shares

_MODEL = (Phase.FORWARD, Phase.BACKWARD)


@dataclass(frozen=True, slots=True)
class Utilisation:
    """How much of what its devices can do a training step does.

    Attributes:
        wall_ns: wall time of the profiled steps, once for each device.
        flops: operations of the model in them.
        by_unit: pairs of unit and the operations that it did, most first.
        known_fraction: the part of the operations whose unit, and its peak, is known.
        counted_fraction: the part of the products' device time whose operations are known; of
            eager work they are known where shapes were recorded.
        peak_ns: the time that the operations of known units take at their peaks.
    """

    wall_ns: int
    flops: int
    by_unit: tuple[tuple[str, int], ...]
    known_fraction: float
    counted_fraction: float
    peak_ns: float

    @property
    def mfu(self) -> float:
        """The part of the wall time that the model's operations take at the peak."""
        return self.peak_ns / self.wall_ns


def utilisation(
    analysis: Analysis, peaks: Mapping[str, Peak] = PEAKS, step: int | None = None
) -> Utilisation | None:
    """Return the model FLOPs utilisation of the profiled steps.

    Args:
        analysis: what attribution found.
        peaks: what devices can do at best, by the words of their names.
        step: one step alone.

    Returns:
        ``None`` where there is no step, no product whose operations and unit are known, or no
        peak of a device for it.
    """
    found = rooflines(analysis, peaks)
    steps = [each for each in analysis.steps if step in (None, each.number)]
    chosen = (
        _of_model(analysis, [each.number for each in steps])
        & found.is_product[analysis.shares.launch]
    )
    flops, launch = of_shares(analysis, found.flops), analysis.shares.launch
    counted = chosen & ~np.ma.getmaskarray(flops)
    peak = _peaks(analysis, found, peaks)[launch]
    known = counted & (peak > 0)
    devices = len(np.unique(analysis.launches.device[launch[chosen]]))
    wall_ns = sum(each.wall_ns for each in steps) * devices
    if not known.any() or not wall_ns or not flops.data[known].sum():
        return None
    took_ns = analysis.shares.duration_ns
    return Utilisation(
        wall_ns=wall_ns,
        flops=int(flops.data[counted].sum()),
        by_unit=_by_unit(found, flops.data, launch, known),
        known_fraction=float(flops.data[known].sum() / flops.data[counted].sum()),
        counted_fraction=float(took_ns[counted].sum() / max(took_ns[chosen].sum(), 1)),
        peak_ns=float((flops.data[known] / peak[known] / 1000).sum()),
    )


def _of_model(analysis: Analysis, steps: list[int]) -> Rows:
    """Which shares are forward or backward work of these steps."""
    launches, shares = analysis.launches, analysis.shares
    of_step = np.isin(launches.step.filled(-1), steps) & ~np.ma.getmaskarray(launches.step)
    of_place = np.array([place.phase in _MODEL for place in analysis.places], np.bool_)
    chosen: Rows = of_step[shares.launch] & of_place[shares.place]
    return chosen


def _peaks(
    analysis: Analysis, found: Rooflines, peaks: Mapping[str, Peak]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the peak of each launch's unit in TFLOP/s, 0 where there is none."""
    column = np.zeros(len(analysis.launches))
    for device in analysis.recording.trace.devices:
        peak = peak_of(device.name, peaks)
        if peak is not None:
            there = analysis.launches.device == device.id
            of_unit = np.array([peak.of(text) or 0.0 for text in found.unit.strings])
            column[there] = of_unit[found.unit.codes[there]]
    return column


def _by_unit(
    found: Rooflines, flops: Ints, launch: Ints, known: Rows
) -> tuple[tuple[str, int], ...]:
    done = np.zeros(len(found.unit.strings), np.int64)
    np.add.at(done, found.unit.codes[launch[known]], flops[known])
    pairs = [(text, int(n)) for text, n in zip(found.unit.strings, done, strict=True) if n]
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))
