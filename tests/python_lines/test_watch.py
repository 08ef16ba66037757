"""The watch runs in the program's frames: it keeps nothing of them, and nothing keeps it there."""

from __future__ import annotations

import gc
import itertools
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from types import FrameType

import pytest

from profiler_ext.errors import LinesUnavailableError
from profiler_ext.isolation.guard import Guard
from profiler_ext.python_lines import watch as watching
from profiler_ext.python_lines.monitoring import Tool
from profiler_ext.python_lines.program_code import ProgramCode
from profiler_ext.python_lines.watch import (
    ENTERED,
    EXITED,
    LINES_DISABLED,
    SNAPSHOT,
    THREAD_STARTED,
    WIDTH,
    LineWatch,
)
from tests.watched import needs_lines
from verification.faults.monitored import left_behind

pytestmark = needs_lines
CALL = (lambda: None).__code__


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Whatever happens, ``sys.monitoring`` is as it was."""
    assert left_behind() == []
    yield
    assert left_behind() == []


def new_watch() -> LineWatch:
    guard = Guard()
    return LineWatch(ProgramCode(()), CALL, lambda error: guard.caught("lines", error, ()))


def counted() -> int:
    return sum(1 for _ in range(3))


class Held:
    """Something of the program's."""


def test_what_frames_hold_that_are_open_is_gone_when_they_end() -> None:
    def begun() -> tuple[LineWatch, weakref.ref[Held]]:
        held = Held()
        found = new_watch()
        found.begin()
        found.keep()
        return found, weakref.ref(held)

    gc.disable()
    try:
        found, held = begun()
        assert held() is None
    finally:
        found.end()
        gc.enable()


def test_a_watch_that_is_over_keeps_no_code_but_in_its_log() -> None:
    space: dict[str, object] = {}
    exec(compile("def made():\n    return 1\n", __file__, "exec"), space)
    found = new_watch()
    found.begin()
    space["made"]()  # type: ignore[operator]
    found.end()
    function = weakref.ref(space.pop("made"))
    del found
    assert function() is None


def test_calls_that_come_too_fast_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MAX_ENTRIES", 1000)
    monkeypatch.setattr(watching, "_CHECK_EVERY_NS", 1000)
    monkeypatch.setattr(watching, "_PROGRAM_EVENTS", ("PY_RETURN", "PY_YIELD"))  # no line comes
    found = new_watch()
    found.begin()
    found.keep()
    for _ in range(2000):
        counted()
    assert found.is_full
    assert 1000 <= len(found.log) // WIDTH < 1100


def many_lines() -> None:
    for _ in range(20_000):
        pass


@pytest.mark.parametrize(("a_line_ns", "is_too_fast"), [(1_400, True), (1_600, False)])
def test_code_that_runs_lines_too_fast_is_observed_of_no_more(
    monkeypatch: pytest.MonkeyPatch, a_line_ns: int, is_too_fast: bool
) -> None:
    readings = itertools.count(0, a_line_ns)
    monkeypatch.setattr(watching, "clock_ns", lambda: next(readings))
    found = new_watch()
    found.begin()
    found.keep()
    stock = len(found.log)
    many_lines()
    many_lines()
    found.end()
    kept = zip(found.log[stock + 2 :: WIDTH], found.log[stock + 3 :: WIDTH], strict=True)
    numbers = [number for subject, number in kept if subject is many_lines.__code__]
    if is_too_fast:  # it is looked every 20 ms
        assert numbers[-4:] == [LINES_DISABLED, EXITED, ENTERED, EXITED]
        assert len(numbers) < 20_000_000 // a_line_ns
    else:
        assert LINES_DISABLED not in numbers
        assert len(numbers) == 2 * 40_003


def test_what_runs_before_the_recording_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_CHECK_EVERY_NS", 1000)
    found = new_watch()
    found.begin()
    for _ in range(2000):
        counted()
    assert len(found.log) // WIDTH < 100
    found.keep()
    stock = len(found.log)
    counted()
    found.end()
    assert found.log[stock + 2 :: WIDTH].count(counted.__code__) >= 3


def test_leaving_that_was_interrupted_is_done_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    found = new_watch()
    found.begin()
    counted()
    sound = Tool._unregister

    def interrupted(self: Tool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Tool, "_unregister", interrupted)
    with pytest.raises(KeyboardInterrupt):
        found.end()
    monkeypatch.setattr(Tool, "_unregister", sound)
    found.end()
    found.end()


def test_code_that_another_thread_comes_to_while_it_ends_is_not_watched() -> None:
    tool = Tool()
    tool.leave()
    tool.watch(counted.__code__, ("LINE",))


def test_an_exception_of_ours_ends_it_and_reaches_no_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = new_watch()
    found.begin()

    def failing(*_: object) -> bool:
        raise RuntimeError("ours")

    with pytest.warns(match="a capture hook failed"):
        monkeypatch.setattr(found, "_begins", failing)
        assert counted() == 3
    assert found.has_failed


def test_what_a_handler_of_the_programs_raises_reaches_it_and_ends_nothing() -> None:
    class Late(Exception):
        pass

    def late(number: int, frame: FrameType | None) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    found = new_watch()
    found.begin()
    try:
        for _ in range(50):
            with pytest.raises(Late):
                signal.setitimer(signal.ITIMER_REAL, 0.0005)
                while True:
                    counted()
        assert not found.has_failed
    finally:
        found.end()
        signal.signal(signal.SIGALRM, before)


def test_the_ids_that_have_an_owner_are_left_to_it() -> None:
    for number in (0, 1, 2, 5):
        sys.monitoring.use_tool_id(number, "its owner")
    try:
        found = new_watch()
        found.begin()
        found.end()
        sys.monitoring.use_tool_id(3, "one")
        sys.monitoring.use_tool_id(4, "another")
        with pytest.raises(LinesUnavailableError, match="serves one, another already"):
            new_watch().begin()
    finally:
        for number in range(6):
            sys.monitoring.free_tool_id(number)


def test_a_thread_that_begins_again_under_the_same_id_is_reported_by_the_systems() -> None:
    found = new_watch()
    found.begin()
    ended: list[int] = []
    for _ in range(3):
        thread = threading.Thread(target=counted)
        thread.start()
        thread.join()
        assert thread.native_id is not None
        ended.append(thread.native_id)
    found.end()
    entries = list(zip(*[iter(found.log)] * WIDTH, strict=True))
    natives = [subject for _, _, subject, number in entries if number in (THREAD_STARTED, SNAPSHOT)]
    assert [each for each in natives if each in ended] == ended
