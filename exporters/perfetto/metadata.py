"""Owns the names of processes and threads, as the trace's own metadata events give them."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from profiler_ext.kineto.recording import as_written
from profiler_ext.kineto.strictness import strict
from profiler_ext.records import Ints, Thread, Trace
from profiler_ext.records.known_types import known

# Kineto writes "thread 4300 (pt_autograd_0)"; the viewer shows the number itself.
_NUMBERED = re.compile(r"thread -?\d+ \((.+)\)")


class _Args(msgspec.Struct):
    name: str = ""


class _Metadata(msgspec.Struct):
    ph: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    args: _Args = msgspec.field(default_factory=_Args)


class Names:
    """Answers what processes and threads are called."""

    def __init__(self, trace: Trace) -> None:
        # Most of the others are flows; only metadata events are worth decoding.
        texts = as_written(trace.raw).at(_other_positions(trace))
        others = [_decoded(raw) for raw in texts if b"_name" in raw]
        named = [each for each in others if each is not None and each.args.name]
        self._processes = {m.pid: m.args.name for m in named if m.name == "process_name"}
        self._threads: dict[tuple[int | str, int | str], list[str]] = {}
        for each in named:
            if each.name == "thread_name":
                self._threads.setdefault((each.pid, each.tid), []).append(_without_number(each.args.name))

    def process(self, pid: int | str) -> str:
        """Return a process' name; ``python`` where the trace has none."""
        return self._processes.get(pid, "python")

    def thread(self, thread: Thread) -> str:
        """Return a thread's name; where the trace has none, ``main`` or ``thread``."""
        names = self._threads.get((thread.pid, thread.tid), [])
        # Kineto may name a thread twice: once as its process, once as what it is.
        own = [name for name in names if name != self.process(thread.pid)]
        return next(iter(own + names), "main" if thread.tid == thread.pid else "thread")


def _without_number(name: str) -> str:
    numbered = _NUMBERED.fullmatch(name.strip())
    return numbered[1] if numbered else name.strip()


def _other_positions(trace: Trace) -> Ints:
    others = np.ones(len(trace.raw), np.bool_)
    others[trace.events.position] = False
    return np.flatnonzero(others)


def _decoded(raw: bytes) -> _Metadata | None:
    try:
        return msgspec.json.decode(strict(raw), type=known(_Metadata))
    except msgspec.ValidationError:
        return None  # a name that is no text names nothing
