"""Owns when a call of a model, or of a function of the program, is over: the outermost one.

Nothing of the program or of torch is replaced, and Dynamo has nothing to trace: ``sys.monitoring``
tells it, of the one code object through which torch calls modules, or of the function's own. A call
that ends by an exception ends no step. In Python 3.11 no call is told.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from profiler_ext.capture.traces.module_paths import user_class
from profiler_ext.errors import LinesUnavailableError
from profiler_ext.isolation.guard import Guard
from profiler_ext.python_lines.monitoring import Tool, returning
from profiler_ext.run.request import EndedBy, StepOn
from profiler_ext.torch_compat import process

CALL_ENDS = "step ends"
"""The hook that sees the calls end."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that was over.

    Attributes:
        ender: tells what was called from all else.
        words: what it is called, for a person.
        source: what a recording says of what ended its steps.
    """

    ender: object
    words: str
    source: str


class Outermost(threading.local):
    """The outermost call that runs on a thread.

    Attributes:
        frame: its frame, by its identity; ``None`` outside any.
        call: what is called.
    """

    def __init__(self) -> None:
        """Nothing runs yet."""
        self.frame: int | None = None
        self.call: Call | None = None

    @property
    def is_any(self) -> bool:
        """Whether one runs."""
        return self.frame is not None


class CallEnds:
    """Watches the calls that end steps."""

    def __init__(
        self, step_on: StepOn, outermost: Outermost, on_end: Callable[[Call], None], guard: Guard
    ) -> None:
        """Prepare.

        Args:
            step_on: what was asked to end a step.
            outermost: the call that runs on each thread.
            on_end: called when the outermost call is over.
            guard: what keeps failures from the program.
        """
        self._step_on, self._outermost = step_on, outermost
        self._on_end, self._guard = on_end, guard
        self._modules = step_on.by is EndedBy.FORWARD
        self._codes: dict[int, CodeType] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch; without ``sys.monitoring`` no call is told.

        Raises:
            LinesUnavailableError: Other tools have all its places.
        """
        try:
            self._tool = tool = Tool()
        except LinesUnavailableError as error:
            if not error.is_old:
                raise
            yield
            return
        try:
            self._listen(tool)
            yield
        finally:
            tool.leave()
            if not self._modules:
                tool.restart_events()

    def _listen(self, tool: Tool) -> None:
        guard = self._guard
        callbacks: dict[str, Callable[..., Any]] = {
            "PY_START": guard.callback(CALL_ENDS, self._module_begins),
            "PY_RETURN": guard.callback(CALL_ENDS, self._returns),
            "PY_UNWIND": guard.callback(CALL_ENDS, self._unwinds),
        }
        if self._modules:
            tool.listen(callbacks, ("PY_UNWIND",))
            self._watch(tool, process.module_call())
        else:
            callbacks["PY_START"] = self._any_code_begins
            tool.listen(callbacks, ("PY_START", "PY_UNWIND"))

    def _watch(self, tool: Tool, code: CodeType) -> None:
        self._codes[id(code)] = code
        tool.watch(code, ("PY_START", "PY_RETURN"))

    def _any_code_begins(self, code: CodeType, _: int) -> object:
        """Hear the function begin, and no more of all other code."""
        if code.co_qualname != self._step_on.name:
            return self._tool.disable
        self._guard.run(CALL_ENDS, self._function_begins, code, sys._getframe(1))
        return None

    def _function_begins(self, code: CodeType, frame: FrameType) -> None:
        if frame.f_globals.get("__name__") != self._step_on.module:
            return
        if id(code) not in self._codes:
            self._watch(self._tool, code)
        if not self._outermost.is_any:
            words = f"calls of {self._step_on}"
            self._begins(frame, Call(code.co_qualname, words, "function"))

    def _module_begins(self, code: CodeType, _: int) -> None:
        if self._outermost.is_any:
            return
        frame = _frame_of(code)
        module = None if frame is None else process.called_module(frame)
        if frame is None or not process.is_module(module):
            return
        name = user_class(module)
        if self._step_on.name in (None, name):
            ender = id(module) if self._step_on.name is None else name
            self._begins(frame, Call(ender, f"calls of {name}", "forward"))

    def _begins(self, frame: FrameType, call: Call) -> None:
        self._outermost.frame, self._outermost.call = id(frame), call

    def _returns(self, code: CodeType, _: int, __: object) -> None:
        frame = _frame_of(code) if self._outermost.is_any else None
        if (call := self._pop_outermost(frame)) is not None:
            with returning(frame):
                self._on_end(call)

    def _unwinds(self, code: CodeType, _: int, __: object) -> None:
        if id(code) in self._codes:
            self._pop_outermost(_frame_of(code))

    def _pop_outermost(self, frame: FrameType | None) -> Call | None:
        """Return the outermost call where that is what ends now."""
        outermost = self._outermost
        if frame is None or id(frame) != outermost.frame:
            return None
        call, outermost.frame, outermost.call = outermost.call, None, None
        return call


def _frame_of(code: CodeType) -> FrameType | None:
    """Return the frame that an event is of: the nearest one below us with its code."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame
