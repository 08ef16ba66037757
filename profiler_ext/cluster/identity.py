"""Owns which rank a session is of, on which host it ran, and on which device."""

from __future__ import annotations

from pathlib import Path

from profiler_ext.cluster.records import RankFile
from profiler_ext.kineto.distributed import host_name, with_rank
from profiler_ext.kineto.recording import read_recording
from profiler_ext.records import Recording


def read_as_rank(path: Path, file: RankFile) -> Recording:
    """Return a recording with its rank, which its folder tells where it does not itself.

    Args:
        path: where it is on this machine.
        file: what is known of it.

    Raises:
        TraceError: It cannot be read.
    """
    return with_rank(read_recording(path), otherwise=file.rank)


def host_of(recording: Recording) -> str:
    """Return the host that a session ran on; ``""`` where nothing tells it.

    The name of a file tells none: ``tensorboard_trace_handler`` begins it with whatever name the
    worker was given.

    Args:
        recording: what was recorded.
    """
    return recording.settings.host or host_name(recording.trace)


def device_of(recording: Recording) -> str:
    """Return the name of the device that a session ran on; ``""`` where nothing tells it."""
    return next((each.name for each in recording.trace.devices), "")
