"""Owns what a trace tells of a collective: its process group, its sequence, its name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import msgspec
import numpy as np

from profiler_ext.kineto.events import event_arguments
from profiler_ext.kineto.names import Arg
from profiler_ext.records import Launches, Trace
from profiler_ext.records.known_types import known

_INFO_KEY = "distributedInfo"
_KERNEL = re.compile(r"(?:nccl|rccl|oneccl)(?:Dev)?Kernel_([A-Za-z]+)")
_LEAVE_TOGETHER = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective as one event tells it.

    Attributes:
        group: name of its process group.
        sequence: its number in that group, the same on every rank.
        name: ``allreduce``; what it does.
        elements: how many elements it takes from this rank; ``None`` where that is not told.
        ranks: how many ranks the group has; ``None`` where that is not told.
    """

    group: str
    sequence: int | None
    name: str
    elements: int | None = field(default=None, compare=False)
    ranks: int | None = field(default=None, compare=False)

    @property
    def is_left_together(self) -> bool:
        """No rank can leave it before every rank has come, so its end is one moment."""
        return any(word in self.name.lower().replace("_", "") for word in _LEAVE_TOGETHER)


class _Group(msgspec.Struct):
    pg_name: str = ""


class _Info(msgspec.Struct):
    pg_config: list[_Group] = []


def collective(raw: bytes) -> Collective | None:
    """Return the collective that an event's arguments tell of.

    Args:
        raw: the event's JSON.

    Returns:
        The collective; ``None`` where the event names no process group.
    """
    arguments = event_arguments(raw)
    group, sequence = arguments.get(Arg.PROCESS_GROUP), arguments.get(Arg.COLLECTIVE_SEQUENCE)
    if not isinstance(group, str) or not group:
        return None
    number = sequence if isinstance(sequence, int) else None
    elements = arguments.get(Arg.COLLECTIVE_ELEMENTS)
    taken = elements if isinstance(elements, int) else None
    size = arguments.get(Arg.GROUP_SIZE)
    ranks = size if isinstance(size, int) else None
    return Collective(group, number, str(arguments.get(Arg.COLLECTIVE, "")), taken, ranks)


def kernel_collective(name: str) -> str:
    """Return what the name of a kernel says that it does: ``allreduce``; ``""`` where nothing."""
    match = _KERNEL.match(name)
    return match[1].lower() if match else ""


def only_group(trace: Trace) -> str | None:
    """Return the name of the process group where the trace says that there is one only."""
    info = dict(trace.header).get(_INFO_KEY)
    if info is None:
        return None
    try:
        groups = msgspec.json.decode(info, type=known(_Info)).pg_config
    except msgspec.DecodeError:
        return None
    return groups[0].pg_name or None if len(groups) == 1 else None


def collective_of(trace: Trace, launches: Launches, launch: int) -> Collective | None:
    """Return the collective of a launch, as its event or the op that launched it tells.

    The op knows the number in the group, which the kernel's event leaves out.

    Args:
        trace: the trace.
        launches: its launches.
        launch: index of one of these.
    """
    rows = [launches.op_event[launch], launches.event[launch]]
    known = [int(row) for row in rows if row is not np.ma.masked]
    told = (collective(trace.raw[int(trace.events.position[row])]) for row in known)
    return next((each for each in told if each is not None), None)
