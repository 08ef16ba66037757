"""Each case as an H200 ran it: replayed from the recording to the tables, nothing is lost."""

from __future__ import annotations

import dataclasses
import functools
import gzip
from collections import Counter

import numpy as np
import pytest

import profiler_ext
from profiler_ext.session import Session
from tests.cases.facts import broken
from tests.cases.neutral import FOLDER, SUFFIX, neutral

RECORDED = sorted(path.name.removesuffix(SUFFIX) for path in FOLDER.glob(f"*{SUFFIX}"))
each_case = pytest.mark.parametrize("name", RECORDED)


@functools.lru_cache(maxsize=1)
def replayed(name: str) -> Session:
    return profiler_ext.load(FOLDER / f"{name}{SUFFIX}")


@each_case
def test_the_shares_of_each_launch_add_up_to_it(name):
    analysis = replayed(name).analysis
    sums = np.zeros(len(analysis.launches), np.int64)
    np.add.at(sums, analysis.shares.launch, analysis.shares.duration_ns)
    assert sums.tolist() == analysis.launches.duration_ns.tolist()


@each_case
def test_the_ledger_of_each_step_adds_up_to_its_wall_time(name):
    analysis = replayed(name).analysis
    accounted: Counter[int] = Counter()
    for line in analysis.ledger:
        accounted[line.step] += line.duration_ns
    assert accounted == {step.number: step.wall_ns for step in analysis.steps}


@each_case
def test_a_fixture_names_no_folder_of_the_machine_that_recorded_it(name):
    text = gzip.decompress((FOLDER / f"{name}{SUFFIX}").read_bytes())
    assert neutral(text) == text
    assert b"/root/" not in text


@pytest.mark.parametrize("name", ["cudagraphs", "cudagraphs_autocast"])
def test_a_late_process_is_led_to_the_same_lines_by_the_kernels_that_a_run_kept(name):
    run = replayed(name)
    kept = dict(run.analysis.library_kernels)
    late = [
        dataclasses.replace(graph, library_kernels=(), stored_kernels=kept.get(at, ()))
        for at, graph in enumerate(run.recording.graphs)
    ]
    session = Session(dataclasses.replace(run.recording, graphs=tuple(late)))
    columns = ["launch", "node", "file", "line", "duration_ns", "gap"]
    assert session.attribution()[columns].equals(run.attribution()[columns])
    assert "order_and_kernels_of_another_run" in set(session.launches().evidence.dropna())


@each_case
def test_what_was_read_in_the_models_source_holds(name):
    assert broken(name, replayed(name)) == []
