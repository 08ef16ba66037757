"""Owns what the profiler itself said of a device event: its grid, block, registers, occupancy."""

from __future__ import annotations

from typing import Any

from profiler_ext.exporters.perfetto.packets import Argument
from profiler_ext.exporters.perfetto.raw_arguments import raw_arguments
from profiler_ext.records import Analysis

_SAID = {
    "grid": "grid",
    "block": "block",
    "registers per thread": "registers_per_thread",
    "shared memory": "shared_memory_bytes",
    "est. achieved occupancy %": "est_occupancy_percent",
    "bytes": "bytes",
    "memory bandwidth (GB/s)": "memory_bandwidth_gb_per_s",
    "Collective name": "collective",
    "Group size": "group_size",
    "In msg nelems": "elements_in",
    "Out msg nelems": "elements_out",
    "dtype": "dtype",
}


class DeviceEvents:
    """Answers what a launch's event holds."""

    def __init__(self, analysis: Analysis) -> None:
        trace = analysis.recording.trace
        self._raw = trace.raw
        positions = trace.events.position[analysis.launches.event]
        self._positions: list[int] = positions.tolist()

    def arguments(self, row: int) -> dict[str, Argument | None]:
        """Return the useful arguments of a launch's event."""
        arguments = raw_arguments(self._raw[self._positions[row]])
        return {name: _argument(arguments[key]) for key, name in _SAID.items() if key in arguments}


def _argument(value: Any) -> Argument:
    return value if isinstance(value, int | float | str) else str(value)
