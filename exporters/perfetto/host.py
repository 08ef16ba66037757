"""Owns the CPU's side: a process with its threads, and every event that is not a device's."""

from __future__ import annotations

from functools import partial

import numpy as np

from profiler_ext.exporters.perfetto.flow_ids import FlowIds
from profiler_ext.exporters.perfetto.host_arguments import HostArguments
from profiler_ext.exporters.perfetto.metadata import Names
from profiler_ext.exporters.perfetto.own_arguments import IntArgument
from profiler_ext.exporters.perfetto.packets import PacketWriter, Slices
from profiler_ext.exporters.perfetto.shared import Shared
from profiler_ext.exporters.perfetto.tracks import Tracks, profiler_group, with_rank
from profiler_ext.records import Events, Ints, MaskedInts, Recording, Settings, Thread

_PROFILER = "profiler"
_PIDS = 2**31
_RANK = 1000


def draw_host(
    writer: PacketWriter, tracks: Tracks, recording: Recording, rows: Ints, flows: FlowIds
) -> None:
    """Draw the CPU's events, nested as they were called.

    Args:
        writer: encodes the slices.
        tracks: describes the tracks.
        recording: the events, and what names the process.
        rows: which events to draw.
        flows: the flows that start at a row of ``Events``.
    """
    events, names = recording.trace.events, Names(recording.trace)
    slices = host_slices(writer, recording, rows, flows)
    parents = _Parents(tracks, names, recording.settings)
    threads = events.thread[rows]
    for index in np.unique(threads).tolist():
        thread = events.threads[index]
        parent = parents.of(thread.pid)
        name = _thread_name(names, thread)
        if _is_process(thread.pid) and isinstance(thread.tid, int):
            track = tracks.thread(int(thread.pid), thread.tid, name)
        else:
            track = tracks.track(name, parent)
        tracks.draw_calls(track, name, slices.some(np.flatnonzero(threads == index)))


def host_slices(writer: PacketWriter, recording: Recording, rows: Ints, flows: FlowIds) -> Slices:
    """Return the slices of events of the CPU.

    Args:
        writer: encodes what many of them share.
        recording: the events.
        rows: which events.
        flows: the flows that start at a row of ``Events``.
    """
    events, further = recording.trace.events, HostArguments(recording.trace)
    codes = (events.name.codes[rows], events.category.codes[rows])
    made = partial(_constant, writer, events, further)
    shared = Shared(further.keys(rows), lambda at: made(int(rows[at])), codes)
    ids = [IntArgument(name, column) for name, column in _id_columns(events).items()]
    start_ns, end_ns = events.start_ns[rows], events.end_ns[rows]
    return Slices(start_ns, end_ns, shared.constants, shared.of_row, rows, ids, (flows,))


def _constant(writer: PacketWriter, events: Events, further: HostArguments, row: int) -> bytes:
    return writer.constant(events.name[row], events.category[row], further.of(row))


def _id_columns(events: Events) -> dict[str, MaskedInts]:
    return {
        "external_id": events.external_id,
        "correlation": events.correlation,
        "sequence_number": events.sequence_number,
        "fwd_thread_id": events.fwd_thread_id,
        "bytes": events.bytes_moved,
    }


def _is_process(pid: int | str) -> bool:
    return isinstance(pid, int) and 0 <= pid < _PIDS


class _Parents:
    """The processes; what is no process is Kineto's own (its spans, its overhead)."""

    def __init__(self, tracks: Tracks, names: Names, settings: Settings) -> None:
        self._tracks = tracks
        self._names = names
        self._settings = settings
        self._known: dict[int | str, int] = {}

    def of(self, pid: int | str) -> int:
        key = pid if _is_process(pid) else _PROFILER
        if key not in self._known:
            self._known[key] = self._describe(key)
        return self._known[key]

    def _describe(self, key: int | str) -> int:
        if key == _PROFILER:
            return profiler_group(self._tracks, self._settings)
        name = " ".join((self._names.process(key), *self._settings.command))
        return self._tracks.process(
            int(key), with_rank(name, self._settings), _RANK + len(self._known)
        )


def _thread_name(names: Names, thread: Thread) -> str:
    if not isinstance(thread.tid, int):
        return thread.tid
    return names.thread(thread) if _is_process(thread.pid) else "overhead"
