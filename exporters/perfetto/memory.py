"""Device memory: a counter for each kind and one for their sum, and the peak of each step.

The times are the CPU's, which allocates before the device runs. Without memory nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiler_ext.exporters.launch_parts import line_text, position_text
from profiler_ext.exporters.perfetto.annotations import Argument
from profiler_ext.exporters.perfetto.arguments import path_text
from profiler_ext.exporters.perfetto.packets import PacketWriter, listed
from profiler_ext.exporters.perfetto.tracks import Tracks, with_rank
from profiler_ext.exporters.views.formatting import size_text
from profiler_ext.memory.over_time import StepMemory, kinds_bytes, memory_of_steps
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Ints
from profiler_ext.records.memory import CPU, MemoryKind

MEMORY = "memory"
_UNIT = "bytes"
_GROUPS_RANK, _PEAK_RANK, _ALLOCATED_RANK, _KINDS_RANK = 500, 0, 1, 2


def draw_memory(writer: PacketWriter, tracks: Tracks, analysis: Analysis) -> None:
    """Draw the memory of each device; counters are named with it, as queries see no group."""
    every = memory_of_steps(analysis)
    for rank, device in enumerate(dict.fromkeys(each.peak.device for each in every)):
        steps = [each for each in every if each.peak.device == device]
        own = "CPU" if device == CPU else f"GPU {device}"
        named = with_rank(own, analysis.recording.settings)
        group = tracks.group(f"{named} memory", _GROUPS_RANK + rank)
        peaks = listed(_peak(writer, each) for each in steps)
        tracks.draw("peak of each step", group, _PEAK_RANK, peaks)
        times_ns, sums = _sums(steps)
        allocated = tracks.counter(f"{named} allocated", _UNIT, group, _ALLOCATED_RANK)
        writer.counts(allocated, times_ns, sums.sum(axis=1).astype(np.float64))
        for number, kind in enumerate(MemoryKind):
            if sums[:, number].any():
                track = tracks.counter(f"{named} {kind.label}", _UNIT, group, _KINDS_RANK + number)
                writer.counts(track, times_ns, sums[:, number].astype(np.float64))


def _sums(steps: Sequence[StepMemory]) -> tuple[Ints, Ints]:
    """Return all moments of the steps, and the bytes of every kind at each."""
    order, parts = list(MemoryKind), []
    for step in steps:
        sums = np.zeros((len(step.time_ns), len(order)), np.int64)
        sums[:, [order.index(kind) for kind in step.kinds]] = step.kind_bytes
        parts.append(sums)
    return np.concatenate([step.time_ns for step in steps]), np.concatenate(parts)


def _peak(writer: PacketWriter, memory: StepMemory) -> tuple[int, int, bytes]:
    """Return a slice without length: the viewer shows a mark."""
    peak = memory.peak
    arguments: dict[str, Argument] = {
        "step": peak.step,
        "peak_bytes": peak.peak_bytes,
        "phase": peak.place.phase,
        **{f"{kind}_bytes": size for kind, size in kinds_bytes(peak).items()},
    }
    if (position := position_text(peak.place)) is not None:
        arguments["source_lines"] = [line_text(peak.place) or position]
        arguments["source_paths"] = [path_text(peak.place) or position]
    constant = writer.constant(f"peak {size_text(peak.peak_bytes)}", MEMORY, arguments)
    return memory.peak_ns, memory.peak_ns, constant
