"""Equal graphs of one region, as DDP's buckets are, are told apart by what the process noted."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from profiler_ext.attribution import attribute
from profiler_ext.kineto.names import call_mark
from profiler_ext.records.evidence import Mechanism
from profiler_ext.records.provenance import FxNode, GraphInstance
from profiler_ext.records.recording import Recording
from tests.attribution.graphs import extern, graph, node, triton
from tests.attribution.reading import assert_conserves, rows
from tests.attribution.timeline import AUTOGRAD, Timeline
from tests.fx_nodes import changed

BUCKETS = 3


def bucket(at: int, **changes: object) -> GraphInstance:
    """Return the graph of one bucket: equal call sites, another layer's lines."""
    product, sum_ = node("mm", 10 + at), node("add", 20 + at)
    if changes.get("is_backward"):
        product, sum_ = (_of_backward(each) for each in (product, sum_))
    made = graph((product, sum_), (extern("mm", "mm"), triton("triton_add", "add")))
    return replace(made, index=at, **changes)


def _of_backward(forward: FxNode) -> FxNode:
    return changed(forward, partitioner_tag="is_backward", forward_node=forward.name)


FORWARDS = tuple(bucket(at) for at in range(BUCKETS))
BACKWARDS = tuple(bucket(BUCKETS + at, key="bkey", is_backward=True) for at in range(BUCKETS))


def run(timeline: Timeline, mark: str | None, key: str | None = "fkey") -> None:
    """Write the call of a bucket's graph, marked or not."""
    if mark is None:
        with timeline.annotation(f"## Call CompiledFxGraph {key} ##"):
            work(timeline)
        return
    with timeline.range(mark):
        run(timeline, None, key)


def work(timeline: Timeline) -> None:
    timeline.op("aten::mm", "gemm")
    timeline.triton("triton_add")


def region(timeline: Timeline) -> AbstractContextManager[None]:
    return timeline.range("Torch-Compiled Region: 0/0")


def step(*, forward: list[str | None], backward: list[str | None]) -> Timeline:
    """Write a step: a forward through the buckets, and the backward in the other order."""
    timeline = Timeline()
    with region(timeline):
        for at, mark in enumerate(forward):
            with timeline.range("CompiledFunction", **numbered(at, 0)):
                run(timeline, mark)
    for at, mark in reversed(list(enumerate(backward))):
        name = "CompiledFunctionBackward"
        with timeline.on(AUTOGRAD), timeline.range(name, **numbered(at, 1)):
            run(timeline, mark, "bkey")
    return timeline


def numbered(at: int, thread: int) -> dict[str, int]:
    return {"Sequence number": 7 + at, "Fwd thread id": thread}


MARKS = [call_mark(at) for at in range(BUCKETS)]
BACKWARD_MARKS = [call_mark(BUCKETS + at) for at in range(BUCKETS)]
NO_MARKS: list[str | None] = [None] * BUCKETS


def lines(recording: Recording) -> list[tuple[int | None, str | None, str | None]]:
    """Return line, phase and gap of each share."""
    analysis = attribute(recording)
    assert_conserves(analysis)
    places = [analysis.places[at] for at in analysis.shares.place]
    return [(place.line, place.phase, place.gap) for place in places]


def test_each_bucket_has_its_own_lines_in_forward_and_in_backward():
    timeline = step(forward=MARKS, backward=BACKWARD_MARKS)
    assert lines(timeline.recording(*FORWARDS, *BACKWARDS)) == [
        *((line + at, "forward", None) for at in range(BUCKETS) for line in (10, 20)),
        *((line + 3 + at, "backward", None) for at in (2, 1, 0) for line in (10, 20)),
    ]


def test_what_was_noted_counts_whatever_the_order_of_the_calls():
    timeline = step(forward=MARKS[::-1], backward=[])
    found = rows(attribute(timeline.recording(*FORWARDS)), "graph", "gap")
    assert found == [(at, "") for at in (2, 2, 1, 1, 0, 0)]


def test_graphs_without_a_key_are_distinguished_too():
    timeline = Timeline()
    with region(timeline):
        for mark in MARKS:
            run(timeline, mark, None)
    graphs = (replace(each, key=None) for each in FORWARDS)
    found = rows(attribute(timeline.recording(*graphs)), "graph", "gap")
    assert found == [(at, "") for at in (0, 0, 1, 1, 2, 2)]


def test_without_a_mark_a_bucket_is_a_gap():
    timeline = step(forward=[*MARKS[:2], None], backward=NO_MARKS)
    found = rows(attribute(timeline.recording(*FORWARDS, *BACKWARDS)), "graph", "gap")
    assert found[:4] == [(0, ""), (0, ""), (1, ""), (1, "")]
    assert found[4:] == [(None, "graph_ambiguous")] * 8


@pytest.mark.parametrize("mark", [call_mark(1), call_mark(2), call_mark(9)])
def test_a_mark_that_the_cache_key_contradicts_leads_nowhere(mark):
    """Neither another key's graph, nor one that was not captured, nor one that is not there."""
    lost = replace(FORWARDS[2], provenance=None, nodes=())
    graphs = (FORWARDS[0], replace(FORWARDS[1], key="another"), lost)
    timeline = Timeline()
    with region(timeline):
        run(timeline, mark)
    assert (
        rows(attribute(timeline.recording(*graphs)), "graph", "gap")
        == [(None, "graph_not_captured")] * 2
    )


def test_call_sites_that_do_not_fit_the_noted_graph_are_a_gap():
    nodes, other = FORWARDS[0].nodes, (triton("triton_add", "add"), extern("mm", "mm"))
    timeline = step(forward=[call_mark(1)], backward=[])
    graphs = (FORWARDS[0], replace(graph(nodes, other), index=1))
    found = rows(attribute(timeline.recording(*graphs)), "gap")
    assert found == [("alignment_mismatch",)] * 2


@pytest.mark.parametrize("inner", [None, call_mark(module=4)])
def test_a_call_within_a_call_has_not_the_graph_of_the_outer_one(inner):
    timeline = Timeline()
    with (
        region(timeline),
        timeline.range(str(call_mark(0))),
        timeline.annotation("## Call CompiledFxGraph fkey ##"),
    ):
        timeline.op("aten::mm", "gemm")
        with timeline.range("mylib::op"):
            run(timeline, inner)
        timeline.triton("triton_add")
    found = rows(attribute(timeline.recording(*FORWARDS)), "graph", "gap")
    assert found == [(0, ""), *[(None, "graph_ambiguous")] * 2, (0, "")]


def test_a_mark_is_no_call_of_the_graph_around_it():
    """The mark of a region's call stands within the call of the graph that has the region."""
    timeline = Timeline()
    with region(timeline), timeline.annotation("## Call CompiledFxGraph outer ##"):
        run(timeline, call_mark(0))
        timeline.triton("triton_mul")
    outer = graph((node("mul", 1),), (triton("triton_mul", "mul"),), key="outer", index=1)
    found = rows(attribute(timeline.recording(FORWARDS[0], outer)), "graph", "gap")
    assert found == [(0, ""), (0, ""), (1, "")]


def test_of_two_compiles_that_differ_in_numbers_and_mechanisms_either_has_the_lines():
    lineage = {"seq_nr": 99, "mechanism": Mechanism.REPLACED}
    again = tuple(changed(node, **lineage) for node in FORWARDS[0].nodes)
    timeline = Timeline()
    with region(timeline):
        run(timeline, None)
    recording = timeline.recording(FORWARDS[0], replace(FORWARDS[0], index=1, nodes=again))
    assert lines(recording) == [(10, "forward", None), (20, "forward", None)]


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_one_record_is_not_enough_for_more_calls_in_one_run_of_a_frame(calls):
    timeline = step(forward=NO_MARKS[:calls], backward=NO_MARKS[:calls])
    found = rows(attribute(timeline.recording(FORWARDS[0], BACKWARDS[0])), "gap")
    expected = "" if calls == 1 else "graph_ambiguous"
    assert found == [(expected,)] * 4 * calls


def test_one_record_is_enough_for_a_call_in_each_run_of_a_frame():
    timeline = Timeline()
    for _ in range(3):
        with region(timeline):
            run(timeline, None)
    assert rows(attribute(timeline.recording(FORWARDS[0])), "graph", "gap") == [(0, "")] * 6
