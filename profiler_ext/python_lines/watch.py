"""The watch of the program's Python lines: callbacks that only append to a log.

Source: ``torch/nn/modules/module.py``, ``Module._wrapped_call_impl``: every module is called
through it, whatever its forward is.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any

from profiler_ext.isolation.hook_protocols import identity
from profiler_ext.python_lines.monitoring import RETURNING, Callback, Tool
from profiler_ext.python_lines.program_code import ProgramCode
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import ClockMark

ENTERED = 0
EXITED = -1
CALLED = -2
LINES_DISABLED = -3
NO_LINE = -4
THREAD_STARTED = -5
SNAPSHOT = -6

Log = list[Any]
"""Four for each entry: the time in nanoseconds, Python's id of the thread, the subject, and the
line or one of the numbers above.

The subject is code; for ``CALLED`` a reference to the module, for ``THREAD_STARTED`` and
``SNAPSHOT`` the system's id of the thread, as Python's is reused. A flat list costs less than a
tuple for each: the garbage collector need not visit them.
"""
WIDTH = 4

Entry = tuple[int, int, Any, int]


def entries(log: Iterable[Any]) -> Iterator[Entry]:
    """Yield the entries of a log, or of a part of it."""
    return zip(*[iter(log)] * WIDTH, strict=True)


class ThisThread(threading.local):
    """Logs that a thread has begun, when it is first used in it."""

    def __init__(self, log: Log, clock_ns: Callable[[], int]) -> None:
        log.extend((clock_ns(), threading.get_ident(), threading.get_native_id(), THREAD_STARTED))
        self.is_known = True


def frequent_code(some: Iterable[Entry], fraction: float) -> Iterator[CodeType]:
    """Yield the code that has at least a fraction of the lines in some entries."""
    counts: dict[int, int] = {}
    codes: dict[int, CodeType] = {}
    total = 0
    for _, _, subject, number in some:
        total += 1
        if number > 0:
            counts[id(subject)] = counts.get(id(subject), 0) + 1
            codes[id(subject)] = subject
    for code, count in counts.items():
        if count >= fraction * total:
            yield codes[code]


MAX_ENTRIES = 1 << 21
"""After so many, some 200 MB, the watch ends."""
_CHECK_EVERY_NS = 20_000_000
"""The interval between checks of the rate."""
_MIN_NS_PER_ENTRY = 1_500
"""Operators take longer; an entry costs a fifth of a microsecond."""
_FREQUENT = 1 / 8

_GLOBAL_EVENTS = ("PY_START", "PY_RESUME", "PY_THROW", "PY_UNWIND")
_PROGRAM_EVENTS = ("LINE", "PY_RETURN", "PY_YIELD")
_EVENTS_WITHOUT_LINES = ("PY_RETURN", "PY_YIELD")

StacksOfLines = Callable[[FrameType], Mapping[int, tuple[Frame, ...]]]
"""Returns the stacks that the lines of a frame's code were traced from, if that is a graph's."""

clock_ns = time.perf_counter_ns
_thread = threading.get_ident


class LineWatch:
    """Watches the lines of the program in all threads."""

    def __init__(
        self,
        program: ProgramCode,
        module_call: CodeType,
        failed: Callable[[Exception], None],
        stacks_of_lines: StacksOfLines = lambda _: {},
    ) -> None:
        # ``failed`` is called in the handler of a callback's error, and raises the program's own.
        self.log: Log = []
        self.clock: list[ClockMark] = []  # times on the watch's clock and the trace's
        self.is_full = self.has_failed = False
        self.end_ns = 0  # the end on its own clock
        self.traced: dict[int, Mapping[int, tuple[Frame, ...]]] = {}  # by the id of code
        self._program, self._module_call, self._failed = program, module_call, failed
        self._stacks_of_lines = stacks_of_lines
        self._watched: dict[int, CodeType] = {identity(module_call): module_call}
        self._tool: Tool | None = None
        self._last_check, self._next_check_ns = (0, 0), 0
        self._is_recording = False

    def begin(self) -> None:
        """Begin to watch."""
        self._tool = tool = Tool()
        self._last_check, self._next_check_ns = (clock_ns(), 0), clock_ns() + _CHECK_EVERY_NS
        tool.listen(self._callbacks(tool), _GLOBAL_EVENTS)
        tool.watch(self._module_call, _EVENTS_WITHOUT_LINES)

    def keep(self) -> None:
        """Drop the log, except for what stays true, and keep entries from here on."""
        if self._tool is not None:
            self._forget(clock_ns())
            self._is_recording = True
            tool = self._tool
            # The frame of this function must not be among them: a reference to itself would keep
            # everything in the program's frames alive until the next garbage collection.
            here = _thread()
            natives = {each.ident: each.native_id for each in threading.enumerate()}
            natives[here] = threading.get_native_id()  # a forked child's is still its parent's
            frames: dict[int, FrameType | None] = {**sys._current_frames(), here: sys._getframe(1)}
            for thread, frame in frames.items():
                if (native := natives.get(thread)) is not None and frame is not None:
                    self.log.extend((clock_ns(), thread, native, SNAPSHOT))
                    for subject, number in self._open(tool, frame, thread == here):
                        self.log.extend((clock_ns(), thread, subject, number))

    def _forget(self, time_ns: int) -> None:
        self.log[:] = [
            part
            for entry in entries(self.log)
            if entry[3] in (THREAD_STARTED, LINES_DISABLED)
            for part in entry
        ]
        self._last_check = (time_ns, len(self.log))

    def mark(self, event: Any) -> None:
        """Read the clock before and after an event of the profiler, a context manager."""
        before = clock_ns()
        with event:
            pass
        self.clock.append(ClockMark(len(self.clock), before, clock_ns()))

    def end(self) -> None:
        """Remove the tool; a second call completes an interrupted one."""
        tool = self._tool
        if tool is not None:
            self.end_ns = self.end_ns or clock_ns()
            tool.leave()
            self._tool = None

    def _callbacks(self, tool: Tool) -> dict[str, Callback]:
        """Make the callbacks, with what they use often in their cells."""
        here = ThisThread(self.log, clock_ns)
        entered, resumed = self._entering(tool, here), self._resuming(tool, here)
        left, watched, which = self._leaving(), self._watched, identity

        def thrown(code: CodeType, offset: int, _: BaseException) -> None:
            if which(code) in watched:
                resumed(code, offset, sys._getframe(1))

        def unwound(code: CodeType, offset: int, error: BaseException) -> None:
            if which(code) in watched:
                left(code, offset, error)

        return {
            "PY_START": entered,
            "PY_RESUME": resumed,
            "PY_THROW": thrown,
            "PY_UNWIND": unwound,
            "LINE": self._moving(tool),
            "PY_RETURN": left,
            "PY_YIELD": left,
        }

    def _entering(self, tool: Tool, here: ThisThread) -> Callback:
        now, thread, add, reference = clock_ns, _thread, self.log.extend, weakref.ref
        watched, call, which = self._watched, self._module_call, identity

        def entered(code: CodeType, _: int) -> Any:
            try:
                if which(code) not in watched and not self._begins(tool, code, sys._getframe(1)):
                    return tool.disable
                here.is_known  # noqa: B018
                time_ns = now()
                if code is call:
                    module = sys._getframe(1).f_locals["self"]
                    add((time_ns, thread(), reference(module), CALLED))
                else:
                    add((time_ns, thread(), code, ENTERED))
                if time_ns > self._next_check_ns:
                    self._check_rate(tool, time_ns)
            except Exception as error:
                self._fail(error)

        return entered

    def _resuming(self, tool: Tool, here: ThisThread) -> Callback:
        """Make the callback for a resumed generator, whose line no event has."""
        now, thread, add, which = clock_ns, _thread, self.log.extend, identity
        watched = self._watched

        def resumed(code: CodeType, _: int, frame: FrameType | None = None) -> Any:
            try:
                frame = frame or sys._getframe(1)
                if which(code) not in watched and not self._begins(tool, code, frame):
                    return tool.disable
                here.is_known  # noqa: B018
                time_ns, own = now(), thread()
                add((time_ns, own, code, ENTERED, time_ns, own, code, frame.f_lineno))
                if time_ns > self._next_check_ns:
                    self._check_rate(tool, time_ns)
            except Exception as error:
                self._fail(error)

        return resumed

    def _moving(self, tool: Tool) -> Callback:
        now, thread, add = clock_ns, _thread, self.log.extend

        def moved(code: CodeType, line: int) -> None:
            try:
                time_ns = now()
                add((time_ns, thread(), code, line))
                if time_ns > self._next_check_ns:
                    self._check_rate(tool, time_ns)
            except Exception as error:
                self._fail(error)

        return moved

    def _leaving(self) -> Callback:
        now, thread, add = clock_ns, _thread, self.log.extend

        def left(code: CodeType, _: int, __: object) -> None:
            try:
                add((now(), thread(), code, EXITED))
            except Exception as error:
                self._fail(error)

        return left

    def _begins(self, tool: Tool, code: CodeType, frame: FrameType) -> bool:
        """Watch code that runs for the first time, if it is the program's."""
        recomputes = self._program.recomputes(code)
        module = str(frame.f_globals.get("__name__", ""))
        if not recomputes and not self._program.holds(code.co_filename, module):
            if not (stacks := self._stacks_of_lines(frame)):
                return False
            self.traced[id(code)] = stacks
        self._watched[identity(code)] = code
        tool.watch(code, _EVENTS_WITHOUT_LINES if recomputes else _PROGRAM_EVENTS)
        return True

    def _check_rate(self, tool: Tool, time_ns: int) -> None:
        """Stop watching lines in code that runs them too fast."""
        since_ns, length = self._last_check
        self._next_check_ns = time_ns + _CHECK_EVERY_NS
        self._last_check = (time_ns, len(self.log))
        if len(self.log) >= WIDTH * MAX_ENTRIES:
            self.is_full = True
            self.end()
        elif (len(self.log) - length) * _MIN_NS_PER_ENTRY > (time_ns - since_ns) * WIDTH:
            for code in frequent_code(entries(self.log[length : self._last_check[1]]), _FREQUENT):
                tool.watch(code, _EVENTS_WITHOUT_LINES)
                self.log.extend((clock_ns(), _thread(), code, LINES_DISABLED))
        if not self._is_recording:
            self._forget(time_ns)

    def _open(self, tool: Tool, innermost: FrameType, is_here: bool) -> Iterator[tuple[Any, int]]:
        """Yield the entries that lead to where a thread is."""
        frames = [
            each
            for each in _outwards(innermost)
            if id(each) != RETURNING.frame
            and (identity(each.f_code) in self._watched or self._begins(tool, each.f_code, each))
        ]
        # Another thread goes on meanwhile, so the line of its innermost frame is unknown.
        for frame in reversed(frames):
            if frame.f_code is self._module_call:
                yield weakref.ref(frame.f_locals["self"]), CALLED
                continue
            is_line_known = is_here or frame is not frames[0]
            yield frame.f_code, ENTERED
            yield frame.f_code, frame.f_lineno if is_line_known else NO_LINE

    def _fail(self, error: Exception) -> None:
        """End the watch, unless the error is the program's; called in its handler."""
        try:
            self._failed(error)
        except Exception as raised:
            if raised is error:
                raise
        self.has_failed = True
        with suppress(Exception):  # tried again when the recording ends
            self.end()


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
