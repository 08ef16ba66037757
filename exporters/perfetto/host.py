"""Owns the CPU's side: a process with its threads, and every event that is not a device's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from exporters.perfetto.arguments import optional, present
from exporters.perfetto.lanes import Span
from exporters.perfetto.packets import Argument, PacketWriter
from exporters.perfetto.tracks import Tracks
from profiler_ext.records import Events, Settings, Thread

_RANK = 1000


def draw_host(
    writer: PacketWriter,
    tracks: Tracks,
    events: Events,
    settings: Settings,
    rows: Mapping[int, list[int]],
    flows: Mapping[int, tuple[int, ...]],
) -> None:
    """Draw the CPU's events, nested as they were called.

    Args:
        writer: encodes the slices.
        tracks: describes the tracks.
        events: all events.
        settings: names the process.
        rows: rows to draw of each thread, by the thread's index.
        flows: ids of the flows that start at a row.
    """
    spans = _HostSpans(writer, events, flows)
    groups: dict[int | str, int] = {}
    for index, chosen in sorted(rows.items()):
        thread = events.threads[index]
        if thread.pid not in groups:
            groups[thread.pid] = _group(tracks, thread.pid, settings, len(groups))
        name = _thread_name(events, thread, chosen)
        if _is_process(thread.pid) and isinstance(thread.tid, int):
            track = tracks.thread(int(thread.pid), thread.tid, name)
        else:
            track = tracks.track(name, groups[thread.pid])
        tracks.draw_calls(track, name, spans.of(chosen))


def rows_of_threads(events: Events, chosen: Iterable[int]) -> dict[int, list[int]]:
    """Return the chosen rows by thread.

    Args:
        events: all events.
        chosen: rows.

    Returns:
        The rows of each thread, by the thread's index.
    """
    rows: dict[int, list[int]] = defaultdict(list)
    threads = events.thread.tolist()
    for row in chosen:
        rows[threads[row]].append(row)
    return dict(rows)


class _HostSpans:
    def __init__(
        self, writer: PacketWriter, events: Events, flows: Mapping[int, tuple[int, ...]]
    ) -> None:
        self._writer = writer
        self._events = events
        self._flows = flows
        self._constants: dict[tuple[int, int], bytes] = {}
        self._starts = events.start_ns.tolist()
        self._ends = events.end_ns.tolist()

    def of(self, rows: Iterable[int]) -> Iterable[Span]:
        return (self._span(row) for row in rows)

    def _span(self, row: int) -> Span:
        return Span(
            self._starts[row],
            self._ends[row],
            self._constant(row),
            self._arguments(row),
            self._flows.get(row, ()),
        )

    def _constant(self, row: int) -> bytes:
        events = self._events
        key = (int(events.name.codes[row]), int(events.category.codes[row]))
        if key not in self._constants:
            constant = self._writer.constant(events.name[row], events.category[row], {})
            self._constants[key] = constant
        return self._constants[key]

    def _arguments(self, row: int) -> dict[str, Argument]:
        events = self._events
        return present(
            {
                "external_id": optional(events.external_id, row),
                "correlation": optional(events.correlation, row),
                "sequence_number": optional(events.sequence_number, row),
                "fwd_thread_id": optional(events.fwd_thread_id, row),
                "bytes": optional(events.bytes_moved, row),
            }
        )


def _is_process(pid: int | str) -> bool:
    return isinstance(pid, int) and pid >= 0


def _group(tracks: Tracks, pid: int | str, settings: Settings, number: int) -> int:
    if not _is_process(pid):
        # Kineto writes its own overhead under pid -1 and its spans under a word.
        name = "profiler overhead" if pid == -1 else str(pid)
        return tracks.track(name, rank=_RANK + number)
    name = " ".join(("python", *settings.command))
    if settings.world_size > 1:
        name = f"{name} (rank {settings.rank})"
    return tracks.process(int(pid), name, _RANK + number)


def _thread_name(events: Events, thread: Thread, rows: list[int]) -> str:
    if not isinstance(thread.tid, int):
        return thread.tid
    if thread.tid == thread.pid:
        return "main"
    backward = not np.ma.getmaskarray(events.fwd_thread_id)[rows].all()
    return "autograd" if backward else "thread"
