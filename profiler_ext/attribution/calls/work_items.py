"""Owns what a call of a compiled graph ran: its operators, and launches without an operator."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches, work_name
from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.kineto import classify, names
from profiler_ext.records import Events, Ints, SiteEvidence

_Order = tuple[int, int]
"""When the CPU enqueued it, then when the device ran it: a replay enqueues all at once."""


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


def work_items_of(
    events: Events, enqueued: EnqueuedLaunches, item_row: Ints, launches: Ints, called: Ints | None
) -> list[tuple[WorkItem, tuple[int, ...], int]]:
    """List what a call ran in enqueue order: operators, and launches without an operator.

    A call that replays also shows the operators of the recording, which launched nothing;
    those are left out, as their work is what the replay runs.

    Args:
        events: the trace's events.
        enqueued: its launches.
        item_row: for each launch its operator, or the runtime call itself.
        launches: the call's own launches.
        called: the operators that the call called itself.

    Returns:
        Each item with its launches, and the row of its operator, ``NO_ROW`` where it is none.
    """
    owned: dict[int, list[int]] = {int(r): [] for r in (() if called is None else called)}
    in_order = list[tuple[_Order, WorkItem, tuple[int, ...], int]]()
    for launch in launches.tolist():
        if item_row[launch] == enqueued.call[launch]:
            in_order.append(_device_item(events, enqueued, launch))
        else:
            owned.setdefault(int(item_row[launch]), []).append(launch)
    replays = any(item.replayed for _, item, _, _ in in_order)
    for row, own in owned.items():
        if own or not replays:
            item = WorkItem(names.kernel_name(events.name[row]), launched=bool(own))
            in_order.append(((int(events.start_ns[row]), 0), item, tuple(own), row))
    in_order.sort(key=lambda item: item[0])
    return [(item, own, row) for _, item, own, row in in_order]


def _device_item(
    events: Events, enqueued: EnqueuedLaunches, launch: int
) -> tuple[_Order, WorkItem, tuple[int, ...], int]:
    row, call = int(enqueued.event[launch]), int(enqueued.call[launch])
    category = events.category[row]
    item = WorkItem(
        name=work_name(events, row),
        on_device=True,
        replayed=names.is_graph_launch(events.name[call]),
        is_kernel=not (classify.is_copy(category) or classify.is_memset(category)),
    )
    order = (int(enqueued.enqueue_ns[launch]), int(events.start_ns[row]))
    return order, item, (launch,), NO_ROW
