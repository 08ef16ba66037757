"""Owns the CPU's side: a process with its threads, and every event that is not a device's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from exporters.perfetto.lanes import Span
from exporters.perfetto.packets import PacketWriter
from exporters.perfetto.tracks import Tracks
from profiler_ext.records import Events, Settings, Thread

_PROFILER = "profiler"
_PIDS = 2**31
_RANK, _PROFILER_RANK = 1000, 1_000_000


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
    parents = _Parents(tracks, settings)
    for index, chosen in sorted(rows.items()):
        thread = events.threads[index]
        parent = parents.of(thread.pid)
        name = _thread_name(events, thread, chosen)
        if _is_process(thread.pid) and isinstance(thread.tid, int):
            track = tracks.thread(int(thread.pid), thread.tid, name)
        else:
            track = tracks.track(name, parent)
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
        self._starts: list[int] = events.start_ns.tolist()
        self._ends: list[int] = events.end_ns.tolist()
        self._arguments = _argument_columns(events)

    def of(self, rows: Iterable[int]) -> Iterator[Span]:
        return (self._span(row) for row in rows)

    def _span(self, row: int) -> Span:
        arguments = {
            key: value
            for key, column in self._arguments.items()
            if (value := column[row]) is not None
        }
        return Span(
            self._starts[row],
            self._ends[row],
            self._constant(row),
            arguments,
            self._flows.get(row, ()),
        )

    def _constant(self, row: int) -> bytes:
        events = self._events
        key = (int(events.name.codes[row]), int(events.category.codes[row]))
        if key not in self._constants:
            constant = self._writer.constant(events.name[row], events.category[row], {})
            self._constants[key] = constant
        return self._constants[key]


def _argument_columns(events: Events) -> dict[str, list[int | None]]:
    return {
        "external_id": events.external_id.tolist(),
        "correlation": events.correlation.tolist(),
        "sequence_number": events.sequence_number.tolist(),
        "fwd_thread_id": events.fwd_thread_id.tolist(),
        "bytes": events.bytes_moved.tolist(),
    }


def _is_process(pid: int | str) -> bool:
    return isinstance(pid, int) and 0 <= pid < _PIDS


class _Parents:
    """The processes; what is no process is Kineto's own (its spans, its overhead)."""

    def __init__(self, tracks: Tracks, settings: Settings) -> None:
        self._tracks = tracks
        self._settings = settings
        self._known: dict[int | str, int] = {}

    def of(self, pid: int | str) -> int:
        key = pid if _is_process(pid) else _PROFILER
        if key not in self._known:
            self._known[key] = self._made(key)
        return self._known[key]

    def _made(self, key: int | str) -> int:
        if isinstance(key, str):
            return self._tracks.track(key, rank=_PROFILER_RANK)
        name = " ".join(("python", *self._settings.command))
        if self._settings.world_size > 1:
            name = f"{name} (rank {self._settings.rank})"
        return self._tracks.process(key, name, _RANK + len(self._known))


def _thread_name(events: Events, thread: Thread, rows: list[int]) -> str:
    if not isinstance(thread.tid, int):
        return thread.tid
    if not _is_process(thread.pid):
        return "overhead"
    if thread.tid == thread.pid:
        return "main"
    backward = not np.ma.getmaskarray(events.fwd_thread_id)[rows].all()
    return "autograd" if backward else "thread"
