"""DDP's equal buckets as an H200 ran them: each call has its own layers, or is a gap."""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest

import profiler_ext
from profiler_ext.attribution import attribute
from profiler_ext.kineto import names
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Interned
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.sessions.session import Session
from tests.attribution.test_damaged_recordings import with_rows
from tests.cases.neutral import FOLDER, SUFFIX

LAYERS = 4
CALLS = 4  # two steps of two batches


@functools.lru_cache(maxsize=1)
def recorded() -> Session:
    return profiler_ext.load(FOLDER / f"ddp_buckets{SUFFIX}")


def graphs_of_one_key() -> dict[int, GraphInstance]:
    graphs = recorded().recording.graphs
    keys = [graph.key for graph in graphs]
    return {graph.index: graph for graph in graphs if keys.count(graph.key) > 1}


def layers(analysis: Analysis, launches: np.ndarray) -> set[str]:
    """Return the layers that launches are led to."""
    places = {int(at) for at in analysis.shares.place[np.isin(analysis.shares.launch, launches)]}
    modules = (analysis.places[at].module or "" for at in places)
    return {".".join(module.split(".")[:2]) for module in modules if module.startswith("blocks.")}


def test_there_are_equal_buckets_in_forward_and_in_backward():
    assert [graph.is_backward for graph in graphs_of_one_key().values()] == [
        False,
        False,
        True,
        True,
    ]


def test_every_call_of_a_bucket_has_the_layers_of_that_bucket():
    analysis = recorded().analysis
    nodes = {
        at: {module.path for node in graph.nodes for module in node.lineage.modules}
        for at, graph in graphs_of_one_key().items()
    }
    for at, modules in nodes.items():
        rows = np.flatnonzero(analysis.launches.graph.filled(-1) == at)
        assert len(rows) % CALLS == 0
        assert layers(analysis, rows) == {path for path in modules if path.count(".") == 1}
    forwards, backwards = list(nodes.values())[:2], list(nodes.values())[2:]
    assert forwards[0] != forwards[1]
    assert backwards[0] != backwards[1]


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_attention_runs_layer_by_layer(phase):
    """Data flow: a forward from the first to the last, a backward from the last to the first."""
    table = recorded().attribution().merge(recorded().launches()[["launch", "start_ns"]])
    attended = table[table.aten_op.str.startswith("aten._scaled_dot").fillna(False)]
    own = attended[attended.phase == phase].sort_values("start_ns").module
    order = [f"blocks.{at}.attention" for at in range(LAYERS)]
    expected = order if phase == "forward" else order[::-1]
    assert [module for module, _ in groupby(own)] == expected * CALLS


def test_the_backward_of_a_bucket_has_the_modules_of_its_forward():
    analysis, graphs = recorded().analysis, recorded().recording.graphs
    modules = {
        graph.index: {p.module for p in analysis.places if p.graph == graph.index and p.module}
        for graph in graphs
    }
    forwards = [modules[graph.index] for graph in graphs if not graph.is_backward]
    backwards = [modules[graph.index] for graph in graphs if graph.is_backward]
    assert all(forwards)
    assert backwards[::-1] == forwards


def test_without_the_marks_an_equal_bucket_is_a_gap_and_nothing_else_changes():
    recording = recorded().recording
    events = recording.trace.events
    rows = [row for row in range(len(events)) if not names.is_call_mark(events.name[row])]
    trace = replace(recording.trace, events=with_rows(events, rows))
    unmarked = replace(recording, trace=trace)
    before, after = recorded().analysis, attribute(unmarked)
    is_equal = np.isin(before.launches.graph.filled(-1), list(graphs_of_one_key()))
    assert 0 < is_equal.sum() < len(before.launches)
    assert set(_texts(after.launches.gap, is_equal)) == {"graph_ambiguous"}
    same = before.launches.graph.filled(-1)[~is_equal] == after.launches.graph.filled(-1)[~is_equal]
    assert same.all()
    assert set(_texts(after.launches.gap, ~is_equal)) == {""}


def _texts(column: Interned, rows: np.ndarray) -> list[str]:
    return [column[int(row)] for row in np.flatnonzero(rows)]
