"""Owns what the entries of the logs mean: each thread's positions in time."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Hashable, Iterable, Sequence
from types import CodeType
from typing import Any

from profiler_ext.files.paths import absolute
from profiler_ext.python_lines.logs import (
    CALLED,
    ENTERED,
    LEFT,
    SILENCED,
    Entry,
    ThreadLog,
)
from profiler_ext.python_lines.program_code import ProgramCode
from profiler_ext.records import (
    ClockMark,
    Function,
    ModuleFrame,
    Position,
    PythonLines,
    ThreadPositions,
    thread_positions,
)

PathsOf = Callable[[Sequence[Any]], Sequence[ModuleFrame | None]]


def laid_out(
    logs: Iterable[ThreadLog],
    clock: Sequence[ClockMark],
    until_ns: int,
    module_call: CodeType,
    paths_of: PathsOf,
) -> PythonLines:
    """Tell from what was written down where each thread stood.

    Args:
        logs: what was written down in each thread.
        clock: moments on both clocks.
        until_ns: when the watch ended.
        module_call: the code through which every module is called.
        paths_of: tells the paths of modules, given references to them.
    """
    table = _Table()
    threads = tuple(_Walk(table, module_call).through(log) for log in logs)
    return PythonLines(
        functions=tuple(table.functions.kept),
        modules=tuple(paths_of(table.modules.kept)),
        positions=tuple(table.positions.kept),
        threads=threads,
        clock=tuple(clock),
        until_ns=until_ns,
    )


class _Numbered:
    """Things in the order in which they came, each once."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self._index: dict[Hashable, int] = {}

    def index(self, key: Hashable, thing: Any) -> int:
        if key not in self._index:
            self._index[key] = len(self.kept)
            self.kept.append(thing)
        return self._index[key]


class _Table:
    """What all threads share."""

    def __init__(self) -> None:
        self.functions, self.modules, self.positions = _Numbered(), _Numbered(), _Numbered()

    def frame(self, parent: int | None, code: CodeType, line: int) -> int:
        function = Function(absolute(code.co_filename), code.co_name, ProgramCode.recomputes(code))
        text = linecache.getline(code.co_filename, line).strip() or None
        position = Position(parent, self.functions.index(function, function), line, code=text)
        return self.positions.index(position, position)

    def call(self, parent: int | None, module: Any) -> int:
        position = Position(parent, module=self.modules.index(id(module), module))
        return self.positions.index(position, position)


class _Open:
    """What a thread is in: a frame, by its code, or the call of a module, by its reference."""

    __slots__ = ("line", "subject")

    def __init__(self, subject: Any, line: int) -> None:
        self.subject = subject
        self.line = line


class _Walk:
    """Goes through one thread's log with the stack of what is open."""

    def __init__(self, table: _Table, module_call: CodeType) -> None:
        self._table, self._module_call = table, module_call
        self._open: list[_Open] = []
        self._positions: list[int | None] = []
        self._silenced: set[int] = set()

    def through(self, log: ThreadLog) -> ThreadPositions:
        times: list[int] = []
        positions: list[int] = []
        for entry in log.entries:
            self._take(entry)
            top = self._positions[-1] if self._positions else None
            position = -1 if top is None else top
            if not positions or positions[-1] != position:
                times.append(entry[0])
                positions.append(position)
        return thread_positions(log.thread, times, positions)

    def _take(self, entry: Entry) -> None:
        _, subject, number = entry
        if number == ENTERED:
            self._push(subject, 0)
        elif number == CALLED:
            self._push(subject, CALLED)
        elif number == LEFT:
            self._pop(subject)
        elif number == SILENCED:
            self._silence(subject)
        else:
            self._move(subject, max(number, 0))

    def _push(self, subject: Any, line: int) -> None:
        parent = self._positions[-1] if self._positions else None
        self._open.append(_Open(subject, line))
        self._positions.append(self._position(parent, subject, line))

    def _position(self, parent: int | None, subject: Any, line: int) -> int:
        if line == CALLED:
            return self._table.call(parent, subject)
        known = 0 if id(subject) in self._silenced else line
        return self._table.frame(parent, subject, known)

    def _move(self, code: CodeType, line: int) -> None:
        """Go on to a line; frames whose end was not seen are left."""
        if not self._leave_to(code):
            self._push(code, line)
            return
        self._open.pop()
        self._positions.pop()
        self._push(code, line)

    def _leave_to(self, code: CodeType) -> bool:
        """Leave what is open within the innermost frame of a code, if there is one."""
        at = next((i for i in range(len(self._open), 0, -1) if self._is(i - 1, code)), 0)
        if at:
            self._cut(at)
        return bool(at)

    def _is(self, at: int, code: CodeType) -> bool:
        each = self._open[at]
        if code is self._module_call:
            return each.line == CALLED
        return each.subject is code

    def _pop(self, code: CodeType) -> None:
        if self._leave_to(code):
            self._cut(len(self._open) - 1)

    def _cut(self, length: int) -> None:
        del self._open[length:]
        del self._positions[length:]

    def _silence(self, code: CodeType) -> None:
        """Know no lines of a code from here on; of each frame of it that is open, too."""
        self._silenced.add(id(code))
        opened, self._open, self._positions = self._open, [], []
        for each in opened:
            self._push(each.subject, each.line)
