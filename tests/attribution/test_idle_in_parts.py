"""Idle time is cut and named some spans at a time, which changes nothing of what is found."""

from __future__ import annotations

import random
from typing import Any

import pytest

from profiler_ext.attribution import attribute
from profiler_ext.attribution.idle import idle_time, launching_threads, pieces
from profiler_ext.kineto.recording import read_recording
from profiler_ext.records.analysis import IdlePieces
from tests.attribution.idle_marks import (
    AUTOGRAD,
    MAIN,
    OTHER,
    annotation,
    causes,
    launch,
    op,
    ran,
)
from tests.attribution.recordings import FIXTURES
from tests.handmade import Mark

NAMES = {
    MAIN: ("aten::mul", "c10d::barrier", "autograd::engine::evaluate_function: MulBackward0"),
    AUTOGRAD: ("autograd::engine::evaluate_function: MulBackward0", "aten::mul"),
    OTHER: ("gloo:barrier", "aten::mul"),
}


def columns(idle: IdlePieces) -> dict[str, list[Any]]:
    numbers = ("step", "device", "span", "start_ns", "duration_ns", "place", "cause_place")
    texts = (idle.cause, idle.cpu_activity)
    reported = [[column[row] for row in range(len(column))] for column in texts]
    reported = {name: getattr(idle, name).tolist() for name in numbers}
    return reported | dict(zip(("cause", "cpu_activity"), reported, strict=True))


@pytest.mark.parametrize("case", ["eager_loader", "repeated_layers", "side_stream"])
def test_idle_time_is_the_same_however_many_spans_are_looked_at_at_once(case, monkeypatch):
    recording = read_recording(FIXTURES / "cases" / f"{case}.session.pt.trace.json.gz")
    whole = attribute(recording).idle
    monkeypatch.setattr(pieces, "_SPANS_AT_ONCE", 7)
    monkeypatch.setattr(idle_time, "_CUTS_AT_ONCE", 5)
    monkeypatch.setattr(launching_threads, "_SPANS_AT_ONCE", 4)
    assert columns(attribute(recording).idle) == columns(whole)


def program(chance: random.Random) -> list[Mark]:
    """Return what threads did that take turns, some of it at the same time."""
    marks, now = [annotation("ProfilerStep#1", 0, 10**9)], 10
    for number in range(1, 150):
        thread = chance.choice([MAIN, AUTOGRAD, OTHER])
        end = now + chance.choice([0, 5, 20])
        marks.append(op(chance.choice(NAMES[thread]), now, end, thread))
        if chance.random() < 0.3:
            marks += [launch(number, now, end, thread), ran(number, end + 5, end + 6)]
        now = chance.choice([now, end, end + 1, end + 30, end + 10**6 + 50])
    return marks


@pytest.mark.parametrize("seed", range(45))
def test_idle_time_is_the_same_wherever_the_time_of_the_cpu_is_cut(seed, monkeypatch):
    marks = program(random.Random(seed))
    whole = causes(*marks)
    monkeypatch.setattr(launching_threads, "_SPANS_AT_ONCE", 2)
    assert causes(*marks) == whole
