"""Owns what a trace's header tells of its job: the rank, the host, the process groups.

Kineto writes ``distributedInfo`` where ``torch.distributed`` was initialised
(``torch/profiler/profiler.py``), and a newer one ``host_name`` (libkineto's ``EnvMetadata.h``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from profiler_ext.records import Recording, Trace
from profiler_ext.records.known_types import known

_INFO_KEY = "distributedInfo"
_HOST_KEY = "host_name"
_MOST_RANKS = 2**31


@dataclass(frozen=True, slots=True)
class RankInJob:
    """Which rank of how many recorded a trace; 1 where it is not told how many there are."""

    rank: int
    world_size: int


class _Info(msgspec.Struct):
    rank: int | None = None
    world_size: int = 0


class _Group(msgspec.Struct):
    pg_name: str = ""


class _Groups(msgspec.Struct):
    pg_config: list[_Group] = []


def rank_of_trace(trace: Trace) -> RankInJob | None:
    """Return the rank that a trace's header tells.

    Args:
        trace: the trace.

    Returns:
        The rank; ``None`` where it tells none, or none of its number of ranks.
    """
    value = dict(trace.header).get(_INFO_KEY)
    if value is None:
        return None
    try:
        info = msgspec.json.decode(value, type=known(_Info))
    except msgspec.DecodeError:
        return None
    most = info.world_size or _MOST_RANKS
    if info.rank is None or not 0 <= info.rank < most <= _MOST_RANKS:
        return None
    return RankInJob(info.rank, max(info.world_size, 1))


def with_rank(recording: Recording, otherwise: int | None = None) -> Recording:
    """Return a recording with its rank: where no launcher told it, the trace's header does.

    Torch's own recordings have nothing else, and where a program starts its ranks itself
    (``torch.multiprocessing.spawn``) no variable of the environment says which one it is.

    Args:
        recording: what was recorded.
        otherwise: the rank where the recording tells none.
    """
    settings = recording.settings
    if settings.world_size > 1:
        return recording
    value = rank_of_trace(recording.trace)
    if value is not None:
        return _of_rank(recording, value.rank, value.world_size)
    if otherwise is None or settings.torch_version:
        return recording
    return _of_rank(recording, otherwise, settings.world_size)


def is_rank_known(recording: Recording) -> bool:
    """Say whether it is known of which rank a recording is, whatever its settings stand at."""
    settings = recording.settings
    is_set = bool(settings.torch_version) or settings.rank > 0 or settings.world_size > 1
    return is_set or rank_of_trace(recording.trace) is not None


def host_name(trace: Trace) -> str:
    """Return the machine that a trace's header names; ``""`` where it names none."""
    value = dict(trace.header).get(_HOST_KEY)
    try:
        return "" if value is None else msgspec.json.decode(value, type=str)
    except msgspec.DecodeError:
        return ""


def only_group(trace: Trace) -> str | None:
    """Return the name of the process group where the trace says that there is one only."""
    info = dict(trace.header).get(_INFO_KEY)
    if info is None:
        return None
    try:
        groups = msgspec.json.decode(info, type=known(_Groups)).pg_config
    except msgspec.DecodeError:
        return None
    return groups[0].pg_name or None if len(groups) == 1 else None


def _of_rank(recording: Recording, rank: int, world_size: int) -> Recording:
    if (rank, world_size) == (recording.settings.rank, recording.settings.world_size):
        return recording
    settings = replace(recording.settings, rank=rank, world_size=world_size)
    return replace(recording, settings=settings)
