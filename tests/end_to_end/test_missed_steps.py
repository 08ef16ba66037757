"""A step that torch's profiler did not count ends a run's recording: others were asked for."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from profiler_ext.errors import CaptureWarning
from profiler_ext.profiling import switch
from profiler_ext.run.outcome import failure_lines
from profiler_ext.run.program import Program
from profiler_ext.run.recorder import Recorder, _RunProfiler
from profiler_ext.run.request import Amount, Request
from profiler_ext.run.step_ends import StepEnds
from tests.compiling import fresh_torch

__all__ = ["fresh_torch"]
pytestmark = pytest.mark.usefixtures("fresh_torch")


def recorded(batches: int) -> tuple[list[Any], Recorder]:
    """Train, and record the second and third of its steps."""
    sessions: list[Any] = []
    switch.enable()
    capture = switch.current()
    assert capture is not None
    out = Path("out")
    request = Request(Program(__file__), out, Amount(1), Amount(2), lines=False)
    keep = lambda each, _: sessions.append(each)  # noqa: E731
    recorder = Recorder(capture, request, keep, lambda: None, (), out)
    recorder.start()
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight])
    for _ in range(batches):
        weight.square().sum().backward()
        optimizer.step()
    recorder.stop()
    return sessions, recorder


def fail_at(monkeypatch: pytest.MonkeyPatch, at: int, of: Any, name: str) -> None:
    """Have a method that ends steps fail once."""
    original, ended = getattr(of, name), itertools.count(1)

    def failing(*args: Any) -> Any:
        if next(ended) == at:
            raise RuntimeError("of ours")
        return original(*args)

    monkeypatch.setattr(of, name, failing)


def test_the_steps_that_were_asked_for_are_recorded() -> None:
    [session], _ = recorded(batches=5)
    assert [step.number for step in session.analysis.steps] == [1, 2]


def test_where_one_is_missed_before_them_none_is_recorded_and_why_is_reported(monkeypatch) -> None:
    fail_at(monkeypatch, 1, _RunProfiler, "step")
    sessions, recorder = recorded(batches=5)
    assert sessions == []
    [messages] = failure_lines(recorder)
    assert "the session could not be made (RuntimeError" in messages
    assert "of ours" in messages
    assert "trace" not in messages


def test_where_one_is_missed_among_them_those_before_it_are_kept(monkeypatch) -> None:
    fail_at(monkeypatch, 2, _RunProfiler, "step")
    [session], recorder = recorded(batches=5)
    assert [step.number for step in session.analysis.steps] == [1]
    assert failure_lines(recorder) != ()


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize(
    ("of", "name"), [(Recorder, "_step"), (StepEnds, "_end"), (StepEnds, "_eager_optimizer")]
)
def test_where_the_end_of_a_step_is_not_even_seen_none_later_is_recorded(
    monkeypatch, of: Any, name: str, at: int
) -> None:
    fail_at(monkeypatch, at, of, name)
    with pytest.warns(CaptureWarning, match="of ours"):
        sessions, recorder = recorded(batches=5)
    assert [step.number for each in sessions for step in each.analysis.steps] == [1][: at - 1]
    [messages] = failure_lines(recorder)
    assert messages.startswith("the end of a step was missed (RuntimeError")
