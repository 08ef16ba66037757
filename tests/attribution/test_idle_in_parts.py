"""Idle time is cut and named some spans at a time, which changes nothing of what is found."""

from __future__ import annotations

from typing import Any

import pytest

from profiler_ext.attribution import attribute
from profiler_ext.attribution.idle import idle_time, pieces, windows
from profiler_ext.kineto.recording import read_recording
from profiler_ext.records import IdlePieces
from tests.attribution.recordings import FIXTURES


def columns(idle: IdlePieces) -> dict[str, list[Any]]:
    numbers = ("step", "device", "span", "start_ns", "duration_ns", "place", "cause_place")
    texts = (idle.cause, idle.cpu_activity)
    said = [[column[row] for row in range(len(column))] for column in texts]
    told = {name: getattr(idle, name).tolist() for name in numbers}
    return told | dict(zip(("cause", "cpu_activity"), said, strict=True))


@pytest.mark.parametrize("case", ["eager_loader", "repeated_layers", "side_stream"])
def test_idle_time_is_the_same_however_many_spans_are_looked_at_at_once(case, monkeypatch):
    recording = read_recording(FIXTURES / "cases" / f"{case}.session.pt.trace.json.gz")
    whole = attribute(recording).idle
    monkeypatch.setattr(pieces, "_SPANS_AT_ONCE", 7)
    monkeypatch.setattr(idle_time, "_CUTS_AT_ONCE", 5)
    monkeypatch.setattr(windows, "_SPANS_AT_ONCE", 4)
    assert columns(attribute(recording).idle) == columns(whole)
