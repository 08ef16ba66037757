"""Owns what a call of a compiled graph ran as a pattern: equal calls have one, looked at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from profiler_ext.attribution.trace.lookups import NO_ROW, Flags
from profiler_ext.kineto import classify, names
from profiler_ext.records import Events, Ints, SiteEvidence


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One thing that a graph call ran: an operator, or a device event without an operator.

    Attributes:
        name: the operator's or the device event's name, without a ``graph_0_`` prefix.
        on_device: no operator is known, so the name is the device event's.
        replayed: it was launched by the replay of a CUDA graph.
        is_kernel: for a device event: neither a copy nor a memset.
        launched: for an operator: it launched something.
    """

    name: str
    on_device: bool = False
    replayed: bool = False
    is_kernel: bool = True
    launched: bool = True

    @property
    def order_evidence(self) -> SiteEvidence:
        """The rule that its order alone makes."""
        return SiteEvidence.REPLAY_ORDER if self.replayed else SiteEvidence.CALL_ORDER


class DeviceEvent(NamedTuple):
    """What one launch of a call ran.

    Attributes:
        name: the event's name.
        category: its category.
        call: the first of the graph call's launches that the same runtime call made, counted from
            0; ``NO_ROW`` where the trace does not tell what launched it.
    """

    name: str
    category: str
    call: int = NO_ROW


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """What equal calls ran, in enqueue order; it is the same only as itself.

    Attributes:
        work: the items.
        events: for each item what its launches ran.
        event_names: the names of these, as every call's.
        is_replay: a CUDA graph was replayed.
    """

    work: tuple[WorkItem, ...]
    events: tuple[tuple[DeviceEvent, ...], ...]
    event_names: tuple[tuple[str, ...], ...]
    is_replay: bool


class Patterns:
    """Finds the pattern of each call."""

    def __init__(self, events: Events) -> None:
        """Take the names that codes are of."""
        self._names, self._categories = events.name.strings, events.category.strings
        self._known: dict[tuple[bytes, ...], Pattern] = {}
        self._items: dict[int, WorkItem] = {}

    def pattern(self, items: Ints, ends: Ints, launched: Ints, calls: Ints) -> Pattern:
        """Return the pattern of a call.

        Args:
            items: a code for each item, of :func:`device_items` or :func:`operators`.
            ends: how many launches the call has made after each item.
            launched: what each launch ran, as :func:`what_ran` numbers it.
            calls: what each has as ``DeviceEvent.call``.
        """
        key = tuple(column.tobytes() for column in (items, ends, launched, calls))
        if key not in self._known:
            self._known[key] = self._new(items, ends, launched, calls)
        return self._known[key]

    def _new(self, items: Ints, ends: Ints, launched: Ints, calls: Ints) -> Pattern:
        pairs = zip(launched.tolist(), calls.tolist(), strict=True)
        ran = [DeviceEvent(*self._ran(code), call) for code, call in pairs]
        events = tuple(tuple(ran[begin:end]) for begin, end in pairwise([0, *ends.tolist()]))
        event_names = tuple(tuple(_work_name(event) for event in own) for own in events)
        work = tuple(map(self._item, items.tolist()))
        return Pattern(work, events, event_names, any(item.replayed for item in work))

    def _item(self, code: int) -> WorkItem:
        if code not in self._items:
            self._items[code] = self._operator(-1 - code) if code < 0 else self._on_device(code)
        return self._items[code]

    def _operator(self, code: int) -> WorkItem:
        name, launched = divmod(code, 2)
        return WorkItem(names.kernel_name(self._names[name]), launched=bool(launched))

    def _on_device(self, code: int) -> WorkItem:
        ran, replayed = divmod(code, 2)
        name, category = self._ran(ran)
        return WorkItem(
            name=classify.work_name(name, category),
            on_device=True,
            replayed=bool(replayed),
            is_kernel=not (classify.is_copy(category) or classify.is_memset(category)),
        )

    def _ran(self, code: int) -> tuple[str, str]:
        name, category = divmod(code, len(self._categories))
        return self._names[name], self._categories[category]


def what_ran(events: Events, rows: Ints) -> Ints:
    """Return a code for each device event: the same where name and category are.

    Args:
        events: the trace's events.
        rows: the rows of device events.
    """
    name, category = events.name.codes[rows].astype(np.int64), events.category.codes[rows]
    return name * len(events.category.strings) + category


def device_items(ran: Ints, replayed: Flags) -> Ints:
    """Return a code for each device event without an operator.

    Args:
        ran: what each ran, as :func:`what_ran` numbers it.
        replayed: which the replay of a CUDA graph launched.
    """
    return 2 * ran + replayed


def operators(events: Events, rows: Ints, launched: Flags) -> Ints:
    """Return a code for each operator.

    Args:
        events: the trace's events.
        rows: the operators' rows.
        launched: which of them launched anything.
    """
    return -1 - (2 * events.name.codes[rows].astype(np.int64) + launched)


def _work_name(event: DeviceEvent) -> str:
    return classify.work_name(event.name, event.category)
