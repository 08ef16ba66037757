"""What a file says of lines must hold together: else it is refused in a sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler_ext.errors import TraceError
from profiler_ext.kineto.recording import read_recording, write_recording
from profiler_ext.records.consistency import inconsistency_of_lines
from profiler_ext.records.lineage import ModuleFrame
from profiler_ext.records.recording import (
    MAX_POSITION_DEPTH,
    ClockMark,
    Function,
    Position,
    PythonLines,
    Recording,
    ThreadPositions,
    thread_positions,
)
from tests.analyses import gpu_step

LINES = PythonLines(
    functions=(Function("/m/a.py", "f"),),
    modules=(ModuleFrame("layers.0", "Linear"), None),
    positions=(Position(None, 0, 7), Position(0, module=1), Position(1, 0, 8)),
    threads=(thread_positions(5, [10, 20, 30], [0, 2, -1]),),
    clock=(ClockMark(0, 1, 2),),
    end_ns=40,
)
_WORD = np.array([1], "<i8").tobytes()


def again(tmp_path: Path, lines: PythonLines) -> Recording:
    path = tmp_path / "session.pt.trace.json.gz"
    write_recording(path, replace(gpu_step().recording, python=lines))
    return read_recording(path)


def test_lines_come_back_as_they_were(tmp_path: Path) -> None:
    assert again(tmp_path, LINES).python == LINES


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"positions": (Position(0, 0, 1),)}, "position 0 lies within 0, expected one before it"),
        ({"positions": (Position(-2, 0, 1),)}, "position 0 lies within -2, expected one before it"),
        ({"positions": (Position(None),)}, "position 0 is of a function and a module, or of none"),
        ({"positions": (Position(None, 3, 1),)}, "position 0 names a function or a module that"),
        ({"positions": (Position(None, module=-1),)}, "position 0 names a function or a module"),
        ({"positions": (Position(None, 0, -1),)}, "position 0 is at line -1"),
        ({"positions": ()}, "thread 5: a position of 0 that is not there"),
        ({"threads": (thread_positions(5, [9], [-2]),)}, "thread 5: a position of 3 that is not"),
        ({"threads": (thread_positions(5, [9, 8], [0, 1]),)}, "thread 5: times that go back"),
        ({"threads": (thread_positions(5, [2**62], [0]),)}, "thread 5: a time that is none"),
        ({"threads": (ThreadPositions(5, (_WORD[:3],), (_WORD[:3],)),)}, "3 bytes of times and 3"),
        ({"threads": (ThreadPositions(5, (_WORD,), ()),)}, "8 bytes of times and 0 of positions"),
        ({"threads": (thread_positions(2**63, [], []),)}, "no id of a thread"),
        ({"clock": (ClockMark(0, 5, 4),)}, "a clock that goes back"),
        ({"clock": (ClockMark(0, 5, 2**62),)}, "a clock's time that is none"),
        ({"end_ns": -(2**62)}, "a clock's time that is none"),
    ],
)
def test_lines_that_do_not_hold_together_are_inconsistent(
    changed: dict[str, Any], problem: str
) -> None:
    assert problem in (inconsistency_of_lines(replace(LINES, **changed)) or "nothing")


def test_a_file_with_such_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="profilerExt: position 0 lies within 0, expected one"):
        again(tmp_path, replace(LINES, positions=(Position(0, 0, 1),)))


def test_positions_are_so_deep_at_most(tmp_path: Path) -> None:
    def chain(length: int) -> tuple[Position, ...]:
        return tuple(Position(at - 1 if at else None, 0, 1) for at in range(length))

    deepest = replace(LINES, positions=chain(MAX_POSITION_DEPTH))
    assert again(tmp_path, deepest).python == deepest
    with pytest.raises(TraceError, match=f"positions {MAX_POSITION_DEPTH + 1:,}".replace(",", "")):
        again(tmp_path, replace(LINES, positions=chain(MAX_POSITION_DEPTH + 1)))
