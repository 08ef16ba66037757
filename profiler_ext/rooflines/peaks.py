"""Owns what a device can do at best: memory bandwidth, and arithmetic by unit, with the source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from profiler_ext.rooflines.devices import DEVICES
from profiler_ext.rooflines.words import Unit


@dataclass(frozen=True, slots=True)
class Peak:
    """The best that a device can do, as its maker states it: dense, at boost clock.

    Attributes:
        gb_per_s: memory bandwidth in 10^9 bytes a second.
        tflop_per_s: arithmetic in 10^12 operations a second, by :class:`Unit`; a unit that is not
            there has none, or it is not known.
        source: where the figures are from.
    """

    gb_per_s: float
    tflop_per_s: Mapping[str, float] = field(default_factory=dict)
    source: str = ""

    def of(self, unit: str | None) -> float | None:
        """Return the peak of a unit, ``None`` where there is none."""
        return None if unit is None else self.tflop_per_s.get(unit)


PEAKS: Mapping[str, Peak] = {
    device.name: Peak(device.gb_per_s, {Unit(u): v for u, v in device.units}, device.source)
    for device in DEVICES
}
"""Device to peak; of two that fit a name, the first stands for it."""
# A part of a device, or another one that is named like it, has peaks of its own.
_OTHERS = frozenset({"mig", "laptop", "mobile", "max", "d", "ti", "super"})


def peak_of(device: str, peaks: Mapping[str, Peak] = PEAKS) -> Peak | None:
    """Return what a device can do at best.

    Args:
        device: its name as the trace gives it: ``NVIDIA H100 80GB HBM3``.
        peaks: words of a name to its peak; give your own to correct or add a device.

    Returns:
        The first entry all of whose words stand in the name, ``None`` if there is none. A slice
        of a device (MIG) is none, unless an entry names it.
    """
    words = _name_words(device)
    return next((peak for name, peak in peaks.items() if _names(_name_words(name), words)), None)


def _names(entry: frozenset[str], device: frozenset[str]) -> bool:
    return entry <= device and not (device - entry) & _OTHERS


def _name_words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))
