"""Attribution of what an H200 recorded: launch order is call-site order, exactly."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from profiler_ext.attribution import attribute
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.vocabulary import SiteKind
from tests.attribution.reading import assert_conserves, rows
from tests.attribution.recordings import KEYS, recording


def _analysis(name: str) -> Analysis:
    return attribute(recording(name))


@pytest.fixture(params=sorted(KEYS))
def analysis(request) -> Analysis:
    return _analysis(request.param)


def _generated_sites(analysis: Analysis) -> list[tuple[int, int]]:
    return [
        (graph.index, site.ordinal)
        for graph in analysis.recording.graphs
        for site in graph.provenance.call_sites
        if site.kind is SiteKind.TRITON
    ]


def test_no_time_is_lost(analysis):
    assert_conserves(analysis)


def test_every_device_event_is_a_launch(analysis):
    category = analysis.recording.trace.events.category
    work = category.where("kernel", "gpu_memcpy", "gpu_memset")
    assert sorted(analysis.launches.event.tolist()) == np.flatnonzero(work).tolist()


def test_every_generated_call_site_ran_once_a_step_in_order(analysis):
    found = [
        (graph, site)
        for kind, graph, site in rows(analysis, "kind", "graph", "call_site")
        if kind == "triton"
    ]
    assert Counter(found) == dict.fromkeys(_generated_sites(analysis), 2)
    for graph in (0, 1):
        own = [site for at, site in found if at == graph]
        assert own[: len(own) // 2] == own[len(own) // 2 :] == sorted(own)[::2]


def test_every_generated_kernel_is_at_the_call_site_of_its_name(analysis):
    graphs = analysis.recording.graphs
    for name, kind, graph, site in rows(analysis, "name", "kind", "graph", "call_site"):
        if kind == "triton":
            assert graphs[graph].provenance.call_sites[site].kernel == name


@pytest.mark.parametrize(
    ("name", "in_lines", "in_ops", "without_line"),
    [("default", 438, 2, 2), ("llama", 384, 26, 10), ("ckpt", 518, 2, 34)],
)
def test_without_replay_nothing_in_a_graph_is_left_over(name, in_lines, in_ops, without_line):
    assert Counter(rows(_analysis(name), "level", "gap")) == {
        ("line", ""): in_lines,
        ("op", ""): in_ops,
        ("op", "no_source_line"): without_line,
    }


def test_in_a_replay_only_runs_of_library_calls_with_helpers_stay_open():
    analysis = _analysis("cg")
    gaps = Counter(gap for (gap,) in rows(analysis, "gap") if gap)
    assert gaps == {"ambiguous_extern_run": 34, "wrapper_glue": 4, "no_source_line": 2}
    compiled = {
        line.category: line.duration_ns for line in analysis.breakdown if line.scope == "compiled"
    }
    assert compiled == {
        "line": 1_183_139,
        "no_source_line": 6_400,
        "ambiguous_extern_run": 139_198,
        "wrapper_glue": 5_887,
    }


def test_launches_of_both_steps_have_the_same_call_sites(analysis):
    found = [row for row in rows(analysis, "graph", "call_site", "phase") if row[1] is not None]
    assert all(count % 2 == 0 for count in Counter(found).values())


def test_phases_of_a_checkpointed_model():
    phases = Counter(rows(_analysis("ckpt"), "kind", "phase"))
    assert phases[("triton", "recompute")] == 100
    # The seed of the backward pass, `ones_like`, belongs to no part of the step.
    assert {phase for _, phase in phases} == {"forward", "backward", "recompute", "other"}


def test_an_eager_optimizer_is_seen():
    kinds = Counter(rows(_analysis("llama"), "kind", "phase", "evidence"))
    assert kinds[("eager", "optimizer", "optimizer_range")] == 6
