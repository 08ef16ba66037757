"""The CPU side: processes, threads, and all events off the device."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import msgspec
import numpy as np

from profiler_ext.exporters.perfetto.annotations import Argument, IntArgument
from profiler_ext.exporters.perfetto.arguments import raw_arguments, reader
from profiler_ext.exporters.perfetto.encoding import Shared
from profiler_ext.exporters.perfetto.flows import Flows
from profiler_ext.exporters.perfetto.packets import PacketWriter, Slices
from profiler_ext.exporters.perfetto.tracks import Tracks, profiler_group, with_rank
from profiler_ext.kineto.raw_events import strict
from profiler_ext.kineto.recording import as_written
from profiler_ext.records.events import Events, Ints, Thread, Trace
from profiler_ext.records.recording import Recording, Settings
from profiler_ext.records.stored import known

# Kineto writes "thread 4300 (pt_autograd_0)"; the viewer shows the number itself.
_NUMBERED = re.compile(r"thread -?\d+ \((.+)\)")
_MAX_CHARS = 300
# Ids are columns already; the others are internal to the profiler.
_IDS = ("External id", "correlation", "Sequence number", "Fwd thread id", "bytes")
_NUMBERS = ("Record function id", "Ev Idx", "cbid", "Python id", "Python parent id")
_LEFT_OUT = frozenset((*_IDS, *_NUMBERS, "Python module id", "stack", "Input Strides"))
_OWN_PREFIX = "compile."
_NOT_A_WORD = re.compile(r"\W+")
# The only arguments of most events.
_INPUTS = {"Input Dims": "dims", "Input type": "types", "Concrete Inputs": "concrete"}
_READ_USUAL = reader({**_INPUTS, "Input Strides": "strides"}, (*_IDS, *_NUMBERS), no_others=True)
_PROFILER = "profiler"
_PIDS = 2**31
_RANK = 1000


class _Args(msgspec.Struct):
    name: str = ""


class _Metadata(msgspec.Struct):
    ph: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    args: _Args = msgspec.field(default_factory=_Args)


class Names:
    """Names of processes and threads."""

    def __init__(self, trace: Trace) -> None:
        # Most of the others are flows; only metadata events are worth decoding.
        is_other = np.ones(len(trace.raw), np.bool_)
        is_other[trace.events.position] = False
        texts = as_written(trace.raw).at(np.flatnonzero(is_other))
        others = [_decoded(raw) for raw in texts if b"_name" in raw]
        named = [each for each in others if each is not None and each.args.name]
        self._processes = {m.pid: m.args.name for m in named if m.name == "process_name"}
        self._threads: dict[tuple[int | str, int | str], list[str]] = {}
        for each in named:
            if each.name == "thread_name":
                name = each.args.name
                numbered = _NUMBERED.fullmatch(name.strip())
                without_number = numbered[1] if numbered else name.strip()
                self._threads.setdefault((each.pid, each.tid), []).append(without_number)

    def process(self, pid: int | str) -> str:
        """Return a process's name, ``python`` by default."""
        return self._processes.get(pid, "python")

    def thread(self, thread: Thread) -> str:
        """Return a thread's name, ``main`` or ``thread`` by default."""
        names = self._threads.get((thread.pid, thread.tid), [])
        # Kineto may name a thread twice: once as its process, once as what it is.
        own = [name for name in names if name != self.process(thread.pid)]
        return next(iter(own + names), "main" if thread.tid == thread.pid else "thread")


def _decoded(raw: bytes) -> _Metadata | None:
    try:
        return msgspec.json.decode(strict(raw), type=known(_Metadata))
    except msgspec.ValidationError:
        return None  # a name that is no text names nothing


class _Event(msgspec.Struct, gc=False):
    args: dict[str, msgspec.Raw] = {}


_DECODE = msgspec.json.Decoder(_Event).decode


class HostArguments:
    """The recorded arguments of CPU events, without ids."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._kept: dict[tuple[str, ...], tuple[str, ...]] = {}

    def of(self, row: int) -> dict[str, Argument]:
        """Return an event's arguments; long texts are cut."""
        decoded = raw_arguments(self._trace.raw[int(self._trace.events.position[row])])
        return {
            _argument_name(key): _argument(decoded[key])
            for key in self._kept_of(decoded)
            if _is_nonempty(decoded[key])
        }

    def keys(self, rows: Ints) -> Iterator[Hashable]:
        """Yield for each event a key of its arguments."""
        for raw in as_written(self._trace.raw).at(self._trace.events.position[rows]):
            try:
                usual = _READ_USUAL(raw).args
            except msgspec.DecodeError:
                yield self._key_of_unusual(raw)
                continue
            # It stays text, most of which is known.
            says = usual.dims or usual.types or usual.concrete
            yield (bytes(usual.dims), bytes(usual.types), bytes(usual.concrete)) if says else None

    def _key_of_unusual(self, raw: bytes) -> Hashable:
        try:
            decoded = _DECODE(raw).args
        except msgspec.DecodeError:
            return raw
        kept = self._kept_of(decoded)
        return (kept, *[bytes(decoded[key]) for key in kept]) if kept else None

    def _kept_of(self, decoded: Mapping[str, object]) -> tuple[str, ...]:
        """Return which arguments to show, cached by the event's argument names."""
        names = tuple(decoded)
        kept = self._kept.get(names)
        if kept is None:
            some = (name for name in names if name not in _LEFT_OUT)
            kept = tuple(name for name in some if not name.startswith(_OWN_PREFIX))
            self._kept[names] = kept
        return kept


@cache
def _argument_name(key: str) -> str:
    return _NOT_A_WORD.sub("_", key.lower()).strip("_")


def _is_nonempty(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_nonempty, value))
    return value is not None and value not in ("", {})


def _argument(value: Any) -> Argument:
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, float):
        return value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 1]}…"


def draw_host(writer: PacketWriter, tracks: Tracks, recording: Recording, flows: Flows) -> None:
    """Draw the CPU events, nested as they were called."""
    events, names, rows = recording.trace.events, Names(recording.trace), flows.host_rows
    slices = host_slices(writer, recording, flows)
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


def host_slices(writer: PacketWriter, recording: Recording, flows: Flows) -> Slices:
    """Return the slices of CPU events."""
    events, further = recording.trace.events, HostArguments(recording.trace)
    rows = flows.host_rows
    codes = (events.name.codes[rows], events.category.codes[rows])
    made = partial(_constant, writer, events, further, flows.call_names)
    shared = Shared(further.keys(rows), lambda at: made(int(rows[at])), codes)
    ids = [
        IntArgument("external_id", events.external_id),
        IntArgument("correlation", events.correlation),
        IntArgument("sequence_number", events.sequence_number),
        IntArgument("fwd_thread_id", events.fwd_thread_id),
        IntArgument("bytes", events.bytes_moved),
    ]
    start_ns, end_ns = events.start_ns[rows], events.end_ns[rows]
    return Slices(start_ns, end_ns, shared.constants, shared.of_row, rows, ids, (flows.from_host,))


def _constant(
    writer: PacketWriter,
    events: Events,
    further: HostArguments,
    call_names: Mapping[str, str],
    row: int,
) -> bytes:
    name = call_names.get(events.name[row], events.name[row])
    return writer.constant(name, events.category[row], further.of(row))


def _is_process(pid: int | str) -> bool:
    return isinstance(pid, int) and 0 <= pid < _PIDS


class _Parents:
    """The process groups; what has no process id is Kineto's own (spans, overhead)."""

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
