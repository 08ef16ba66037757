"""Where an allocation on a GPU fails: what was alive is written before the program handles it."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from profiler_ext.errors import CaptureWarning
from profiler_ext.exporters.terminal.out_of_memory import line_of
from profiler_ext.file_io import read_regular
from profiler_ext.isolation.guard import Guard
from profiler_ext.isolation.locks import Lock
from profiler_ext.isolation.user_state import isolated
from profiler_ext.memory import out_of_memory
from profiler_ext.memory.out_of_memory import Moment, Program
from profiler_ext.memory.peak import workspace_bytes
from profiler_ext.printable import printable
from profiler_ext.profiling import MEMORY_VARIABLE
from profiler_ext.profiling.memory import (
    AWAITING,
    OWN,
    Names,
    Reading,
    Stacks,
    blocks_of,
    graph_pools,
    owners_of,
    saved_readings,
    segments_of,
)
from profiler_ext.records.memory import (
    AllocatorState,
    MemoryRecord,
    OutOfMemory,
    StackFrame,
)
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.records.recording import (
    MAX_MODULE_BYTES,
    GeneratedModule,
    Settings,
    generated_module,
)
from profiler_ext.sessions.folder import rank_folder
from profiler_ext.source_paths import library_roots, user_roots
from profiler_ext.torch_compat import device_memory

HOOK = "out of memory"
MAX_REPORTS = 3
"""Of a process: a program may go on with half the batch."""
_OOM, _FOLDER = "oom", "profile_out"
_NO_STACKS = (
    "blocks have no Python stack, as none are recorded outside the recorded steps: set "
    f"{MEMORY_VARIABLE}={_OOM} to have each block's line"
)


def is_requested() -> bool:
    """Tell whether the environment asks for reports; warns of any other value."""
    value = os.environ.get(MEMORY_VARIABLE, "")
    if value not in ("", "0", _OOM):
        what = f"{MEMORY_VARIABLE} is {value!r}, expected {_OOM}: no report is written"
        warnings.warn(what, CaptureWarning, stacklevel=2)
    return value == _OOM


@dataclass(eq=False)
class Reports:
    """The reports of this process."""

    guard: Guard = field(default_factory=Guard)
    folder: Path = Path(_FOLDER)
    roots: tuple[str, ...] = ()
    graphs: Callable[[], tuple[GraphInstance, ...]] = tuple
    is_watching: bool = field(default=False, init=False)
    count: int = field(default=0, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)
    _is_writing: bool = field(default=False, init=False)

    def watch(
        self, graphs: Callable[[], tuple[GraphInstance, ...]], *, stacks: bool = False
    ) -> None:
        """Write a report from here on where memory runs out.

        Args:
            graphs: gives the graphs that capture knows.
            stacks: give each block its Python stack, at some 2 us an allocation.
        """
        if stacks:
            self.guard.run(HOOK, device_memory.when_cuda_begins, self._begin_stacks)
        if not self.is_watching:
            self.is_watching, self.graphs = True, graphs
            self.folder = self.folder.absolute()  # the program may change the working folder
            self.roots = self.roots or user_roots()
            begin = self.guard.callback(HOOK, self._observe)
            self.guard.run(HOOK, device_memory.when_cuda_begins, begin)

    def _observe(self) -> None:
        why = device_memory.why_no_blocks()
        if why is None:
            observer = self.guard.callback(HOOK, self._ran_out)
            device_memory.observe_out_of_memory(observer)
        else:
            message = f"running out of memory leaves no report: {why}"
            warnings.warn(message, CaptureWarning, stacklevel=2)

    def _begin_stacks(self) -> None:
        self.guard.run(HOOK, device_memory.begin_stacks)

    def _ran_out(self, device: int, requested_bytes: int, *_: int) -> None:
        """Write a report; what runs out meanwhile, here or in another thread, leaves none."""
        native = self._lock.native
        if self.count >= MAX_REPORTS or not native.acquire(blocking=False):
            return
        try:
            if self._is_writing:
                return
            self._is_writing, self.count = True, self.count + 1
            try:
                moment = moment_of(device, requested_bytes, sys._getframe())
                with isolated():
                    self._write(moment)
            finally:
                self._is_writing = False
        finally:
            native.release()

    def _write(self, moment: Moment) -> None:
        report = self._report(moment)
        folder = self.folder / rank_folder()
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{out_of_memory.PREFIX}{report.process}_{report.number}{out_of_memory.SUFFIX}"
        out_of_memory.write(folder / name, report)
        _print(f"profiler-ext: {line_of(report)}; profiler-ext report --memory {folder / name}")

    def _report(self, moment: Moment) -> OutOfMemory:
        program = _with_code(Program(self._settings(), self.guard.run(HOOK, self.graphs) or ()))
        taken = device_memory.snapshot()["segments"]
        saved = saved_readings(device_memory.alive()[0])
        readings = [*(names := Names()).read(), *saved, *names.others]
        return out_of_memory.describe(
            record_of(taken, readings, has_stacks=device_memory.has_stacks()),
            moment,
            _state(moment.device),
            program,
            workspace_bytes=workspace_bytes(device_memory.major_capability(moment.device)),
            largest_free_bytes=_largest_free(taken, moment.device),
            other_processes_bytes=device_memory.use_of_other_processes(moment.device),
            time_ns=time.time_ns(),
            process=os.getpid(),
            number=self.count,
        )

    def _settings(self) -> Settings:
        rank = os.environ.get("RANK", "")
        return Settings(
            user_roots=self.roots,
            library_roots=library_roots(),
            command=tuple(map(str, sys.argv or ())),  # the program may have set anything
            rank=int(rank) if rank.isdecimal() else 0,
        )


REPORTS = Reports()


def moment_of(device: int, requested_bytes: int, frame: FrameType | None) -> Moment:
    """Return where this thread asks for memory, without our own frames."""
    main = threading.main_thread()
    caller = (
        None if threading.current_thread() is main else sys._current_frames().get(main.ident or 0)
    )
    return Moment(
        device,
        requested_bytes,
        _stack(frame),
        _stack(caller),
        device_memory.current_autograd_node(),
    )


def _stack(frame: FrameType | None) -> tuple[StackFrame, ...]:
    frames = (each for each in _outwards(frame) if not each.f_code.co_filename.startswith(OWN))
    return tuple(
        StackFrame(each.f_code.co_filename, each.f_lineno or 0, each.f_code.co_name)
        for each in frames
    )


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def record_of(
    segments: Sequence[dict[str, Any]], readings: Sequence[Reading], *, has_stacks: bool
) -> MemoryRecord:
    """Return what a snapshot's segments and a reading of owners tell."""
    stacks = Stacks()
    base = blocks_of(segments, stacks)
    return MemoryRecord(
        0,
        base=base,
        base_segments=segments_of(segments),
        awaiting=blocks_of(segments, stacks, AWAITING),
        graph_pools=tuple(graph_pools()),
        owners=owners_of([list(readings)]),
        frames=tuple(stacks.frames),
        stacks=tuple(stacks.stacks),
        missing=() if has_stacks else (_NO_STACKS,),
    )


def _with_code(program: Program) -> Program:
    """Return a program with the code that Inductor generated for its graphs."""
    paths = dict.fromkeys(each.output_module for each in program.graphs if each.output_module)
    return Program(program.settings, program.graphs, tuple(_modules(paths)))


def _modules(paths: Iterable[str]) -> Iterator[GeneratedModule]:
    for path in paths:
        with suppress(OSError):  # then its blocks have the gap ``no_call_site``
            text = read_regular(Path(path), MAX_MODULE_BYTES).decode("utf-8", "replace")
            yield generated_module(text, (path,))


def _state(device: int) -> AllocatorState:
    return next(AllocatorState(*each) for each in device_memory.counts() if each[0] == device)


def _largest_free(segments: Sequence[dict[str, Any]], device: int) -> int:
    """Return the largest block that is free outside of the pools of CUDA graphs."""
    own = (s for s in segments if s["device"] == device and not any(s.get("segment_pool_id", ())))
    free = (b["size"] for each in own for b in each["blocks"] if b["state"] == "inactive")
    return max(free, default=0)


def _print(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(printable(text) + "\n")
        sys.stderr.flush()
