"""The distributed job in a trace: rank, host, process groups and collectives.

Kineto writes ``distributedInfo`` where ``torch.distributed`` was initialised
(``torch/profiler/profiler.py``), and a newer one ``host_name`` (libkineto's ``EnvMetadata.h``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from profiler_ext.kineto.names import Arg
from profiler_ext.kineto.raw_events import event_arguments
from profiler_ext.records.analysis import Launches
from profiler_ext.records.events import Trace
from profiler_ext.records.recording import Recording
from profiler_ext.records.stored import known

_INFO_KEY = "distributedInfo"
_HOST_KEY = "host_name"
_MOST_RANKS = 2**31
_SYNCHRONIZING = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
_NOT_SYNCHRONIZING = ("broadcast", "reduce", "gather", "scatter", "send", "recv")


@dataclass(frozen=True, slots=True)
class RankInJob:
    """Which rank of how many recorded a trace; 1 where their number is unknown."""

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
    """Return the rank in a trace's header; ``None`` without one, or without the number of ranks."""
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
    """Return a recording with its rank: where no launcher set it, from the trace's header."""
    # Where a program starts its ranks itself (torch.multiprocessing.spawn), no environment variable
    # has the rank.
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
    """Tell whether a recording's rank is known, whatever its settings."""
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
    """Return the name of the only process group; of several ``""``."""
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


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective, from one event."""

    group: str  # name of its process group
    sequence: int | None  # its number in that group, the same on every rank
    name: str  # ``allreduce``
    # Number of elements from this rank, if known
    elements: int | None = field(default=None, compare=False)
    ranks: int | None = field(default=None, compare=False)  # size of the group, if known
    # Its ranks as in the trace, or ``""``. Groups that ``split_group`` makes at once have one name
    # on all ranks.
    members: str = field(default="", compare=False)

    @property
    def is_synchronizing(self) -> bool:
        """No rank can leave it before every rank has come, so its end is one moment."""
        return any(word in _normalized(self.name) for word in _SYNCHRONIZING)


def may_synchronize(name: str) -> bool:
    """Tell whether it may be a collective that no rank can leave before all have come."""
    normalized = _normalized(name)
    is_together = any(word in normalized for word in _SYNCHRONIZING)
    return is_together or not normalized.startswith(_NOT_SYNCHRONIZING)


def _normalized(name: str) -> str:
    return name.lower().replace("_", "")


def collective(raw: bytes) -> Collective | None:
    """Return the collective in an event's arguments."""
    arguments = event_arguments(raw)
    group, sequence = arguments.get(Arg.PROCESS_GROUP), arguments.get(Arg.COLLECTIVE_SEQUENCE)
    if not isinstance(group, str) or not group:
        return None
    number = sequence if isinstance(sequence, int) else None
    elements = arguments.get(Arg.COLLECTIVE_ELEMENTS)
    element_count = elements if isinstance(elements, int) else None
    size = arguments.get(Arg.GROUP_SIZE)
    ranks = size if isinstance(size, int) else None
    name, members = (str(arguments.get(key, "")) for key in (Arg.COLLECTIVE, Arg.GROUP_RANKS))
    return Collective(group, number, name, element_count, ranks, members)


def collective_of(trace: Trace, launches: Launches, launch: int) -> Collective | None:
    """Return the collective of a launch, by its event or the op that launched it."""
    # The op has the number in the group, which the kernel's event leaves out.
    rows = [launches.op_event[launch], launches.event[launch]]
    known = [int(row) for row in rows if row is not np.ma.masked]
    candidates = (collective(trace.raw[int(trace.events.position[row])]) for row in known)
    return next((each for each in candidates if each is not None), None)
