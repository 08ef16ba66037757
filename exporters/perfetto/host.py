"""Owns the CPU's side: a process with its threads, and every event that is not a device's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from profiler_ext.exporters.perfetto.host_arguments import HostArguments
from profiler_ext.exporters.perfetto.lanes import SliceContent, Span
from profiler_ext.exporters.perfetto.metadata import Names
from profiler_ext.exporters.perfetto.packets import Constant, PacketWriter
from profiler_ext.exporters.perfetto.tracks import Tracks, profiler_group, with_rank
from profiler_ext.records import Events, Recording, Settings, Thread

_PROFILER = "profiler"
_PIDS = 2**31
_RANK = 1000


def draw_host(
    writer: PacketWriter,
    tracks: Tracks,
    recording: Recording,
    rows: Mapping[int, list[int]],
    flows: Mapping[int, tuple[int, ...]],
) -> None:
    """Draw the CPU's events, nested as they were called.

    Args:
        writer: encodes the slices.
        tracks: describes the tracks.
        recording: the events, and what names the process.
        rows: rows to draw of each thread, by the thread's index.
        flows: ids of the flows that start at a row.
    """
    events, names = recording.trace.events, Names(recording.trace)
    spans = _HostSpans(writer, recording, flows)
    parents = _Parents(tracks, names, recording.settings)
    for index, chosen in sorted(rows.items()):
        thread = events.threads[index]
        parent = parents.of(thread.pid)
        name = _thread_name(names, thread)
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
        self, writer: PacketWriter, recording: Recording, flows: Mapping[int, tuple[int, ...]]
    ) -> None:
        events = recording.trace.events
        self._writer = writer
        self._events = events
        self._flows = flows
        self._constants: dict[tuple[object, ...], Constant] = {}
        self._further = HostArguments(recording.trace)
        self._starts: list[int] = events.start_ns.tolist()
        self._ends: list[int] = events.end_ns.tolist()
        self._ids = _id_columns(events)

    def of(self, rows: Iterable[int]) -> Iterator[Span]:
        return (Span(self._starts[row], self._ends[row], row, self._say) for row in rows)

    def _say(self, row: int) -> SliceContent:
        ids = {
            key: value for key, column in self._ids.items() if (value := column[row]) is not None
        }
        return SliceContent(self._constant(row), ids, self._flows.get(row, ()))

    def _constant(self, row: int) -> Constant:
        events, further = self._events, self._further.of(row)
        key = (events.name.codes[row], events.category.codes[row], *further.items())
        if key not in self._constants:
            constant = self._writer.constant(events.name[row], events.category[row], further)
            self._constants[key] = constant
        return self._constants[key]


def _id_columns(events: Events) -> dict[str, list[int | None]]:
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

    def __init__(self, tracks: Tracks, names: Names, settings: Settings) -> None:
        self._tracks = tracks
        self._names = names
        self._settings = settings
        self._known: dict[int | str, int] = {}

    def of(self, pid: int | str) -> int:
        key = pid if _is_process(pid) else _PROFILER
        if key not in self._known:
            self._known[key] = self._made(key)
        return self._known[key]

    def _made(self, key: int | str) -> int:
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
