"""Owns what a trace tells of a collective: its process group, its sequence, its name."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from profiler_ext.kineto.events import event_arguments
from profiler_ext.kineto.names import Arg
from profiler_ext.records import Launches, Trace

_SYNCHRONIZING = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
_NOT_SYNCHRONIZING = ("broadcast", "reduce", "gather", "scatter", "send", "recv")


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective as one event tells it.

    Attributes:
        group: name of its process group.
        sequence: its number in that group, the same on every rank.
        name: ``allreduce``; what it does.
        members: its ranks as the trace writes them; ``""`` where they are not told. Groups that
            ``split_group`` makes at once have one name on all ranks.
        elements: how many elements it takes from this rank; ``None`` where that is not told.
        ranks: how many ranks the group has; ``None`` where that is not told.
    """

    group: str
    sequence: int | None
    name: str
    elements: int | None = field(default=None, compare=False)
    ranks: int | None = field(default=None, compare=False)
    members: str = field(default="", compare=False)

    @property
    def is_synchronizing(self) -> bool:
        """No rank can leave it before every rank has come, so its end is one moment."""
        return any(word in _normalized(self.name) for word in _SYNCHRONIZING)


def may_synchronize(name: str) -> bool:
    """Say whether a collective may be one that no rank can leave before all have come.

    Args:
        name: what it does; ``""`` where that is not told.
    """
    normalized = _normalized(name)
    is_together = any(word in normalized for word in _SYNCHRONIZING)
    return is_together or not normalized.startswith(_NOT_SYNCHRONIZING)


def _normalized(name: str) -> str:
    return name.lower().replace("_", "")


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
    element_count = elements if isinstance(elements, int) else None
    size = arguments.get(Arg.GROUP_SIZE)
    ranks = size if isinstance(size, int) else None
    name, members = (str(arguments.get(key, "")) for key in (Arg.COLLECTIVE, Arg.GROUP_RANKS))
    return Collective(group, number, name, element_count, ranks, members)


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
    candidates = (collective(trace.raw[int(trace.events.position[row])]) for row in known)
    return next((each for each in candidates if each is not None), None)
