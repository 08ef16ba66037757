"""Replays of CUDA graphs: their launches follow the call sites, with counts learnt elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.attribution import attribute
from tests.attribution.graphs import extern, graph
from tests.attribution.reading import assert_conserves, rows
from tests.attribution.small_graph import NODES, SITES
from tests.attribution.timeline import Timeline


def test_the_warm_up_of_a_cuda_graph_runs_the_model_and_teaches_its_replays():
    two = (SITES[0], extern("mm", "mm"), extern("addmm", "add"), SITES[2])
    timeline = Timeline()
    with timeline.forward("fkey"), timeline.annotation("cudagraphify (dynamo_timed)"):
        timeline.triton("triton_poi_fused_mul_0")
        timeline.op("aten::mm", "cublas", "splitK")
        timeline.op("aten::addmm", "cublas")
        timeline.triton("triton_poi_fused_relu_1")
    with timeline.forward("fkey"):
        timeline.op("aten::_foreach_copy_", "copy")
        timeline.op("aten::mm")
        timeline.replay(
            "triton_poi_fused_mul_0", "cublas", "splitK", "cublas", "triton_poi_fused_relu_1"
        )
    analysis = attribute(timeline.recording(graph(NODES, two)))
    assert rows(analysis, "call_site", "evidence", "gap") == [
        (0, "call_order", ""),
        (1, "call_order_and_op", ""),
        (1, "call_order_and_op", ""),
        (2, "call_order_and_op", ""),
        (3, "call_order", ""),
        (None, "", "wrapper_glue"),
        (0, "replay_order", ""),
        (1, "replay_order", ""),
        (1, "replay_order", ""),
        (2, "replay_order", ""),
        (3, "replay_order", ""),
    ]
    assert_conserves(analysis)


def test_a_library_call_without_an_operator_runs_all_between_its_neighbours_in_each_call():
    """The C++ wrapper calls libraries past the dispatcher."""
    timeline = Timeline()
    for sequence in (7, 8):
        with timeline.forward("fkey", sequence=sequence):
            timeline.triton("triton_poi_fused_mul_0")
            timeline.launch("cublas")
            timeline.launch("splitK")
            timeline.triton("triton_poi_fused_relu_1")
    analysis = attribute(timeline.recording(graph(NODES, SITES)))
    assert analysis.launches.call_site.tolist() == [0, 1, 1, 2] * 2


def test_a_replay_that_nothing_taught_says_so():
    two = (SITES[0], extern("mm", "mm"), extern("addmm", "add"), SITES[2])
    timeline = Timeline()
    with timeline.forward("fkey"):
        timeline.replay("triton_poi_fused_mul_0", "a", "b", "c", "triton_poi_fused_relu_1")
    analysis = attribute(timeline.recording(graph(NODES, two)))
    assert rows(analysis, "call_site", "gap")[1:4] == [(None, "ambiguous_extern_run")] * 3
    assert analysis.notes == (
        "3 launches (0.3 us) are library kernels that a CUDA graph replayed side by side; "
        "profile one step before the replay, or start one run with `profiler-ext run`: that "
        "tells how many kernels each call launches, and the store keeps it.",
    )


def test_a_replay_that_another_run_taught_says_so_and_a_contradiction_is_a_gap():
    two = (SITES[0], extern("mm", "mm"), extern("addmm", "add"), SITES[2])
    late = Timeline()
    with late.forward("fkey"):
        late.replay("triton_poi_fused_mul_0", "a", "b", "c", "triton_poi_fused_relu_1")
    taught = replace(graph(NODES, two), stored_counts=((1, 2), (2, 1)))
    by_counts = "order_and_counts_of_another_run"
    assert rows(attribute(late.recording(taught)), "call_site", "evidence", "gap")[1:4] == [
        (1, by_counts, ""),
        (1, by_counts, ""),
        (2, by_counts, ""),
    ]
    with late.forward("fkey"):
        late.triton("triton_poi_fused_mul_0")
        late.op("aten::mm", "cublas")
        late.op("aten::addmm", "cublas", "splitK")
        late.triton("triton_poi_fused_relu_1")
    open_run = (None, "", "ambiguous_extern_run")
    assert rows(attribute(late.recording(taught)), "call_site", "evidence", "gap")[1:4] == (
        [open_run] * 3
    )
    learnt_here = replace(taught, library_counts=((1, 1), (2, 2)))
    assert rows(attribute(late.recording(learnt_here)), "call_site", "evidence")[1:4] == [
        (1, "replay_order"),
        (2, "replay_order"),
        (2, "replay_order"),
    ]


@pytest.mark.parametrize(
    ("second", "is_disputed"),
    [
        (("cublas", "splitK"), False),
        (("splitK", "cublas"), True),
        (("cublas",), True),
        (("cublas of another size", "splitK"), False),
    ],
)
def test_replays_that_contradict_each_other_lead_no_library_kernel(second, is_disputed):
    timeline = Timeline()
    for ran in (("cublas", "splitK"), second):
        with timeline.forward("fkey"):
            timeline.replay("triton_poi_fused_mul_0", *ran, "triton_poi_fused_relu_1")
    analysis = attribute(timeline.recording(graph(NODES, SITES)))
    found = rows(analysis, "call_site", "gap")
    generated = [found[0], found[3], found[4], found[-1]]
    assert generated == [(0, ""), (2, ""), (0, ""), (2, "")]
    library = (None, "alignment_mismatch") if is_disputed else (1, "")
    assert [*found[1:3], *found[5:-1]] == [library] * (2 + len(second))
    assert_conserves(analysis)
