"""What a phase takes is one number, wherever a recorded session shows it."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import profiler_ext
from profiler_ext.exporters.html.data import report_data
from profiler_ext.exporters.html.sections import steps as steps_html
from profiler_ext.exporters.notebook import session_html
from profiler_ext.exporters.tensorboard_plugin.writing import make_document
from profiler_ext.exporters.views.formatting import short_phase, time_text
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.vocabulary import Phase
from profiler_ext.sessions.session import Session
from tests import frames as tables
from tests.frames import records
from tests.kineto.traces import H200

pytestmark = pytest.mark.sweep

SESSIONS = sorted(H200.parent.glob("**/*.session.pt.trace.json.gz"))
SUFFIX = ".session.pt.trace.json.gz"
PHASES = [phase.value for phase in Phase]
Times = Counter[str]


def _of_rows(rows: list[dict]) -> Times:
    return Counter({p: time for p in PHASES if (time := sum(row[p] for row in rows))})


def _of_shares(analysis: Analysis) -> Times:
    """The time of each phase by the shares alone, in the profiled steps."""
    in_step = ~np.ma.getmaskarray(analysis.launches.step)[analysis.shares.launch]
    phase = np.array([PHASES.index(place.phase) for place in analysis.places], np.int64)
    times = np.zeros(len(PHASES), np.int64)
    np.add.at(times, phase[analysis.shares.place[in_step]], analysis.shares.duration_ns[in_step])
    return Counter({p: time for p, time in zip(PHASES, times.tolist(), strict=True) if time})


def _of_tables(analysis: Analysis) -> dict[str, Times]:
    made = ("by_line", "by_module", "by_op", "by_kernel", "by_phase", "by_link", "by_mechanism")
    found = {name: _of_rows(records(getattr(tables, name)(analysis))) for name in made}
    rows = records(tables.by_phase(analysis))
    found["the rows of by_phase"] = Counter({r["phase"]: r["duration_ns"] for r in rows})
    parts = tables.attribution(analysis)
    launches = tables.launches(analysis).set_index("launch")
    inside = parts[parts.launch.map(launches.step).notna()]
    found["attribution"] = Counter(inside.groupby("phase").duration_ns.sum().to_dict())
    return found


def _of_json(session: Session) -> dict[str, Times]:
    found = {}
    for by in ("line", "module", "kernel"):
        rows = json.loads(session.report(by, top=None, format="json"))["rows"]
        found[f"JSON by {by}"] = sum((Counter(row["phases_ns"]) for row in rows), Times())
    rows = json.loads(session.report("phase", top=None, format="json"))["rows"]
    found["JSON by phase"] = Counter({row["phase"]: row["duration_ns"] for row in rows})
    return found


def _of_html(analysis: Analysis) -> Times:
    """The time of the icicle of each phase, as ``flame.js`` sums what the page carries."""
    data, _ = report_data([analysis], {})
    [whole] = [each for each in data["slices"] if each["rank"] is each["step"] is None]
    places = [place for site in whole["sites"] for place in data["sites"][site][-1]]
    found = Times()
    for place, time in zip(places, whole["times"], strict=True):
        found[data["phases"][data["places"][place][3]]] += time
    return +found


def _of_tensorboard(analysis: Analysis) -> dict[str, Times]:
    document = make_document(analysis)
    found = {}
    for name in ("line", "module", "kernel", "phase"):
        rows = getattr(document.tables, name)
        columns = zip(*(row.phase_ns for row in rows), strict=True)
        found[f"TensorBoard by {name}"] = +Counter(
            dict(zip(PHASES, map(sum, columns), strict=False))
        )
    return found


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: f"{path.parent.name}-{path.name[:-27]}")
def test_a_phase_takes_the_same_time_in_all_tables_formats_and_pages(path: Path) -> None:
    session = profiler_ext.load(path)
    [analysis] = session.analyses
    expected = _of_shares(analysis)
    found = {**_of_tables(analysis), **_of_json(session), **_of_tensorboard(analysis)}
    found["HTML"] = _of_html(analysis)
    assert {name: times for name, times in found.items() if times != expected} == {}
    _legend_says(expected, analysis)
    _launches_say(analysis)


def _legend_says(expected: Times, analysis: Analysis) -> None:
    """The legend of the steps, and their bars where there is one step, say the same."""
    page, steps = steps_html([analysis]), max(len(analysis.steps), 1)
    words = {phase: time_text(time / steps) for phase, time in expected.items()}
    legend = dict(re.findall(r'<span class="key (\w+)"></span>[a-z ]+ ([\d.,]+ \w+)</span>', page))
    legend.pop("idle", None)
    assert legend == (words if analysis.steps else {})
    if len(analysis.steps) == 1:
        bars = dict(re.findall(r'<span class="(\w+)" style="[^"]*" title="[a-z ]+ ([^"]+)"', page))
        assert {phase: bars.get(phase) for phase in words} == words


def _launches_say(analysis: Analysis) -> None:
    """The phase of a launch is the one with most of its time."""
    count = len(analysis.launches)
    times = np.zeros((count, len(PHASES)), np.int64)
    phase = np.array([PHASES.index(place.phase) for place in analysis.places], np.int64)
    at = (analysis.shares.launch, phase[analysis.shares.place])
    np.add.at(times, at, analysis.shares.duration_ns)
    own = [PHASES.index(analysis.launches.phase[row]) for row in range(count)]
    assert (times[np.arange(count), own] == times.max(axis=1)).all()


WITH_A_COLUMN = (Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE)


@pytest.mark.parametrize("name", ["gpt_compiled", "gpt_eager"])
def test_a_notebook_has_a_column_for_each_large_phase_and_one_for_the_rest(name: str) -> None:
    analyses = profiler_ext.load(H200 / "worked" / f"{name}{SUFFIX}").analyses
    lines = session_html(analyses).partition("forward</th>")[0].rpartition("<tr>")[2]
    rest = session_html(analyses).partition(lines)[2].partition("</tr>")[0]
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", lines + rest)
    spent = [phase for phase in Phase if _of_shares(analyses[0])[phase.value]]
    own = [short_phase(phase) for phase in spent if phase in WITH_A_COLUMN]
    assert len(spent) > len(own) + 1  # so that several phases are one column
    times = ["line", "time/step", "% busy"]
    assert heads == [*times, *own, "other", "roofline", "max saving"]
