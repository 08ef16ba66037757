"""Owns what must hold between the fields of recorded lines that were read from a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from profiler_ext.records.python_lines import (
    MAX_POSITION_DEPTH,
    ClockMark,
    Position,
    PythonLines,
    ThreadPositions,
)

_MAX_VALUE = 2**62
"""What is added to a time, or to a difference of two, stays within 64 bits."""


def inconsistency_of_lines(lines: PythonLines) -> str | None:
    """Return what is wrong with recorded lines, ``None`` if nothing is."""
    return next(_lines_problems(lines), None)


def _lines_problems(lines: PythonLines) -> Iterator[str]:
    yield from _of_positions(lines)
    yield from _of_depths(lines.positions)
    for each in lines.threads:
        yield from (f"thread {each.thread}: {p}" for p in _of_thread(each, len(lines.positions)))
    yield from _of_clock(lines.clock, lines.until_ns)


def _of_positions(lines: PythonLines) -> Iterator[str]:
    for at, each in enumerate(lines.positions):
        if each.parent is not None and not 0 <= each.parent < at:
            yield f"position {at} lies within {each.parent}, expected one before it"
        if (each.function is None) is (each.module is None):
            yield f"position {at} is of a function and a module, or of none"
        if not _is_index(each.function, lines.functions) or not _is_index(
            each.module, lines.modules
        ):
            yield f"position {at} names a function or a module that is not there"
        if not 0 <= each.line < _MAX_VALUE:
            yield f"position {at} is at line {each.line}"


def _is_index(index: int | None, things: Sequence[object]) -> bool:
    return index is None or 0 <= index < len(things)


def _of_depths(positions: Iterable[Position]) -> Iterator[str]:
    depths: list[int] = []
    for each in positions:
        depths.append(1 + (0 if each.parent is None else depths[each.parent]))
    if max(depths, default=0) > MAX_POSITION_DEPTH:
        yield f"positions {max(depths)} deep, expected {MAX_POSITION_DEPTH} at most"


def _of_thread(thread: ThreadPositions, positions: int) -> Iterator[str]:
    if not _is_time(thread.thread):
        yield "no id of a thread"
    sizes = [sum(map(len, part)) for part in (thread.times, thread.positions)]
    if sizes[0] != sizes[1] or sizes[0] % 8:
        yield f"{sizes[0]} bytes of times and {sizes[1]} of positions, expected 8 for each"
        return
    indices, times = thread.indices, thread.times_ns
    if len(indices) and not -1 <= indices.min() <= indices.max() < positions:
        yield f"a position of {positions} that is not there"
    if len(times) and not -_MAX_VALUE < times.min() <= times.max() < _MAX_VALUE:
        yield "a time that is none"
    if (times[1:] < times[:-1]).any():
        yield "times that go back"


def _of_clock(clock: Iterable[ClockMark], until_ns: int) -> Iterator[str]:
    times = [until_ns, *(t for mark in clock for t in (mark.before_ns, mark.after_ns))]
    if not all(map(_is_time, times)):
        yield "a clock's time that is none"
    if any(mark.before_ns > mark.after_ns for mark in clock):
        yield "a clock that goes back"


def _is_time(time_ns: int) -> bool:
    return -_MAX_VALUE < time_ns < _MAX_VALUE
