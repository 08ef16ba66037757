"""Owns what the profiler itself said of a device event: its grid, block, registers, occupancy."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import msgspec

from profiler_ext.exporters.perfetto.communication import CollectiveNames, collective_names
from profiler_ext.exporters.perfetto.raw_arguments import raw_arguments, reader
from profiler_ext.exporters.perfetto.shared import Shared
from profiler_ext.exporters.perfetto.texts import Argument, Texts, present
from profiler_ext.kineto.launch_shapes import LAUNCH_SHAPE
from profiler_ext.kineto.recording import as_written
from profiler_ext.records import Analysis

_REPORTED = {
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
_READ = reader(_REPORTED)
# The columns of events have how a kernel was launched; what else is said of it is little.
_READ_WITHOUT_SHAPE = reader({key: name for key, name in _REPORTED.items() if key not in LAUNCH_SHAPE})
_NOTHING_MORE = _READ_WITHOUT_SHAPE(b"{}").args


def reported(analysis: Analysis, texts: Texts) -> Shared:
    """Return what is said of launches by the profiler, and of communication; few say the same.

    Args:
        analysis: the launches.
        texts: encodes it.
    """
    trace = analysis.recording.trace
    positions = trace.events.position[analysis.launches.event]
    communicating = collective_names(analysis)

    def encode(row: int) -> bytes:
        arguments = _arguments(trace.raw[int(positions[row])])
        return texts.annotated(present({**arguments, **communicating.get(row, {})}))

    return Shared(_keys(analysis, communicating), encode)


def _keys(analysis: Analysis, communicating: Mapping[int, CollectiveNames]) -> Iterator[Hashable]:
    trace, rows = analysis.recording.trace, analysis.launches.event
    written = as_written(trace.raw).at(trace.events.position[rows])
    shapes = trace.events.launch_shape
    has_shape = [*map(bool, shapes.strings)]
    for row, (raw, shape) in enumerate(zip(written, shapes.codes[rows].tolist(), strict=True)):
        key = _key_without_shape(raw, shape) if has_shape[shape] else _key(raw)
        yield (key, *communicating[row].values()) if row in communicating else key


def _key_without_shape(raw: bytes, shape: int) -> Hashable:
    """Return what is the same for events that say the same, whose shapes have a number."""
    try:
        args = _READ_WITHOUT_SHAPE(raw).args
    except msgspec.DecodeError:
        return raw
    return shape if args == _NOTHING_MORE else (shape, *map(bytes, msgspec.structs.astuple(args)))


def _key(raw: bytes) -> Hashable:
    """Return what is the same for events that say the same."""
    try:
        return tuple(map(bytes, msgspec.structs.astuple(_READ(raw).args)))
    except msgspec.DecodeError:
        return raw


def _arguments(raw: bytes) -> dict[str, Argument | None]:
    arguments = raw_arguments(raw)
    return {name: _argument(arguments[key]) for key, name in _REPORTED.items() if key in arguments}


def _argument(value: Any) -> Argument:
    return value if isinstance(value, int | float | str) else str(value)
