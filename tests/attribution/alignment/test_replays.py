"""Replays of CUDA graphs: their launches follow the call sites, with kernels learnt elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.attribution import attribute
from tests.attribution.graphs import extern, graph, triton
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
        (1, "replay_order_and_learnt_kernels", ""),
        (1, "replay_order_and_learnt_kernels", ""),
        (2, "replay_order_and_learnt_kernels", ""),
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
    assert [place.graph for place in analysis.places if place.gap] == [0]
    assert analysis.notes == (
        "ambiguous_extern_run: 3 launches (0.3 us) are library kernels that a CUDA graph replayed "
        "side by side; profile one step before the replay, or start one run with "
        "`profiler-ext run`: that shows which kernels each call launches, and the store keeps it.",
    )


def test_a_replay_that_another_run_taught_says_so_and_a_contradiction_is_a_gap():
    two = (SITES[0], extern("mm", "mm"), extern("addmm", "add"), SITES[2])
    late = Timeline()
    with late.forward("fkey"):
        late.replay("triton_poi_fused_mul_0", "a", "b", "b", "triton_poi_fused_relu_1")
    taught = replace(graph(NODES, two), stored_kernels=((1, ("a", "b")), (2, ("b",))))
    by_another = "order_and_kernels_of_another_run"
    assert rows(attribute(late.recording(taught)), "call_site", "evidence", "gap")[1:4] == [
        (1, by_another, ""),
        (1, by_another, ""),
        (2, by_another, ""),
    ]
    with late.forward("fkey"):
        late.triton("triton_poi_fused_mul_0")
        late.op("aten::mm", "a")
        late.op("aten::addmm", "b", "d", "e")
        late.triton("triton_poi_fused_relu_1")
    open_run = (None, "", "ambiguous_extern_run")
    assert rows(attribute(late.recording(taught)), "call_site", "evidence", "gap")[1:4] == (
        [open_run] * 3
    )
    learnt_here = replace(taught, library_kernels=((1, ("a",)), (2, ("b", "b"))))
    assert rows(attribute(late.recording(learnt_here)), "call_site", "evidence")[1:4] == [
        (1, "replay_order_and_learnt_kernels"),
        (2, "replay_order_and_learnt_kernels"),
        (2, "replay_order_and_learnt_kernels"),
    ]


MUL, RELU = "triton_poi_fused_mul_0", "triton_poi_fused_relu_1"
CUBLAS, SPLIT_K, OTHER = "cublas", "splitK", "cublas of another size"


def _library_sites(*replays: tuple[str, ...], **known: object) -> list[list[int | None]]:
    """Return the call sites of the library kernels between two generated ones, by replay."""
    timeline = Timeline()
    for ran in replays:
        with timeline.forward("fkey"):
            timeline.replay(MUL, *ran, RELU)
    analysis = attribute(timeline.recording(replace(graph(NODES, SITES), **known)))
    assert_conserves(analysis)
    found = iter(rows(analysis, "call_site", "gap"))
    sites = [[next(found) for _ in (MUL, *ran, RELU)] for ran in replays]
    assert [(own[0], own[-1]) for own in sites] == [((0, ""), (2, ""))] * len(replays)
    gaps = {gap for own in sites for site, gap in own if site is None}
    assert gaps <= {"alignment_mismatch"}
    return [[site for site, _ in own[1:-1]] for own in sites]


@pytest.mark.parametrize(
    ("replays", "sites"),
    [
        ([(CUBLAS, SPLIT_K)], [[1, 1]]),
        ([(CUBLAS, SPLIT_K), (CUBLAS, SPLIT_K)], [[1, 1], [1, 1]]),
        ([(CUBLAS, SPLIT_K), (SPLIT_K, CUBLAS)], [[None, None], [None, None]]),
        ([(CUBLAS, SPLIT_K), (CUBLAS,)], [[1, None], [1]]),
        ([(CUBLAS, SPLIT_K), (OTHER, SPLIT_K)], [[None, 1], [None, 1]]),
        ([(CUBLAS, SPLIT_K), (OTHER,), (OTHER,), (CUBLAS, SPLIT_K)], [[1, 1], [1], [1], [1, 1]]),
    ],
)
def test_of_replays_that_differ_only_what_another_one_ran_too_is_attributed(replays, sites):
    assert _library_sites(*replays) == sites


@pytest.mark.parametrize(
    ("replays", "sites"),
    [
        ([(CUBLAS, SPLIT_K), (CUBLAS,)], [[1, 1], [None]]),
        ([(SPLIT_K, CUBLAS)], [[None, None]]),
        ([(CUBLAS,)], [[None]]),
        ([(CUBLAS,), (CUBLAS,)], [[1], [1]]),
        ([(OTHER,)], [[1]]),
    ],
)
def test_what_a_replay_lacks_of_its_recording_opens_it_unless_another_one_lacks_it_too(
    replays, sites
):
    known_kernels = ((1, (CUBLAS, SPLIT_K)),)
    assert _library_sites(*replays, library_kernels=known_kernels) == sites


LATER, ADD_UP, LARGER = "triton_poi_fused_later_2", "splitKreduce", "gemm of another size"
MM, RECORDED = extern("mm", "mm"), ((1, (CUBLAS, ADD_UP)), (2, (CUBLAS,)), (4, (CUBLAS,)))


@pytest.mark.parametrize(
    ("ran", "sites"),
    [
        ((MUL, CUBLAS, ADD_UP, CUBLAS, RELU, CUBLAS, LATER), [0, 1, 1, 2, 3, 4, 5]),
        ((MUL, LARGER, LARGER, ADD_UP, RELU, LARGER, ADD_UP, LATER), [0, 1, 2, 2, 3, 4, 4, 5]),
        ((MUL, LARGER, LARGER, LARGER, RELU, CUBLAS, LATER), [0, None, None, None, 3, 4, 5]),
        ((MUL, LARGER, ADD_UP, RELU, CUBLAS, LATER), [0, None, None, 3, 4, 5]),
        ((MUL, ADD_UP, LARGER, RELU, CUBLAS, LATER), [0, None, None, 3, 4, 5]),
        ((MUL, "Memset (Device)", LARGER, RELU, CUBLAS, LATER), [0, None, None, 3, 4, 5]),
        ((MUL, CUBLAS, CUBLAS, RELU, CUBLAS, LATER), [0, None, None, 3, 4, 5]),
        ((MUL, CUBLAS, ADD_UP, CUBLAS, RELU, LATER, LARGER), [0, 1, 1, 2, 3, 5, None]),
        ((MUL, LARGER, RELU, LARGER, CUBLAS, ADD_UP, LATER), [0, None, 3, None, None, None, 5]),
    ],
)
def test_of_a_size_that_was_recorded_later_is_attributed_what_can_be_of_one_call_only(ran, sites):
    every = (SITES[0], MM, MM, SITES[2], MM, triton(LATER, "relu"))
    timeline = Timeline()
    with timeline.forward("fkey"):
        timeline.replay(*ran)
    recorded = replace(graph(NODES, every), library_kernels=RECORDED)
    assert [at for (at,) in rows(attribute(timeline.recording(recorded)), "call_site")] == sites


def test_what_lost_its_operator_before_a_replay_is_no_kernel_of_another_size():
    timeline = Timeline()
    with timeline.forward("fkey"):
        timeline.launch("a copy of the inputs")
        timeline.replay(CUBLAS, ADD_UP, RELU, CUBLAS, LATER)
    every = (MM, SITES[2], MM, triton(LATER, "relu"))
    kernels = ((0, (CUBLAS, ADD_UP)), (2, (CUBLAS,)))
    recorded = replace(graph(NODES, every), library_kernels=kernels)
    found = [at for (at,) in rows(attribute(timeline.recording(recorded)), "call_site")]
    assert found == [None, None, None, 1, 2, 3]
