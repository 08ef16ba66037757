"""Owns the watch itself: what is written down when a line of the program runs.

What is called back at each line runs within the program, so it does next to nothing: it adds an
entry to a list. What the entries mean is found out when the recording is over.

Source: ``torch/nn/modules/module.py``, ``Module._wrapped_call_impl``: every module is called
through it, whatever its forward is.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from profiler_ext.python_lines.logs import (
    CALLED,
    ENTERED,
    LEFT,
    NO_LINE,
    SILENCED,
    Entry,
    Logs,
    ThreadLog,
    frequent,
)
from profiler_ext.python_lines.monitoring import Callback, Tool
from profiler_ext.python_lines.program_code import ProgramCode
from profiler_ext.records import ClockMark

_LOOK_EVERY = 1 << 15
"""After so many entries of a thread it is looked whether they come too fast."""
_FASTEST_NS = 5_000
"""At a line in so many nanoseconds the watch costs the program some five hundredths of its time."""
MOST_ENTRIES = 1 << 21
"""Of one thread; some 200 MB. After them nothing is written down."""
_FREQUENT = 1 / 8

_EVERYWHERE = ("PY_START", "PY_RESUME", "PY_THROW", "PY_UNWIND")
_OF_PROGRAM = ("LINE", "PY_RETURN", "PY_YIELD")
_OF_SILENCED = ("PY_RETURN", "PY_YIELD")

clock_ns = time.perf_counter_ns


class LineWatch:
    """Watches the lines of the program in all threads.

    Attributes:
        clock: moments on the watch's clock and the trace's.
        is_full: there were more entries than are kept.
        until_ns: when it ended, on its own clock.
    """

    def __init__(
        self, program: ProgramCode, module_call: CodeType, failed: Callable[[Exception], None]
    ) -> None:
        """Prepare.

        Args:
            program: tells which code is watched.
            module_call: the code through which every module is called.
            failed: is told what went wrong in a callback, where it is handled; it raises what
                is the program's own.
        """
        self.clock: list[ClockMark] = []
        self.is_full = False
        self.until_ns = 0
        self._program, self._module_call, self._failed = program, module_call, failed
        self._watched: dict[int, CodeType] = {id(module_call): module_call}
        self._begun: list[ThreadLog] = []
        self._tool: Tool | None = None

    def begin(self) -> None:
        """Begin to watch.

        Raises:
            LinesUnavailableError: This Python cannot, or others are in the way.
        """
        self._tool = tool = Tool()
        known: dict[int, ThreadLog] = {}
        logs = Logs(known, self._begun)
        tool.listen(self._callbacks(tool, logs), _EVERYWHERE)
        tool.watch(self._module_call, _OF_SILENCED)
        known.update(self._under_way(tool))

    def mark(self, event: Any) -> None:
        """Read the clock before and after an event of the profiler, a context manager."""
        before = clock_ns()
        with event:
            pass
        self.clock.append(ClockMark(len(self.clock), before, clock_ns()))

    def end(self) -> list[ThreadLog]:
        """Leave Python as it was found; return what was written down."""
        self._leave()
        return self._begun

    def _leave(self) -> None:
        tool, self._tool = self._tool, None
        if tool is not None:
            self.until_ns = clock_ns()
            tool.leave()

    def _callbacks(self, tool: Tool, logs: Logs) -> dict[str, Callback]:
        """Make the callbacks; what they use again and again stands in their cells."""
        entered, left = self._entering(tool, logs), self._leaving(logs)

        def of_watched(callback: Callback) -> Callback:
            def heard(code: CodeType, *_: Any) -> None:
                if id(code) in self._watched:
                    callback(code)

            return heard

        return {
            "PY_START": entered,
            "PY_RESUME": entered,
            "PY_THROW": of_watched(entered),
            "PY_UNWIND": of_watched(left),
            "LINE": self._moving(tool, logs),
            "PY_RETURN": left,
            "PY_YIELD": left,
        }

    def _entering(self, tool: Tool, logs: Logs) -> Callback:
        now, watched, call, reference = clock_ns, self._watched, self._module_call, weakref.ref

        def entered(code: CodeType, *_: Any) -> Any:
            try:
                if id(code) not in watched and not self._begins(tool, code, sys._getframe(1)):
                    return tool.disable
                if code is call:
                    module = sys._getframe(1).f_locals["self"]
                    logs.entries.append((now(), reference(module), CALLED))
                else:
                    logs.entries.append((now(), code, ENTERED))
            except Exception as error:
                self._fail(error)

        return entered

    def _moving(self, tool: Tool, logs: Logs) -> Callback:
        now = clock_ns

        def moved(code: CodeType, line: int) -> None:
            try:
                entries = logs.entries
                entries.append((now(), code, line))
                if not len(entries) % _LOOK_EVERY:
                    self._look(tool, logs.log)
            except Exception as error:
                self._fail(error)

        return moved

    def _leaving(self, logs: Logs) -> Callback:
        now = clock_ns

        def left(code: CodeType, *_: Any) -> None:
            try:
                logs.entries.append((now(), code, LEFT))
            except Exception as error:
                self._fail(error)

        return left

    def _begins(self, tool: Tool, code: CodeType, frame: FrameType) -> bool:
        """Watch code that runs for the first time, if it is the program's."""
        recomputes = self._program.recomputes(code)
        module = str(frame.f_globals.get("__name__", ""))
        if not recomputes and not self._program.holds(code.co_filename, module):
            return False
        self._watched[id(code)] = code
        tool.watch(code, _OF_SILENCED if recomputes else _OF_PROGRAM)
        return True

    def _look(self, tool: Tool, log: ThreadLog) -> None:
        """Keep code that runs lines too fast from being slowed down by the watch."""
        entries = log.entries
        if len(entries) >= MOST_ENTRIES:
            self.is_full = True
            self._leave()
            return
        latest = entries[log.checked :]
        log.checked = len(entries)
        if latest[-1][0] - latest[0][0] < len(latest) * _FASTEST_NS:
            for code in frequent(latest, _FREQUENT):
                tool.watch(code, _OF_SILENCED)
                entries.append((clock_ns(), code, SILENCED))

    def _under_way(self, tool: Tool) -> dict[int, ThreadLog]:
        """Begin the logs of the threads that run already, with the frames that are open."""
        natives = {each.ident: each.native_id for each in threading.enumerate()}
        logs: dict[int, ThreadLog] = {}
        for thread, frame in sys._current_frames().items():
            native = natives.get(thread)
            if native is not None:
                is_here = thread == threading.get_ident()
                log = ThreadLog(native, list(self._open(tool, frame, is_here)))
                logs[thread] = log
                self._begun.append(log)
        return logs

    def _open(self, tool: Tool, innermost: FrameType, is_here: bool) -> Iterator[Entry]:
        """Yield entries that lead to where a thread stands.

        Another thread goes on meanwhile: the line of its innermost frame is not known.
        """
        frames = [each for each in _outwards(innermost) if self._is_watched(tool, each)]
        for frame in reversed(frames):
            if frame.f_code is self._module_call:
                yield clock_ns(), weakref.ref(frame.f_locals["self"]), CALLED
                continue
            is_sure = is_here or frame is not frames[0]
            yield clock_ns(), frame.f_code, ENTERED
            yield clock_ns(), frame.f_code, frame.f_lineno if is_sure else NO_LINE

    def _is_watched(self, tool: Tool, frame: FrameType) -> bool:
        return id(frame.f_code) in self._watched or self._begins(tool, frame.f_code, frame)

    def _fail(self, error: Exception) -> None:
        """Watch no more, unless the error is the program's; called where it is handled."""
        self._failed(error)
        self._leave()


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
