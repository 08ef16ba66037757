"""A quantity that stands in several places is the same number in all of them, of each recording."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from profiler_ext.comparison.comparison import compare
from profiler_ext.comparison.sides import RunOfRanks
from profiler_ext.exporters.html.steps import columns_of
from profiler_ext.exporters.tensorboard_plugin.writing import make_document
from profiler_ext.exporters.views.formatting import time_text
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.vocabulary import Scope
from profiler_ext.sessions.session import Session, load

pytestmark = pytest.mark.sweep

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED = sorted(FIXTURES.rglob("*session.pt.trace.json.gz"))
_MEAN = re.compile(r"^total +([\d.]+ \w+)", re.MULTILINE)
_TITLE = re.compile(
    r"^Top recommendations \(step (?:[\d.]+ \w+; )?([\d.]+ \w+)(?: while profiling)?\)$",
    re.MULTILINE,
)
_STEP = re.compile(r"^step (\d+): ([\d.]+ \w+), device busy ([\d.]+)%", re.MULTILINE)


def by_step(analysis: Analysis) -> dict[int, dict[str, int]]:
    """Return of each step the wall and the busy time of all devices, by the breakdown."""
    sums: dict[int, dict[str, int]] = defaultdict(lambda: {"wall": 0, "busy": 0})
    for line in analysis.breakdown:
        sums[line.step]["wall"] += line.duration_ns
        sums[line.step]["busy"] += line.duration_ns * (line.scope != Scope.IDLE)
    return dict(sums)


def devices_of(analysis: Analysis) -> int:
    return len({line.device for line in analysis.breakdown})


@pytest.fixture(scope="module", params=RECORDED, ids=lambda path: path.name.split(".session")[0])
def session(request: pytest.FixtureRequest) -> Session:
    return load(request.param)


def test_steps_add_up_to_the_window_and_the_breakdown_to_the_steps(
    session: Session,
) -> None:
    steps, devices = session.analysis.steps, devices_of(session.analysis)
    if not np.ma.getmaskarray(session.analysis.launches.stream).all():  # the CPU's marks have gaps
        assert [after.start_ns for after in steps[1:]] == [before.end_ns for before in steps[:-1]]
    walls = {number: times["wall"] for number, times in by_step(session.analysis).items()}
    assert walls == {step.number: devices * step.wall_ns for step in steps}


def test_idle_time_is_where_the_device_ran_nothing(session: Session) -> None:
    idle = session.analysis.idle
    pieces: dict[int, int] = defaultdict(int)
    for step, duration_ns in zip(idle.step.tolist(), idle.duration_ns.tolist(), strict=True):
        pieces[step] += duration_ns
    for number, times in by_step(session.analysis).items():
        assert pieces[number] == times["wall"] - times["busy"]


def test_every_surface_has_the_same_steps(session: Session) -> None:
    analysis, breakdown = session.analysis, by_step(session.analysis)
    answer = json.loads(session.report(format="json", top=1))
    assert [
        (each["step"], each["wall_ns"], each["busy_ns"]) for each in answer["session"]["steps"]
    ] == [(step.number, step.wall_ns, breakdown[step.number]["busy"]) for step in analysis.steps]
    page = [(c.first, c.walls_ns, c.busy_ns) for c in columns_of(analysis)]
    assert page == [(n, (t["wall"],), t["busy"]) for n, t in breakdown.items()]
    board = sum(account.duration_ns for account in make_document(analysis).breakdown)
    whole = sum(times["wall"] for times in breakdown.values())
    assert board == sum(row["duration_ns"] for row in answer["coverage"]["breakdown"]) == whole
    side = [RunOfRanks("one", (analysis,))]
    assert compare(side, side).total.base_ns == whole


def test_the_report_s_title_total_and_steps_agree(session: Session) -> None:
    analysis, text = session.analysis, session.report(width=160, verbose=True)
    mean_ns = sum(step.wall_ns for step in analysis.steps) / len(analysis.steps)
    devices = devices_of(analysis)
    (total,) = _MEAN.findall(text)
    assert total == time_text(devices * mean_ns)
    assert all(
        title == time_text(session.recommendations.step_ns) for title in _TITLE.findall(text)
    )
    longest = max(step.wall_ns for step in analysis.steps)
    if longest <= 2 * min(step.wall_ns for step in analysis.steps):
        assert session.recommendations.step_ns == int(mean_ns)
    shown = {int(number): (wall, busy) for number, wall, busy in _STEP.findall(text)}
    breakdown = by_step(analysis)
    for number, (wall, busy) in shown.items():
        assert wall == time_text(breakdown[number]["wall"] / devices)
        assert busy == f"{100 * breakdown[number]['busy'] / breakdown[number]['wall']:.1f}"
    assert len(shown) == (0 if len(analysis.steps) == 1 else min(len(analysis.steps), 8))
