"""A step is marked on both clocks where the last mark is long ago, and not in each short step."""

from __future__ import annotations

import pytest

from profiler_ext.isolation.guard import Guard
from profiler_ext.profiling import lines
from profiler_ext.profiling.lines import RecordedLines
from profiler_ext.python_lines import watch
from profiler_ext.python_lines.program_code import ProgramCode
from profiler_ext.python_lines.watch import LineWatch
from profiler_ext.records.recording import ClockMark

MS = 1_000_000


def watched() -> tuple[RecordedLines, LineWatch]:
    """Lines whose watch has not begun, which tells nothing but its marks."""
    found = RecordedLines(Guard(strict=True), is_wanted=True)
    found._watch = own = LineWatch(ProgramCode(()), watched.__code__, print)
    return found, own


def steps_until(at_ms: list[int], monkeypatch: pytest.MonkeyPatch, *, begun: bool) -> list[int]:
    """Return the numbers of the steps, by when each ends, that have a mark."""
    recorded, own = watched()
    own.clock += [ClockMark(0, 0, 0)] if begun else []
    marked = []
    for number, now_ms in enumerate(at_ms):
        for module in (lines, watch):
            monkeypatch.setattr(module, "clock_ns", lambda now_ms=now_ms: now_ms * MS)
        before = len(own.clock)
        recorded.end_step()
        marked += [number] * (len(own.clock) - before)
    return marked


def test_of_short_steps_one_in_a_tenth_of_a_second_is_marked(monkeypatch: pytest.MonkeyPatch):
    assert steps_until([*range(0, 260, 25)], monkeypatch, begun=True) == [5, 10]


def test_each_long_step_is_marked(monkeypatch: pytest.MonkeyPatch):
    assert steps_until([101, 203, 1000], monkeypatch, begun=True) == [0, 1, 2]


def test_a_step_before_the_recording_is_not(monkeypatch: pytest.MonkeyPatch):
    assert steps_until([101, 203, 1000], monkeypatch, begun=False) == []
