"""Owns which part of a device's multiprocessors the blocks of a launch can hold."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from profiler_ext.findings.facts import Facts
from profiler_ext.kineto.launch_shapes import launch_shapes
from profiler_ext.records import Ints

_COUNTED_AS = "numSms"


def held_parts(facts: Facts, launches: Ints) -> npt.NDArray[np.float64]:
    """Return the part of the multiprocessors that each launch has blocks for, 1 at most.

    Args:
        facts: what is known of the session.
        launches: rows of launches.

    Returns:
        One number for each; 0 where the trace tells no blocks, or nothing of the device.
    """
    trace = facts.analysis.recording.trace
    grid = launch_shapes(trace, facts.launches.event[launches]).grid
    blocks = np.array([_blocks(text) for text in grid.strings], np.int64)[grid.codes]
    counts = {device.id: _count(dict(device.properties)) for device in trace.devices}
    device = facts.launches.device[launches].tolist()
    count = np.array([counts.get(each, 0) for each in device], np.float64)
    return np.where(count > 0, np.minimum(blocks / np.maximum(count, 1), 1), 0)


def _blocks(grid: str) -> int:
    """Return how many blocks ``24x1x1`` are; 0 where none are told."""
    sizes = grid.split("x")
    return math.prod(map(int, sizes)) if all(size.isdecimal() for size in sizes) else 0


def _count(properties: dict[str, str]) -> int:
    text = properties.get(_COUNTED_AS, "")
    return int(text) if text.isdecimal() else 0
