"""The meaning of the watch's log: each thread's positions in time."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from profiler_ext.python_lines import watch
from profiler_ext.python_lines.program_code import ProgramCode, borrowed_lines, resumes
from profiler_ext.records import lineage, recording
from profiler_ext.source_paths import absolute, expand

NO_POSITION = -1
_MAX_LINE_CHARS = 4096
"""The longest line that is kept: a longer one was not written by a person."""
PathsOf = Callable[[Sequence[Any]], Sequence[tuple[lineage.ModuleFrame, int] | None]]
"""Returns the path and the model of each referenced module, ``None`` if it is gone."""


@dataclass(frozen=True, slots=True)
class TorchCode:
    """What is known of torch's code, and the code it writes."""

    module_call: CodeType  # through which every module is called
    knows_resumed: bool  # resume functions are known by their name
    source_lines: Callable[[CodeType], Mapping[int, int | None]]  # of code that Dynamo wrote
    # The stacks that lines of graphs' code were traced from, by the id of code
    traced: Mapping[int, Mapping[int, tuple[lineage.Frame, ...]]] = field(default_factory=dict)


def build_python_lines(
    log: watch.Log,
    clock: Sequence[recording.ClockMark],
    end_ns: int,
    torch_code: TorchCode,
    paths_of: PathsOf,
) -> recording.PythonLines:
    """Return each thread's positions from the log."""
    table = _Table(torch_code)
    walks = _ThreadWalks(table, torch_code.module_call)
    for entry in watch.entries(log):
        walks.take(entry)
    held = paths_of(table.modules.kept)
    positions = tuple(_mark_foreign(table.positions.kept, [each and each[1] for each in held]))
    are_foreign = any(each.module == len(held) for each in positions)
    return recording.PythonLines(
        functions=tuple(table.functions.kept),
        modules=(*(each and each[0] for each in held), *((None,) if are_foreign else ())),
        positions=positions,
        threads=tuple(walk.positions() for walk in walks.begun),
        clock=tuple(clock),
        end_ns=end_ns,
    )


def _mark_foreign(
    positions: Iterable[recording.Position], models: Sequence[int | None]
) -> Iterator[recording.Position]:
    """Yield positions; a module outside the outermost one's model gets the last number."""
    around: list[int | None] = []
    for position in positions:
        outermost = None if position.parent is None else around[position.parent]
        own = None if position.module is None else models[position.module]
        around.append(own if outermost is None else outermost)
        is_foreign = own is not None and own != around[-1]
        yield replace(position, module=len(models)) if is_foreign else position


class _Numbered:
    def __init__(self) -> None:
        self.kept: list[Any] = []
        self._index: dict[Hashable, int] = {}

    def index(self, key: Hashable, thing: Any) -> int:
        if key not in self._index:
            self._index[key] = len(self.kept)
            self.kept.append(thing)
        return self._index[key]


class _Table:
    def __init__(self, torch_code: TorchCode) -> None:
        self.functions, self.modules, self.positions = _Numbered(), _Numbered(), _Numbered()
        self._torch_code = torch_code
        self.without_lines: set[int] = set()
        self._frames: dict[tuple[int | None, int, int], int] = {}
        self._borrowed: dict[int, frozenset[int]] = {}
        self._source_lines: dict[int, Mapping[int, int | None]] = {}

    def frame(self, parent: int | None, code: CodeType, line: int) -> int:
        known = 0 if id(code) in self.without_lines else line
        traced = self._torch_code.traced.get(id(code))
        if traced is not None:
            return self._traced(parent, traced.get(known, ()))
        key = (parent, id(code), known)
        if key not in self._frames:
            self._frames[key] = self._new_frame(parent, code, known)
        return self._frames[key]

    def _traced(self, parent: int | None, stack: Iterable[lineage.Frame]) -> int:
        """Return the position of a graph's line: the stack that it was traced from."""
        for each in stack:
            function = recording.Function(expand(each.file), each.function, is_traced=True)
            number = self.functions.index(function, function)
            position = recording.Position(parent, number, each.line, code=each.code)
            parent = self.positions.index(position, position)
        return NO_POSITION if parent is None else parent

    def _borrows(self, code: CodeType, line: int) -> bool:
        if id(code) not in self._borrowed:
            self._borrowed[id(code)] = borrowed_lines(code, self._torch_code.knows_resumed)
        return line in self._borrowed[id(code)]

    def _new_frame(self, parent: int | None, code: CodeType, reported: int) -> int:
        if id(code) not in self._source_lines:
            self._source_lines[id(code)] = self._torch_code.source_lines(code)
        source_line = self._source_lines[id(code)].get(reported, reported)
        function = recording.Function(
            absolute(code.co_filename),
            code.co_name,
            ProgramCode.recomputes(code),
            source_line is None or self._borrows(code, reported),
            resumes(code),
        )
        line = reported if source_line is None else source_line
        text = linecache.getline(code.co_filename, line).strip()
        kept = text if 0 < len(text) <= _MAX_LINE_CHARS else None
        position = recording.Position(
            parent, self.functions.index(function, function), line, code=kept
        )
        return self.positions.index(position, position)

    def call(self, parent: int | None, module: Any) -> int:
        position = recording.Position(parent, module=self.modules.index(id(module), module))
        return self.positions.index(position, position)


class _Open:
    """An open frame, by its code, or a module's call, by its reference."""

    __slots__ = ("line", "subject")

    def __init__(self, subject: Any, line: int) -> None:
        self.subject = subject
        self.line = line


class _ThreadWalks:
    """The walks of all threads; thread ids are reused."""

    def __init__(self, table: _Table, module_call: CodeType) -> None:
        self.begun: list[_ThreadWalk] = []
        self._table, self._module_call = table, module_call
        self._of_thread: dict[int, _ThreadWalk] = {}

    def take(self, entry: watch.Entry) -> None:
        time_ns, thread, subject, number = entry
        if number in (watch.THREAD_STARTED, watch.SNAPSHOT):
            self._begin(thread, subject, number == watch.SNAPSHOT)
        elif number == watch.LINES_DISABLED:
            for walk in self._of_thread.values():
                walk.disable_lines(time_ns, subject)
        elif thread in self._of_thread:
            self._of_thread[thread].take(time_ns, subject, number)

    def _begin(self, thread: int, native: int, is_restart: bool) -> None:
        known = self._of_thread.get(thread)
        if known is not None and known.thread == native:
            if not is_restart:
                return
            self.begun.remove(known)
        self._of_thread[thread] = walk = _ThreadWalk(native, self._table, self._module_call)
        self.begun.append(walk)


class _ThreadWalk:
    """Follows what one thread did, with a stack of what is open."""

    def __init__(self, thread: int, table: _Table, module_call: CodeType) -> None:
        self.thread = thread
        self._table, self._module_call = table, module_call
        self._open: list[_Open] = []
        self._stack: list[int] = []
        self._times: list[int] = []
        self._positions: list[int] = []

    def positions(self) -> recording.ThreadPositions:
        return recording.thread_positions(self.thread, self._times, self._positions)

    def take(self, time_ns: int, subject: Any, number: int) -> None:
        if number in (watch.ENTERED, watch.CALLED):
            self._push(subject, number)
        else:
            # An exit, or a line, perhaps after frames whose end was not seen.
            if self._leave_to(subject):
                self._cut(len(self._open) - 1)
            if number != watch.EXITED:
                self._push(subject, max(number, 0))
        self._note(time_ns)

    def disable_lines(self, time_ns: int, code: CodeType) -> None:
        """Ignore the lines of a code from here on, also in open frames."""
        self._table.without_lines.add(id(code))
        opened, self._open, self._stack = self._open, [], []
        for each in opened:
            self._push(each.subject, each.line)
        self._note(time_ns)

    def _note(self, time_ns: int) -> None:
        position = self._stack[-1] if self._stack else NO_POSITION
        if not self._positions or self._positions[-1] != position:
            self._times.append(time_ns)
            self._positions.append(position)

    def _push(self, subject: Any, line: int) -> None:
        self._open.append(_Open(subject, line))
        self._stack.append(self._position(subject, line))

    def _position(self, subject: Any, line: int) -> int:
        parent, is_call, table = self._stack[-1:], line == watch.CALLED, self._table
        if len(self._stack) >= recording.MAX_POSITION_DEPTH:
            code = self._module_call if is_call else subject
            return table.frame(self._stack[recording.MAX_POSITION_DEPTH - 2], code, 0)
        around = parent[0] if parent and parent[0] != NO_POSITION else None
        return table.call(around, subject) if is_call else table.frame(around, subject, line)

    def _leave_to(self, code: CodeType) -> bool:
        """Leave what is open inside the innermost frame of a code, if there is one."""
        at = next((i for i in range(len(self._open), 0, -1) if self._is(i - 1, code)), 0)
        if at:
            self._cut(at)
        return bool(at)

    def _is(self, at: int, code: CodeType) -> bool:
        each = self._open[at]
        return each.line == watch.CALLED if code is self._module_call else each.subject is code

    def _cut(self, length: int) -> None:
        del self._open[length:]
        del self._stack[length:]
