"""The model FLOPs utilisation (MFU) of the profiled steps.

The model's operations are those of its matrix products, convolutions and attention, forward and
backward, without recomputation, optimizer and pointwise work. Utilisation is their time at the peak
of their unit, over the wall time of the steps. Where the CPU runs ahead, so that a device works
longer on a step than the CPU, the device's time counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiler_ext.records import events, share_sums, vocabulary
from profiler_ext.records.analysis import Analysis
from profiler_ext.rooflines.peaks import PEAKS, Peak, peak_of
from profiler_ext.rooflines.rooflines import Rooflines, rooflines
from profiler_ext.rooflines.sums import of_shares

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
_MODEL = (vocabulary.Phase.FORWARD, vocabulary.Phase.BACKWARD)


@dataclass(frozen=True, slots=True)
class Utilisation:
    """The utilisation of devices in training steps."""

    wall_ns: int  # wall time of the profiled steps, summed over devices
    steps: int  # number of steps, summed over devices
    flops: int  # operations of the model in them
    by_unit: tuple[tuple[str, int], ...]  # pairs of unit and its operations, most first
    known_fraction: float  # fraction of the operations with a known unit and peak
    # Fraction of the products' device time with known operations; for eager work this needs
    # recorded shapes
    counted_fraction: float
    peak_ns: float  # time of the operations of known units at their peaks

    @property
    def mfu(self) -> float:
        """The part of the steps that the model's operations take at the peak."""
        return self.peak_ns / self.wall_ns

    def mfu_of(self, step_ns: int) -> float:
        """Return the same for another step time."""
        return self.peak_ns / (self.steps * step_ns)


def utilisation(
    analysis: Analysis, peaks: Mapping[str, Peak] = PEAKS, step: int | None = None
) -> Utilisation | None:
    """Return the model FLOPs utilisation of the profiled steps.

    ``None`` without a step, a product of known operations and unit, or a peak for it. ``peaks`` are
    by the words of devices' names.
    """
    walls = walls_ns(analysis)
    numbers = [number for number in walls if step in (None, number)]
    products = _products(analysis, peaks)
    chosen = products[np.isin(products.step, numbers)]
    return _utilisation(chosen, [walls[number] for number in numbers])


def utilisation_by_step(
    analysis: Analysis, steps: Sequence[int], peaks: Mapping[str, Peak] = PEAKS
) -> list[Utilisation | None]:
    """Return the model FLOPs utilisation of some steps, each alone."""
    walls, products = walls_ns(analysis), _products(analysis, peaks)
    products = products[np.argsort(products.step, kind="stable")]
    first = np.searchsorted(products.step, steps, side="left")
    last = np.searchsorted(products.step, steps, side="right")
    return [
        _utilisation(products[begin:end], [walls[step]]) if begin < end else None
        for step, begin, end in zip(steps, first.tolist(), last.tolist(), strict=True)
    ]


def walls_ns(analysis: Analysis) -> dict[int, int]:
    """Return the wall time of the steps by their numbers; of several of one number the sum."""
    walls: dict[int, int] = {}
    for each in analysis.steps:
        walls[each.number] = walls.get(each.number, 0) + each.wall_ns
    return walls


@dataclass(frozen=True, slots=True)
class _Products:
    """One row for each share of a product, forward or backward, in a step."""

    step: events.Ints
    device: events.Ints
    unit: events.Codes
    flops: events.MaskedInts
    duration_ns: events.Ints
    peak: Floats
    units: tuple[str, ...]

    def __getitem__(self, rows: Any) -> _Products:
        return _Products(
            step=self.step[rows],
            device=self.device[rows],
            unit=self.unit[rows],
            flops=self.flops[rows],
            duration_ns=self.duration_ns[rows],
            peak=self.peak[rows],
            units=self.units,
        )


def _products(analysis: Analysis, peaks: Mapping[str, Peak]) -> _Products:
    launch_rooflines, launches, shares = (
        rooflines(analysis, peaks),
        analysis.launches,
        analysis.shares,
    )
    in_step = launches.in_steps
    of_place = np.array([place.phase in _MODEL for place in analysis.places], np.bool_)
    of_launch = in_step & launch_rooflines.is_product
    rows = np.flatnonzero(of_launch[shares.launch] & of_place[shares.place])
    launch = shares.launch[rows]
    return _Products(
        step=launches.step.data[launch],
        device=launches.device[launch],
        unit=launch_rooflines.unit.codes[launch],
        flops=of_shares(analysis, launch_rooflines.flops)[rows],
        duration_ns=shares.duration_ns[rows],
        peak=_peaks(analysis, launch_rooflines, peaks)[launch],
        units=launch_rooflines.unit.strings,
    )


def _utilisation(products: _Products, walls_ns: Sequence[int]) -> Utilisation | None:
    flops, took_ns = products.flops, products.duration_ns
    counted = ~np.ma.getmaskarray(flops)
    known = counted & (products.peak > 0)
    devices = len(np.unique(products.device))
    wall_ns = devices * sum(walls_ns)
    if not known.any() or not wall_ns or not flops.data[known].sum():
        return None
    return Utilisation(
        wall_ns=wall_ns,
        steps=devices * len(walls_ns),
        flops=int(flops.data[counted].sum()),
        by_unit=_by_unit(products[known]),
        known_fraction=float(flops.data[known].sum() / flops.data[counted].sum()),
        counted_fraction=float(took_ns[counted].sum() / max(took_ns.sum(), 1)),
        peak_ns=float((flops.data[known] / products.peak[known] / 1000).sum()),
    )


def _peaks(analysis: Analysis, launch_rooflines: Rooflines, peaks: Mapping[str, Peak]) -> Floats:
    """Return the peak of each launch's unit in TFLOP/s, or 0."""
    column = np.zeros(len(analysis.launches))
    for device in analysis.recording.trace.devices:
        peak = peak_of(device.name, peaks)
        if peak is not None:
            there = analysis.launches.device == device.id
            of_unit = np.array([peak.of(text) or 0.0 for text in launch_rooflines.unit.strings])
            column[there] = of_unit[launch_rooflines.unit.codes[there]]
    return column


def _by_unit(products: _Products) -> tuple[tuple[str, int], ...]:
    done = share_sums.sum_by(products.unit, products.flops.data, len(products.units))
    pairs = [(text, int(n)) for text, n in zip(products.units, done, strict=True) if n]
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))
