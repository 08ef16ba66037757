"""What takes too long is found on any machine, and what is merely slow there is not."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from verification.hostile import reference, running
from verification.hostile.making import content, text


def reported(
    monkeypatch: pytest.MonkeyPatch, known_s: float, measured_s: float, takes_s: float = 0.5
) -> list[str]:
    """Return how a case ended where the good file took so long, and takes so long now."""

    def walk(path: Path, out: Path, ways: tuple[str, ...]) -> Any:
        yield "read", partial(_work, takes_s)

    monkeypatch.setattr("verification.hostile.ways.walk", walk)
    monkeypatch.setattr(running, "reference_s", lambda: measured_s)
    runs = running.run_case("half", content(text()), ("read",), known_s)
    return [run.outcome for run in runs]


def _work(takes_s: float) -> None:
    before = reference.used_s()
    while reference.used_s() < before + takes_s:
        pass


def test_what_takes_too_many_times_as_long_as_a_good_file_hangs(monkeypatch):
    assert reported(monkeypatch, 0.4 / 90, 0.4 / 90) == ["hang"]
    assert reported(monkeypatch, 0.6 / 90, 0.0) == ["read"]


def test_where_the_machine_has_become_busier_the_good_file_is_measured_again(monkeypatch):
    assert reported(monkeypatch, 0.4 / 90, 0.6 / 90) == ["read"]


def test_what_goes_on_for_ever_is_ended(monkeypatch):
    assert reported(monkeypatch, 0.04 / 90, 0.04 / 90, takes_s=1e9) == ["hang"]


def test_the_good_file_takes_time_and_large_files_may_take_more():
    assert reference.reference_s() > 0
    assert reference.times_allowed(0) == reference.times_allowed(10) < reference.times_allowed(100)
