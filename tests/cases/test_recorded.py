"""Each case as an H200 ran it: nothing is lost, and what a person read of it holds.

What a recording shows row for row is in its gold file (``tests/gold``).
"""

from __future__ import annotations

import dataclasses
import gzip
import re
from collections import Counter

import numpy as np
import pytest

import profiler_ext
from profiler_ext.sessions.session import Session
from tests.cases.catalogue import CASES
from tests.cases.facts.claims import broken
from tests.cases.facts.table import FACTS, facts_of
from tests.cases.neutral import FOLDER, SUFFIX, neutral
from tests.cases.ranks import RANKED

RECORDED = sorted(path.name.removesuffix(SUFFIX) for path in FOLDER.glob(f"*{SUFFIX}"))
INFERENCE = {"scan", "while_loop"}
_NEUTRAL = {b"/src/", b"/venv/", b"/home/", b"/usr/", b"/tmp/"}
"""Where all paths of a fixture lie."""


def replayed(name: str) -> Session:
    return profiler_ext.load(FOLDER / f"{name}{SUFFIX}")


@pytest.fixture(scope="module", params=RECORDED)
def case(request) -> tuple[str, Session]:
    """One session at a time, for all tests of its case."""
    return request.param, replayed(request.param)


def test_the_shares_of_each_launch_add_up_to_it(case):
    analysis = case[1].analysis
    sums = np.zeros(len(analysis.launches), np.int64)
    np.add.at(sums, analysis.shares.launch, analysis.shares.duration_ns)
    assert sums.tolist() == analysis.launches.duration_ns.tolist()


def test_the_step_time_breakdown_of_each_step_adds_up_to_its_wall_time(case):
    analysis = case[1].analysis
    accounted: Counter[int] = Counter()
    for line in analysis.breakdown:
        accounted[line.step] += line.duration_ns
    assert accounted == {step.number: step.wall_ns for step in analysis.steps}


def test_what_was_read_in_the_models_source_holds(case):
    name, session = case
    assert broken(facts_of(name), session) == []


@pytest.mark.parametrize("name", RECORDED)
def test_a_fixture_names_no_folder_of_the_machine_that_recorded_it(name):
    text = gzip.decompress((FOLDER / f"{name}{SUFFIX}").read_bytes())
    assert neutral(text) == text
    assert set(re.findall(rb'"(/[a-z][\w.-]*/)', text)) <= _NEUTRAL


def test_each_case_has_facts_of_its_forward_and_of_its_backward():
    phases = {name: {fact.phase for fact in facts} for name, facts in FACTS.items()}
    both = {"forward", "backward"}
    without = {name: both - phases.get(name, set()) for name in {**CASES, **RANKED}}
    expected = {name: {"backward"} if name in INFERENCE else set() for name in without}
    assert without == expected


@pytest.mark.parametrize(
    "name", [name for name in RECORDED if name.startswith("cudagraphs") and "late" not in name]
)
def test_a_late_process_is_attributed_to_the_same_lines_by_the_kernels_that_a_run_kept(name):
    run = replayed(name)
    settled = dict(run.analysis.library_kernels)
    late = [
        dataclasses.replace(
            graph, library_kernels=(), stored_kernels=settled.get(at) or graph.library_kernels
        )
        for at, graph in enumerate(run.recording.graphs)
    ]
    session = Session(dataclasses.replace(run.recording, graphs=tuple(late)))
    columns = ["launch", "node", "file", "line", "duration_ns", "gap"]
    assert session.attribution()[columns].equals(run.attribution()[columns])
    assert "order_and_kernels_of_another_run" in set(session.launches().evidence.dropna())
