"""What the runner of CUDA graphs does before a replay belongs to inputs and to random nodes."""

from __future__ import annotations

import pytest

from profiler_ext.attribution import attribute
from profiler_ext.records.provenance import FxNode, TensorSpec
from tests.attribution.graphs import graph, node, triton
from tests.attribution.reading import assert_conserves, rows, shares
from tests.attribution.timeline import Timeline

MUL, DROPOUT = node("mul", 3), node("inductor_seeds", 4, is_random=True)
SITES = (triton("triton_poi_fused_mul_0", "mul"), triton("triton_poi_fused_dropout_1", "mul"))
COPY, FILL = "aten::_foreach_copy_", "aten::fill_"


def given(name: str, *size: int | str) -> FxNode:
    spec = TensorSpec("int64", size, (1,), "cuda:0")
    return node(name, 2, target="placeholder", outputs=(spec,), partitioner_tag=None)


def replayed(*before: str, also: tuple[str, ...] = ()) -> Timeline:
    """A call that runs operators, replays, and where there are more, runs them and replays."""
    timeline = Timeline()
    with timeline.forward("fkey"):
        for name in before:
            timeline.op(name, f"{name} kernel")
        timeline.replay(SITES[0].kernel)
        for name in also:
            timeline.op(name, f"{name} kernel")
        timeline.replay(SITES[1].kernel)
    return timeline


Copied = tuple[tuple[str, ...], ...]


def analysed(
    timeline: Timeline, *nodes: FxNode, copied: Copied, otherwise: tuple[Copied, ...] = ()
):
    called = graph(nodes, SITES, copied_inputs=copied, other_copied_inputs=otherwise)
    analysis = attribute(timeline.recording(called))
    assert_conserves(analysis)
    return analysis


def verdicts(analysis):
    return [
        (kind, phase, level, evidence, gap)
        for kind, phase, level, evidence, gap in rows(
            analysis, "kind", "phase", "level", "evidence", "gap"
        )
        if kind == "eager"
    ]


def test_copies_belong_to_the_inputs_that_were_noted_by_their_sizes():
    nodes = (MUL, given("ids", 4, 6), given("mask", 4, 2), given("weight", 4, 4))
    analysis = analysed(replayed(COPY), *nodes, copied=(("ids", "mask"),))
    assert verdicts(analysis) == [("eager", "forward", "line", "graph_runner_input_copy", "")]
    assert shares(analysis)[:2] == [(0, "ids", 75), (0, "mask", 25)]
    places = [analysis.places[at] for at in analysis.shares.place[:2]]
    assert [(place.aten_op, place.line) for place in places] == [(COPY, 2)] * 2


def test_inputs_of_unknown_size_share_a_copy_equally():
    nodes = (MUL, given("ids", 4, 6), given("mask", "s0", 2))
    analysis = analysed(replayed(COPY), *nodes, copied=(("ids", "mask"),))
    assert shares(analysis)[:2] == [(0, "ids", 50), (0, "mask", 50)]


def test_each_of_several_recorded_graphs_copies_its_own():
    nodes = (MUL, given("ids", 4), given("mask", 4))
    copied = (("ids",), (), ("mask",))
    analysis = analysed(replayed(COPY, also=(COPY,)), *nodes, copied=copied)
    assert [row[:2] for row in shares(analysis)] == [
        (0, "ids"),
        (1, "mul"),
        (2, "mask"),
        (3, "mul"),
    ]


@pytest.mark.parametrize(
    ("before", "copied", "otherwise", "attributed"),
    [
        ((COPY,), (("ids",),), ((),), ["ids"]),
        ((COPY,), ((), ("ids",)), (("ids",), ()), ["ids"]),
        ((COPY,), ((), ()), (("ids",), ("mask",)), []),
        ((COPY, COPY), ((), ()), (("ids",), ("mask",)), ["ids", "mask"]),
        ((COPY,), (("ids",),), (("mask",),), []),
    ],
)
def test_how_many_copies_a_call_runs_tells_which_recording_it_replays(
    before, copied, otherwise, attributed
):
    nodes = (MUL, given("ids", 4), given("mask", 4))
    analysis = analysed(replayed(*before), *nodes, copied=copied, otherwise=(otherwise,))
    assert [name for _, name, _ in shares(analysis) if name in ("ids", "mask")] == attributed


def test_next_to_work_whose_operator_is_lost_the_number_of_copies_tells_nothing():
    timeline = Timeline()
    with timeline.forward("fkey"):
        timeline.op(COPY, "copy")
        timeline.launch("copy")
        timeline.replay(SITES[0].kernel, SITES[1].kernel)
    otherwise = ((("ids",), ("mask",)),)
    nodes = (MUL, given("ids", 4, 6), given("mask", 4, 2))
    analysis = analysed(timeline, *nodes, copied=(("ids",), ()), otherwise=otherwise)
    assert {gap for *_, gap in verdicts(analysis)} == {"wrapper_glue"}


def test_seeds_are_set_whichever_recording_is_replayed():
    nodes = (MUL, DROPOUT, node("rand", 5, is_random=True), given("ids", 4))
    analysis = analysed(replayed(FILL), *nodes, copied=(("ids",),), otherwise=(((),),))
    assert shares(analysis)[:2] == [(0, "inductor_seeds", 50), (0, "rand", 50)]


@pytest.mark.parametrize(
    ("before", "copied"),
    [
        ((COPY, COPY), (("ids",),)),
        ((COPY,), ()),
        ((COPY,), (("ids",), ("mask",))),
        ((COPY,), (("partition_1_placeholder_0",),)),
        (("aten::copy_",), (("ids",),)),
    ],
)
def test_copies_that_the_note_does_not_explain_stay_glue(before, copied):
    nodes = (MUL, given("ids", 4), given("mask", 4))
    analysis = analysed(replayed(*before), *nodes, copied=copied)
    assert {gap for *_, gap in verdicts(analysis)} == {"wrapper_glue"}


def test_fills_before_a_replay_set_the_seeds_of_what_draws():
    analysis = analysed(replayed(COPY, FILL, FILL), MUL, DROPOUT, copied=((),))
    seeded = ("eager", "forward", "line", "graph_runner_seed", "")
    unknown = ("eager", "forward", "none", "", "wrapper_glue")
    assert verdicts(analysis) == [unknown, seeded, seeded]
    assert shares(analysis)[1:3] == [(1, "inductor_seeds", 100), (2, "inductor_seeds", 100)]


def test_a_fill_that_another_item_parts_from_the_replay_is_glue():
    analysis = analysed(replayed(FILL, COPY), MUL, DROPOUT, copied=((),))
    assert {gap for *_, gap in verdicts(analysis)} == {"wrapper_glue"}


def test_a_graph_that_draws_nothing_has_no_seeds():
    analysis = analysed(replayed(FILL, FILL), MUL, copied=((),))
    assert {gap for *_, gap in verdicts(analysis)} == {"wrapper_glue"}


def test_of_several_recorded_graphs_nobody_knows_which_one_draws():
    second = node("rand", 5, is_random=True)
    nodes = (MUL, DROPOUT, second)
    assert {g for *_, g in verdicts(analysed(replayed(FILL), *nodes, copied=((), ())))} == {
        "wrapper_glue"
    }
    one = analysed(replayed(FILL), *nodes, copied=((),))
    assert shares(one)[:2] == [(0, "inductor_seeds", 50), (0, "rand", 50)]


def test_without_a_replay_nothing_is_the_runners():
    timeline = Timeline()
    with timeline.forward("fkey"):
        for name in (COPY, FILL):
            timeline.op(name, f"{name} kernel")
        for site in SITES:
            timeline.triton(site.kernel)
    analysis = analysed(timeline, MUL, DROPOUT, given("ids", 4), copied=(("ids",),))
    assert {gap for *_, gap in verdicts(analysis)} == {"wrapper_glue"}
