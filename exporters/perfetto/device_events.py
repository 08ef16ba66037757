"""Owns what the profiler itself said of a device event: its grid, block, registers, occupancy."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from profiler_ext.exporters.perfetto.byte_columns import Few
from profiler_ext.exporters.perfetto.communication import communication_arguments
from profiler_ext.exporters.perfetto.own_arguments import Encoded
from profiler_ext.exporters.perfetto.raw_arguments import raw_arguments
from profiler_ext.exporters.perfetto.texts import Argument, Texts, present
from profiler_ext.kineto.recording import as_written
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
_Args = msgspec.defstruct(
    "_Args",
    [
        (name, msgspec.Raw, msgspec.field(default=msgspec.Raw(b""), name=key))
        for key, name in _SAID.items()
    ],
    frozen=True,
    gc=False,
)


class _Event(msgspec.Struct, gc=False):
    args: _Args = _Args()  # type: ignore[valid-type]


_DECODE = msgspec.json.Decoder(_Event).decode


def reported(analysis: Analysis, texts: Texts) -> Encoded:
    """Return what is said of launches by the profiler, and of communication; few say the same.

    Args:
        analysis: the launches.
        texts: encodes it.
    """
    trace, launches = analysis.recording.trace, analysis.launches
    communicating = communication_arguments(analysis)
    known: dict[object, int] = {}
    told: list[bytes] = []
    codes = np.empty(len(launches), np.int64)
    positions = trace.events.position[launches.event]
    for row, written in enumerate(as_written(trace.raw).at(positions)):
        more = communicating.get(row)
        key = _key(written) if more is None else row
        code = known.setdefault(key, len(told))
        if code == len(told):
            raw = trace.raw[int(positions[row])]
            told.append(texts.annotated(present({**_arguments(raw), **(more or {})})))
        codes[row] = code
    return Encoded(Few(told), codes)


def _key(raw: bytes) -> object:
    """Return what is the same for events that say the same."""
    try:
        return b",".join(msgspec.structs.astuple(_DECODE(raw).args))
    except msgspec.DecodeError:
        return raw


def _arguments(raw: bytes) -> dict[str, Argument | None]:
    arguments = raw_arguments(raw)
    return {name: _argument(arguments[key]) for key, name in _SAID.items() if key in arguments}


def _argument(value: Any) -> Argument:
    return value if isinstance(value, int | float | str) else str(value)
