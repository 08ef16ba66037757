"""The whole way from a hand-made recording to an analysis, on a device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.attribution import attribute
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap
from profiler_ext.records.recording import Recording
from profiler_ext.records.vocabulary import Phase
from tests.attribution.graphs import extern, graph, node, triton
from tests.attribution.reading import assert_conserves, rows, shares
from tests.attribution.small_graph import NODES, SITES, launch_all, one_call, one_graph
from tests.attribution.timeline import Timeline
from tests.fx_nodes import changed

AMBIGUOUS = "graph_ambiguous"
BACKWARD_NODES = (
    node("mul_1", 3, partitioner_tag="is_backward", forward_node="mul", autograd_backward=True),
    node("relu_1", 6, autograd_backward=True),
    node("add_9", 4, partitioner_tag="is_backward", is_gradient_acc=True),
)
BACKWARD_SITES = (triton("triton_poi_fused_mul_0", "mul_1", "relu_1", "add_9"),)


def test_launches_of_a_graph_call_belong_to_call_sites_in_order():
    analysis = attribute(one_graph())
    assert rows(analysis, "name", "kernel", "kind", "call_site", "evidence") == [
        ("triton_poi_fused_mul_0", "triton_poi_fused_mul_0", "triton", 0, "call_order"),
        ("cublas", "extern_kernels.mm", "extern", 1, "call_order_and_op"),
        ("splitK", "extern_kernels.mm", "extern", 1, "call_order_and_op"),
        ("triton_poi_fused_relu_1", "triton_poi_fused_relu_1", "triton", 2, "call_order"),
    ]
    assert shares(analysis) == [
        (0, "mul", 67),
        (0, "add", 33),
        (1, "mm", 100),
        (2, "mm", 100),
        (3, "relu", 100),
    ]
    assert_conserves(analysis)


def test_a_backward_call_is_attributed_to_its_region_by_sequence_number():
    timeline = one_call()
    with timeline.backward(None):
        timeline.triton("triton_poi_fused_mul_0")
    analysis = attribute(
        timeline.recording(
            graph(NODES, SITES),
            graph(BACKWARD_NODES, BACKWARD_SITES, key=None, is_backward=True),
            graph(NODES, BACKWARD_SITES, key=None, is_backward=True, compile_id="1/0"),
        )
    )
    assert rows(analysis, "graph", "phase", "gap")[-1] == (1, "backward", "")
    own = [analysis.places[at] for at in analysis.shares.place[analysis.shares.launch == 4]]
    assert [(place.node, place.phase, place.forward_node, place.line) for place in own] == [
        ("mul_1", Phase.BACKWARD, "mul", 3),
        ("relu_1", Phase.RECOMPUTE, None, 6),
        ("add_9", Phase.GRADIENT_ACCUMULATION, None, 4),
    ]


def test_graphs_with_one_key_are_distinguished_by_region():
    timeline = Timeline()
    for region in ("1/0", "0/0"):
        with timeline.forward("fkey", region=region):
            launch_all(timeline)
    first = graph(NODES, SITES)
    second = graph(tuple(node(n.name, 90) for n in NODES), SITES, compile_id="1/0")
    found = rows(attribute(timeline.recording(first, second)), "graph")
    assert found == [(1,)] * 4 + [(0,)] * 4


def test_equal_graphs_with_one_key_are_interchangeable():
    timeline = one_call()
    analysis = attribute(timeline.recording(graph(NODES, SITES), graph(NODES, SITES, index=1)))
    assert rows(analysis, "level", "gap") == [("line", "")] * 4


def test_different_graphs_that_fit_alike_are_a_gap():
    others = tuple(node(n.name, 90) for n in NODES)
    analysis = attribute(one_call().recording(graph(NODES, SITES), graph(others, SITES)))
    assert rows(analysis, "graph", "level", "gap") == [(None, "none", "graph_ambiguous")] * 4
    assert_conserves(analysis)


@pytest.mark.parametrize(("compiles", "expected"), [(False, (1, "")), (True, (None, AMBIGUOUS))])
def test_after_a_reset_a_regions_last_graph_is_called_unless_it_was_made_meanwhile(
    compiles, expected
):
    timeline = one_call()
    if compiles:
        timeline.op("_compile.compile_inner (dynamo_timed)")
    others = tuple(node(n.name, 90) for n in NODES)
    graphs = (graph(NODES, SITES, dynamo_number=4), graph(others, SITES, dynamo_number=7))
    found = rows(attribute(timeline.recording(*graphs)), "graph", "gap")
    assert found == [expected] * 4


def test_of_different_graphs_the_one_whose_call_sites_fit_is_taken():
    other = graph(NODES, (SITES[2], SITES[1], SITES[0]))
    analysis = attribute(one_call().recording(other, graph(NODES, SITES)))
    assert rows(analysis, "graph", "gap") == [(1, "")] * 4


@pytest.mark.parametrize("changes", [{"key": "another"}, {"provenance": None}])
def test_a_graph_that_was_not_captured_is_a_gap_with_its_phase(changes):
    analysis = attribute(one_graph(**changes))
    assert rows(analysis, "graph", "kind", "phase", "gap") == [
        (None, "triton", "forward", "graph_not_captured"),
        (None, "extern", "forward", "graph_not_captured"),
        (None, "extern", "forward", "graph_not_captured"),
        (None, "triton", "forward", "graph_not_captured"),
    ]
    assert analysis.notes == (
        "graph_not_captured: 4 launches (0.4 us) ran in graphs that were compiled, or cached by an "
        "earlier run, before capture was on; start the script with "
        "`profiler-ext run`, call profiler_ext.enable() before the first compile, or set "
        "PROFILER_EXT=1; compile cached graphs again with `profiler-ext run --recompile` or "
        "profiler_ext.enable(recompile=True).",
    )
    assert_conserves(analysis)


def test_the_wrappers_own_work_has_a_reason_and_the_graphs_phase():
    timeline = Timeline()
    with timeline.forward("fkey"):
        timeline.op("aten::fill_", "fill")
        timeline.launch("Memset (Device)", category="gpu_memset")
        launch_all(timeline)
    analysis = attribute(timeline.recording(graph(NODES, SITES)))
    assert rows(analysis, "kind", "phase", "call_site", "gap")[:3] == [
        ("eager", "forward", None, "wrapper_glue"),
        ("memset", "forward", None, "wrapper_glue"),
        ("triton", "forward", 0, ""),
    ]


def test_trials_of_autotuning_are_no_launches_of_a_call_site():
    timeline = Timeline()
    with timeline.forward("fkey"):
        with timeline.annotation("CachingAutotuner.benchmark_all_configs (dynamo_timed)"):
            timeline.triton("triton_poi_fused_mul_0")
        launch_all(timeline)
    analysis = attribute(timeline.recording(graph(NODES, SITES)))
    assert rows(analysis, "kind", "call_site", "gap") == [
        ("triton", None, "autotuning"),
        ("triton", 0, ""),
        ("extern", 1, ""),
        ("extern", 1, ""),
        ("triton", 2, ""),
    ]


def test_a_mismatch_is_capture_s_doubt_where_it_could_not_check_its_call_sites():
    doubts = (Gap(GapReason.CALL_SITES_UNVERIFIED, "3 sites, 4 calls"),)
    timeline = one_call()
    with timeline.forward("fkey"):
        launch_all(timeline)
        timeline.triton("triton_poi_fused_surplus_7")
    analysis = attribute(timeline.recording(graph(NODES, SITES, gaps=doubts)))
    assert rows(analysis, "gap")[-2:] == [("",), ("call_sites_unverified",)]


def test_a_site_that_the_code_s_own_comments_contradict_is_capture_s_doubt():
    doubts = (Gap(GapReason.CALL_SITES_UNVERIFIED, "the comments name other ops"),)
    sites = (replace(SITES[0], nodes=(), weights=()), *SITES[1:])
    analysis = attribute(one_call().recording(graph(NODES, sites, gaps=doubts)))
    first, *others = rows(analysis, "gap")
    assert (first, set(others)) == (("call_sites_unverified",), {("",)})


def test_a_graph_most_of_whose_kernels_do_not_fit_is_not_believed():
    other = graph(NODES, (triton("triton_red_fused_sum_3", "mul"), extern("mm", "mm")))
    assert rows(attribute(one_call().recording(other)), "gap") == [("alignment_mismatch",)] * 4


def test_a_graph_called_in_an_optimizers_step_is_the_optimizers():
    timeline = Timeline()
    with timeline.annotation("Optimizer.step#AdamW.step"), timeline.forward("fkey"):
        launch_all(timeline)
    analysis = attribute(timeline.recording(graph(NODES, SITES, is_inference=True)))
    assert {place.phase for place in analysis.places} == {Phase.OPTIMIZER}


@pytest.mark.parametrize(
    "around",
    [
        "autograd::engine::evaluate_function: CheckpointBackward",
        "Torch-Compiled Region: !1/7/0",  # compiled autograd's graph, broken at the checkpoint
    ],
)
def test_a_forward_called_while_the_engine_runs_is_a_recompute(around):
    timeline = Timeline()
    with timeline.range(around), timeline.forward("fkey"):
        launch_all(timeline)
    analysis = attribute(timeline.recording(graph(NODES, SITES)))
    assert rows(analysis, "phase") == [("recompute",)] * 4


def test_a_launch_whose_call_is_lost_keeps_its_operator():
    recording = one_graph()
    timeline = one_call()
    calls = [mark for mark in timeline.marks if mark.category != "cuda_driver"]
    timeline.marks = calls
    analysis = attribute(timeline.recording(*recording.graphs))
    assert rows(analysis, "call_site", "evidence") == [
        (0, "call_order"),
        (1, "call_order_and_op"),
        (1, "call_order_and_op"),
        (2, "call_order"),
    ]


def test_without_launching_call_and_operator_there_is_a_gap():
    timeline = Timeline()
    timeline.launch("stray")
    timeline.marks = timeline.marks[1:]
    analysis = attribute(timeline.recording())
    assert rows(analysis, "phase", "level", "gap") == [("other", "none", "no_launch_call")]
    assert_conserves(analysis)


def test_a_launching_call_outside_every_operator_is_a_gap():
    timeline = Timeline()
    timeline.launch("stray")
    with timeline.annotation("Optimizer.step#AdamW.step"):
        timeline.launch("step")
    assert rows(attribute(timeline.recording()), "phase", "gap") == [
        ("other", "no_launching_op"),
        ("optimizer", "no_launching_op"),
    ]


def test_an_empty_trace_has_an_empty_analysis():
    analysis = attribute(Timeline().recording())
    assert (len(analysis.launches), len(analysis.shares), analysis.steps) == (0, 0, ())
    assert (len(analysis.idle), analysis.breakdown, analysis.notes) == (0, (), ())


def test_failures_of_capture_are_reported():
    recording = Recording(one_call().trace(), gaps=(Gap("capture_failed", "no wrapper"),))
    assert attribute(recording).notes[-1] == "capture_failed: no wrapper"


def test_columns_of_the_launches_come_from_the_device_events():
    recording = one_graph()
    table = attribute(recording).launches
    events = recording.trace.events
    for column in ("start_ns", "duration_ns", "correlation", "external_id"):
        assert getattr(table, column).tolist() == getattr(events, column)[table.event].tolist()
    assert table.op_event.tolist() == [3, 6, 6, 11]
    assert np.ma.getmaskarray(table.step).tolist() == [False] * 4


def test_columns_hold_plain_text():
    table = attribute(one_graph()).launches
    columns = (table.kind, table.phase, table.level, table.evidence, table.gap)
    assert {type(text) for column in columns for text in column.strings} == {str}


def test_a_graph_that_its_generated_code_tells_of_has_the_remedy_in_the_notes():
    captured = graph(NODES, SITES)
    given = replace(captured, provenance=replace(captured.provenance, is_inferred=True))
    assert attribute(one_call().recording(captured)).notes == ()
    (note,) = attribute(one_call().recording(given)).notes
    assert note.startswith("1 graphs are known only by what their generated code tells")
    assert "`profiler-ext run --recompile`" in note


def test_of_a_reported_backward_graph_no_forward_nodes_are_missed():
    backward_node = changed(NODES[0], partitioner_tag="is_backward")
    backward = graph([backward_node], SITES[:1], key="fother", is_backward=True)
    given = replace(backward, provenance=replace(backward.provenance, is_inferred=True))
    recordings = [one_call().recording(graph(NODES, SITES), each) for each in (backward, given)]
    notes = [attribute(recording).notes for recording in recordings]
    missed = [["differentiate a forward" in note for note in found] for found in notes]
    assert missed == [[True], [False]]
