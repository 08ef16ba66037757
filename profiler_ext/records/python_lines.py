"""Owns what each thread of the program stood at while steps were recorded: positions in time.

A position is a line of a frame or the call of a module, within another position; so a frame's
whole stack is a chain, and stacks that begin alike share their beginning. Times are those of
the watch's own clock, which clock marks tie to the trace's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.records.events import Ints
from profiler_ext.records.lineage import ModuleFrame

_ON_DISK = np.dtype("<i8")
_NUMBERS_OF_A_PART = 4096  # no text in a file of ours may be long, and a thread has many positions

Packed = tuple[bytes, ...]
"""Numbers, ``int64``, in parts that a file may hold."""

MAX_POSITION_DEPTH = 4_096
"""So deep are positions at most; what lies deeper is one whose line is not known."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a thread stands: a line of a frame of the program, or the call of a module.

    Attributes:
        parent: index of the position that it lies within, ``None`` at the bottom of a thread.
        function: index of the frame's function, ``None`` for the call of a module.
        line: line of the frame; 0 where it is not known.
        module: index of the module that is called, ``None`` for a frame.
        code: text of the line, stripped; ``None`` where it is not known, or is very long.
    """

    parent: int | None
    function: int | None = None
    line: int = 0
    module: int | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the program, or of torch's that runs a forward again.

    Attributes:
        file: its file.
        name: its name.
        recomputes: it is torch's, and what it runs is a forward that a checkpoint runs again.
        is_compiled: at this line Dynamo's code for it calls what was compiled: that is of other
            lines, so what the function itself was called by is the last line that is known; or it
            may be one of several lines.
        resumes: it is Dynamo's code that goes on after a graph break, for the frame that called it.
    """

    file: str
    name: str
    recomputes: bool = False
    is_compiled: bool = False
    resumes: bool = False


@dataclass(frozen=True, slots=True)
class ThreadPositions:
    """The positions of one thread in order of time; each holds until the next.

    Attributes:
        thread: the system's id of the thread, as the trace has it.
        times: when each began, ``int64`` nanoseconds, each from the one before it.
        positions: index of each position, ``int64``; -1 where no code of the program runs.
    """

    thread: int
    times: Packed
    positions: Packed

    @property
    def times_ns(self) -> Ints:
        """When each position began."""
        return np.cumsum(_unpacked(self.times))

    @property
    def indices(self) -> Ints:
        """The positions."""
        return _unpacked(self.positions)


def thread_positions(thread: int, times_ns: list[int], positions: list[int]) -> ThreadPositions:
    """Pack the positions of a thread.

    Args:
        thread: the system's id of the thread.
        times_ns: when each began, in order.
        positions: which; as many.

    Returns:
        The positions as arrays.
    """
    return ThreadPositions(thread, _packed(np.diff(times_ns, prepend=0)), _packed(positions))


def _packed(numbers: Sequence[int] | Ints) -> Packed:
    starts = range(0, len(numbers), _NUMBERS_OF_A_PART)
    on_disk = np.asarray(numbers, dtype=_ON_DISK)
    return tuple(on_disk[at : at + _NUMBERS_OF_A_PART].tobytes() for at in starts)


def _unpacked(parts: Packed) -> Ints:
    return np.frombuffer(b"".join(parts), _ON_DISK).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ClockMark:
    """A moment on both clocks: the watch's just before and after an event of the trace.

    Attributes:
        number: the number in the event's name.
        before_ns: the watch's clock before the event began.
        after_ns: the same when the event was over.
    """

    number: int
    before_ns: int
    after_ns: int


@dataclass(frozen=True, slots=True)
class PythonLines:
    """The lines of the program that ran while steps were recorded.

    Attributes:
        functions: the functions of the program that ran.
        modules: the modules that were called, each by its path from the user's model; ``None``
            for one that was gone when the recording ended, or that the model which called it
            does not hold.
        positions: the positions; each after the one that it lies within.
        threads: when each thread was where.
        clock: moments on both clocks, in order.
        until_ns: when the watch ended; where anybody stood later is not known.
    """

    functions: tuple[Function, ...]
    modules: tuple[ModuleFrame | None, ...]
    positions: tuple[Position, ...]
    threads: tuple[ThreadPositions, ...]
    clock: tuple[ClockMark, ...]
    until_ns: int
