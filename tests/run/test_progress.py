"""How far a run is: whole lines on standard error, that leave the script's own lines alone."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from profiler_ext.run import profiled_program
from profiler_ext.run.profiled_program import Progress
from tests.patience import patience_s


class Stream(io.StringIO):
    """A standard error that is a terminal or not."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal
        self.was_written = threading.Event()

    def isatty(self) -> bool:
        return self.is_terminal

    def flush(self) -> None:
        self.was_written.set()


class Clock:
    """Seconds that a test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def progress(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, *, is_terminal: bool
) -> tuple[Progress, Stream]:
    stream = Stream(is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    return Progress(clock), stream


def test_on_a_terminal_each_stage_is_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    made, stream = progress(monkeypatch, clock, is_terminal=True)
    made.begin("compilation and warm-up")
    stream.write("loss 2.1\n")
    made.go_on("step 1 of the warm-up")
    made.begin("recording starts at step 5")
    assert stream.getvalue() == (
        "profiler-ext: compilation and warm-up\n"
        "loss 2.1\n"
        "profiler-ext: recording starts at step 5\n"
    )


def test_without_a_terminal_there_is_a_line_each_half_minute(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    made, stream = progress(monkeypatch, clock, is_terminal=False)
    made.begin("compilation and warm-up")
    for number in range(100):
        clock.now_s += 1.0
        made.go_on(f"step {number} of the warm-up")
    assert stream.getvalue() == (
        "profiler-ext: step 29 of the warm-up (30 s so far)\n"
        "profiler-ext: step 59 of the warm-up (60 s so far)\n"
        "profiler-ext: step 89 of the warm-up (90 s so far)\n"
    )


def test_long_processing_is_reported_of_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(profiled_program, "_INTERVAL_S", 0.01)
    made, stream = progress(monkeypatch, clock, is_terminal=False)
    clock.now_s += 40
    before = set(threading.enumerate())
    made.processing(True)
    (speaker,) = set(threading.enumerate()) - before
    stream.was_written.clear()
    clock.now_s += 40
    assert stream.was_written.wait(patience_s(1))
    made.processing(False)
    speaker.join(patience_s(1))
    assert not speaker.is_alive()
    assert speaker.daemon
    assert stream.getvalue() == (
        "profiler-ext: processing the recording (40 s so far)\n"
        "profiler-ext: processing the recording (80 s so far)\n"
    )


def test_of_several_ranks_the_first_speaks(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setenv("RANK", "1")
    made, stream = progress(monkeypatch, clock, is_terminal=True)
    made.begin("compilation and warm-up")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_standard_error_that_cannot_be_written_harms_nothing(
    is_closed: bool, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    closed = Stream(is_terminal=True)
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed if is_closed else None)
    made = Progress(clock)
    clock.now_s += 60
    made.begin("compilation and warm-up")
