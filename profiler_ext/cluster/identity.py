"""Owns which rank a session is of, and on which host it ran."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath

import msgspec

from profiler_ext.records import Recording
from profiler_ext.records.known_types import known

_INFO_KEY = "distributedInfo"
_HANDLER = re.compile(r"(?P<host>.+)_\d+\.\d+\.pt\.trace\.json(\.gz)?")
"""How ``torch.profiler.tensorboard_trace_handler`` names a file: host, process and time."""


class _Info(msgspec.Struct):
    rank: int = 0
    world_size: int = 0


def with_rank(recording: Recording) -> Recording:
    """Return a recording with its rank: one that torch alone made tells it in its header.

    Args:
        recording: what was recorded.
    """
    settings = recording.settings
    told = dict(recording.trace.header).get(_INFO_KEY)
    if settings.torch_version or told is None:
        return recording
    try:
        info = msgspec.json.decode(told, type=known(_Info))
    except msgspec.DecodeError:
        return recording
    settings = replace(settings, rank=info.rank, world_size=max(info.world_size, 1))
    return replace(recording, settings=settings)


def host_of(recording: Recording, url: str) -> str:
    """Return the host that a session ran on; ``""`` where nothing tells it.

    Args:
        recording: what was recorded.
        url: its file.
    """
    if recording.settings.host:
        return recording.settings.host
    named = _HANDLER.fullmatch(PurePosixPath(url).name)
    return named["host"] if named else ""


def device_of(recording: Recording) -> str:
    """Return the name of the device that a session ran on; ``""`` where nothing tells it."""
    return next((each.name for each in recording.trace.devices), "")
