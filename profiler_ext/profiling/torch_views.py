"""What torch's own methods give of a recording: the events of the program, without ours.

Its text is kept for :meth:`profile.export_chrome_trace`. However the process ends, a file is left
behind only where it was killed as that one was written or read.

The marks of steps and of calls stand in a session's trace, and with ``with_stack`` the calls of our
own functions, too. In what ``torch.profiler.profile`` gives (``events``, ``key_averages``,
``export_stacks``, ``export_chrome_trace``) the program finds what torch alone would have recorded.
"""

from __future__ import annotations

import gzip
import re
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, Rows
from profiler_ext.attribution.trace.nesting import nest
from profiler_ext.errors import OutputError
from profiler_ext.file_io import temporary_folder
from profiler_ext.isolation.guard import Guard
from profiler_ext.kineto import classify, names
from profiler_ext.kineto.classify import is_python
from profiler_ext.kineto.reader import read_trace
from profiler_ext.kineto.recording import write_trace
from profiler_ext.kineto.source import Text, read_text
from profiler_ext.profiling.lines import LineWatchingProfiler, RecordedLines
from profiler_ext.records.events import Ints, Trace, flag_rows
from profiler_ext.torch_compat import profilers

_PART_BYTES = 1 << 20
_ROOM_BYTES = 1 << 30
"""A trace of two million events is as large; torch says not before how large one will be."""
_END = b"}"


class RawTrace:
    """The trace of the last cycle."""

    _text: Text | None = None

    def __init__(self, *fallback_folders: Path) -> None:
        """Take where to have torch write, if not into the temporary folder."""
        self._fallback_folders = fallback_folders

    @contextmanager
    def written(self, write: Callable[[str], object]) -> Iterator[Path]:
        """Give torch's trace, which is to be read in the block; the last one is gone.

        Raises:
            OutputError: Torch can write into no folder for a while.
            TraceError: What it wrote cannot be read.
        """
        self._text = None
        cost = "what was recorded is lost"
        with temporary_folder(cost, *self._fallback_folders, room_bytes=_ROOM_BYTES) as folder:
            path = folder / "trace.json"
            write(str(path))
            text = read_text(path) if path.exists() and path.stat().st_size else b""
            if not _is_complete(text):
                raise _not_written(path)
            self._text = text
            yield path

    def copy_to(self, path: str) -> bool:
        """Copy it, compressed where the name ends with ``.gz``; tell whether there is one."""
        text = self._text
        if text is None:
            return False
        with gzip.open(path, "wb") if path.endswith(".gz") else open(path, "wb") as target:  # noqa: PTH123
            for begin in range(0, len(text), _PART_BYTES):
                target.write(text[begin : begin + _PART_BYTES])
        return True


def _is_complete(text: Text) -> bool:
    """Tell whether a text ends as a trace does."""
    return bytes(text[-_PART_BYTES:]).rstrip().endswith(_END)


def _not_written(path: Path) -> OutputError:
    """Torch says on standard error alone that it could not write, and not why."""
    what = "the whole of its trace" if path.exists() else "its trace"
    reason = ""
    try:
        (path.parent / "room").write_bytes(bytes(_PART_BYTES))
    except OSError as error:
        reason = f" ({error.strerror})"
    return OutputError(
        f"torch could not write {what} into {path.parents[1]}{reason}, so what was recorded is "
        "lost; make room there, or set TMPDIR to another folder"
    )


_CALL = re.compile(r"(?P<file>.+)\(\d+\): .+")
_MARKING = re.compile(r"torch/autograd/profiler\.py\(\d+\): __(?:init|enter|exit)__")
"""What a mark of a step calls: ``record_function``."""
_STEPPING = re.compile(r"torch/profiler/profiler\.py\(\d+\): (?:start|step|stop)")
_PACKAGE = Path(__file__).parents[1]
_GENERATED_PREFIXES = ("<built-in", "<frozen", "<string>", "<lambda>")
_PARENT = re.compile(rb'"Python parent id": (?:\d+|null)')
_NUMBER = re.compile(rb'"Python id": (\d+)')


@dataclass(frozen=True)
class OwnEvents:
    """Tells events of ours by their names.

    Attributes:
        has_steps: the marks of steps are ours, as torch has them only under a schedule.
    """

    has_steps: bool

    def is_mark(self, name: str) -> bool:
        """Tell whether an event marks a call, a moment on our clock, or a step."""
        is_step = self.has_steps and classify.is_step(name)
        return is_step or names.is_call_mark(name) or names.is_clock_mark(name)

    def remove_own(self, events: Any) -> None:
        """Take ours out of torch's list of events, in place; what lay within them moves up."""
        own = {id(each) for each in events or () if self._is_own(each)}
        if not own:
            return
        for each in events:
            if id(each) not in own:
                each.cpu_children = list(_flattened(each.cpu_children, own))
                while each.cpu_parent is not None and id(each.cpu_parent) in own:
                    each.cpu_parent = each.cpu_parent.cpu_parent
        events[:] = [each for each in events if id(each) not in own]

    def _is_own(self, event: Any) -> bool:
        """Tell of one of torch's events; who called tells of what Python itself did."""
        if self.is_mark(event.trace_name or event.name):  # its name says ProfilerStep*
            return True
        chain = [each.name for each in _outwards(event)]
        if self.has_steps and any(map(_marks_step, chain, chain[1:])):
            return True
        owners = (is_own for each in chain if (is_own := of_package(each)) is not None)
        return next(owners, False)

    def without_own_events(self, trace: Trace) -> Iterator[bytes] | None:
        """Return the JSON of each event of a trace but ours; ``None`` where none is ours."""
        events = trace.events
        python = flag_rows(events.category, is_python)
        nesting = nest(events, python)
        owners = np.array([_code(name) for name in events.name.strings], np.int8)[events.name.codes]
        owners[~python] = _PROGRAM
        owner = nesting.nearest(owners != _UNKNOWN)
        called = (owner != NO_ROW) & (owners[owner] == _OWN)
        if self.has_steps:
            calls = flag_rows(events.name, _is_of_record_function)
            above = flag_rows(events.name, _is_of_profiler)[nesting.parent]
            called |= nesting.nearest(calls & above & (nesting.parent != NO_ROW)) != NO_ROW
        marks = flag_rows(events.name, self.is_mark)
        own = marks & ~python | called & python
        if not own.any():
            return None
        return _kept(trace, own, nesting.parent, python)


def of_package(name: str) -> bool | None:
    """Tell whether a call of Python is of this package.

    Args:
        name: as torch has it: ``FILE(LINE): FUNCTION``, the file from a folder of ``sys.path`` on.

    Returns:
        ``None`` for a call of Python's own, which is of who called it.
    """
    match = _CALL.fullmatch(name)
    if match is None:
        return None if name.startswith(_GENERATED_PREFIXES) else False
    file = match["file"]
    if file.startswith(f"{_PACKAGE.name}/") or Path(file).is_relative_to(_PACKAGE):
        return True
    return None if file.startswith(_GENERATED_PREFIXES) or _is_of_python(file) else False


def _outwards(event: Any) -> Iterator[Any]:
    while event is not None:
        yield event
        event = event.cpu_parent


def _is_of_record_function(name: str) -> bool:
    return _MARKING.fullmatch(name) is not None


def _is_of_profiler(name: str) -> bool:
    return _STEPPING.fullmatch(name) is not None


def _marks_step(name: str, caller: str) -> bool:
    """Tell whether torch's profiler begins or ends the mark of a step."""
    return _is_of_record_function(name) and _is_of_profiler(caller)


_UNKNOWN, _PROGRAM, _OWN = range(3)


def _code(name: str) -> int:
    is_own = of_package(name)
    return _UNKNOWN if is_own is None else _OWN if is_own else _PROGRAM


@cache
def _is_of_python(file: str) -> bool:
    library = Path(sysconfig.get_path("stdlib"))
    return "-packages" not in file and (library / file).is_file()


def _flattened(events: Sequence[Any], own: set[int]) -> Iterator[Any]:
    """Yield events, and for one of ours what lies within it."""
    for each in events:
        if id(each) in own:
            yield from _flattened(each.cpu_children, own)
        else:
            yield each


def _kept(trace: Trace, own: Flags, parent: Rows, python: Flags) -> Iterator[bytes]:
    removed = np.zeros(len(trace.raw), np.bool_)
    removed[trace.events.position[own]] = True
    moved = _moved(trace, own, parent, python)
    positions = np.flatnonzero(~removed)
    for position, raw in zip(positions.tolist(), trace.raw.at(positions), strict=True):
        yield _PARENT.sub(moved[position], raw, count=1) if position in moved else raw


def _moved(trace: Trace, own: Flags, parent: Rows, python: Flags) -> dict[int, bytes]:
    """Return what calls of Python whose caller is gone say of their caller, by position."""
    rows: Ints = np.flatnonzero(python & ~own & (parent != NO_ROW) & own[parent])
    position, moved = trace.events.position, {}
    for row in rows.tolist():
        above = int(parent[row])
        while above != NO_ROW and (own[above] or not python[above]):
            above = int(parent[above])
        parent_id = None if above == NO_ROW else _NUMBER.search(trace.raw[int(position[above])])
        number = b"null" if parent_id is None else parent_id[1]
        moved[int(position[row])] = b'"Python parent id": ' + number
    return moved


VIEWS = "torch's views"
"""The hook that keeps our events out of what torch's methods give."""


class TorchViewsMixin(LineWatchingProfiler):
    """A profiler whose inherited methods give what torch's profiler would have."""

    def __init__(self, guard: Guard, lines: RecordedLines, **torch_options: Any) -> None:
        """Take the options of :class:`torch.profiler.profile`; each step gets a mark."""
        self._raw = RawTrace()
        self._trace: Trace | None = None
        super().__init__(guard, lines, **torch_options)
        self._own_events = OwnEvents(has_steps=not guard.run("steps", profilers.marks_steps, self))
        guard.run("steps", profilers.mark_steps, self)

    def read_written(self, write: Callable[[str], object]) -> Trace:
        """Return torch's trace of the cycle that is over; torch gives it away only once.

        Args:
            write: has torch write into a path.

        Raises:
            OutputError: Torch can write into no folder for a while.
            TraceError: What it wrote cannot be read.
        """
        self._trace = None
        with self._raw.written(write) as raw:
            self._trace = trace = read_trace(raw)
        return trace

    def events(self) -> Any:
        """Return what torch's :meth:`events` does, without events of ours."""
        events = super().events()  # type: ignore[no-untyped-call]
        self._guard.run(VIEWS, self._own_events.remove_own, events)
        return events

    def key_averages(self, *args: Any, **options: Any) -> Any:
        """Return what torch's :meth:`key_averages` does, without events of ours."""
        self.events()
        return super().key_averages(*args, **options)

    def export_stacks(self, *args: Any, **options: Any) -> Any:
        """Write what torch's :meth:`export_stacks` does, without events of ours."""
        self.events()
        return super().export_stacks(*args, **options)

    def export_chrome_trace(self, path: str, *args: Any, **options: Any) -> None:
        """Write the last cycle's trace as torch's :meth:`export_chrome_trace` would have.

        torch gives a trace away only once, and the session has taken it:
        https://github.com/pytorch/pytorch/issues/92855.
        """
        if self._guard.run(VIEWS, self._write_without_own_events, path):
            return
        if not self._raw.copy_to(path):
            super().export_chrome_trace(path, *args, **options)

    def _write_without_own_events(self, path: str) -> bool:
        """Write the last cycle's trace, where it has events of ours."""
        events = None if self._trace is None else self._own_events.without_own_events(self._trace)
        if self._trace is None or events is None:
            return False
        write_trace(Path(path), self._trace.header, events)
        return True
