"""Graphs of which capture lost what it knew: their calls are gaps, and lead nowhere else."""

from __future__ import annotations

from dataclasses import replace

from profiler_ext.attribution import attribute
from profiler_ext.kineto.names import call_mark
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import Lineage, ModuleFrame
from profiler_ext.records.provenance import Gap, GraphInstance
from tests.attribution.graphs import extern, graph, node, triton
from tests.attribution.reading import assert_conserves, rows
from tests.attribution.timeline import Timeline

WHY = Gap(GapReason.CAPTURE_FAILED, "hook: why")
SOUND = graph((node("mm", 10), node("add", 20)), (extern("mm", "mm"), triton("triton_add", "add")))


def failed(**changes: object) -> GraphInstance:
    bare = replace(SOUND, provenance=None, nodes=(), gaps=(WHY,))
    return replace(bare, **changes)


def called(region: str, mark: str | None = None, key: str | None = "fkey") -> Timeline:
    """Write a call of the graph, marked or not."""
    timeline = Timeline()
    with timeline.range(f"Torch-Compiled Region: {region}"):
        _call(timeline, mark, key)
    return timeline


def _call(timeline: Timeline, mark: str | None, key: str | None) -> None:
    if mark is not None:
        with timeline.range(mark):
            _call(timeline, None, key)
        return
    with timeline.annotation(f"## Call CompiledFxGraph {key} ##"):
        timeline.op("aten::mm", "gemm")
        timeline.triton("triton_add")


def gaps(timeline: Timeline, *graphs: GraphInstance) -> list[str]:
    analysis = attribute(timeline.recording(*graphs))
    assert_conserves(analysis)
    return [gap for (gap,) in rows(analysis, "gap")]


def places(analysis: Analysis) -> list[Place]:
    """Return the place of each share."""
    return [analysis.places[at] for at in analysis.shares.place]


PART = Gap(GapReason.PARTLY_CAPTURED, "a_mechanism: why; lost: lines")


def test_of_a_graph_of_which_a_mechanism_failed_what_has_a_line_keeps_it_and_the_rest_says_why():
    nodes = (node("mm", 10), replace(node("add", 20), lineage=Lineage()))
    of_part = replace(SOUND, nodes=nodes, gaps=(PART,))
    analysis = attribute(called("0/0").recording(of_part))
    assert_conserves(analysis)
    reported = [(place.node, place.line, place.gap) for place in places(analysis)]
    assert reported == [("mm", 10, None), ("add", None, PART.reason)]
    (note,) = analysis.notes
    assert note.startswith("partly_captured: 1 launches (")


def test_its_nodes_without_a_module_are_not_reported_to_be_of_the_module_that_was_called():
    """They may be of any: what tells modules failed, and with it all that the nodes say of them."""
    bare = [replace(each, lineage=replace(each.lineage, modules=())) for each in SOUND.nodes]
    in_model, root = replace(SOUND, nodes=tuple(bare)), (ModuleFrame("", "Model"),)
    for own, expected in ((root, ["", None]), ((), [None, None])):
        first = replace(bare[0], lineage=replace(bare[0].lineage, modules=own))
        part = replace(in_model, nodes=(first, bare[1]), gaps=(PART,))
        found = places(attribute(called("0/0").recording(part)))
        assert [place.module for place in found] == expected


def test_a_site_of_which_it_is_not_known_what_it_computes_says_that_a_mechanism_failed():
    bare = (extern("mm", "mm"), replace(triton("triton_add", "add"), nodes=(), weights=()))
    of_part = replace(SOUND, provenance=replace(SOUND.record, call_sites=bare, gaps=(PART,)))
    assert gaps(called("0/0"), of_part) == ["", PART.reason]


LOST = [GapReason.CAPTURE_FAILED] * 2


def test_a_call_of_a_failed_graph_is_a_gap_and_a_note_says_what_to_do():
    timeline = called("0/0")
    assert gaps(timeline, failed()) == LOST
    (note,) = attribute(timeline.recording(failed())).notes
    assert note.startswith("capture_failed: 2 launches (")
    assert "a hook of capture lost what it knew" in note


def test_an_equal_graph_of_another_region_does_not_stand_in_for_it():
    assert gaps(called("0/0"), failed(), replace(SOUND, index=1, compile_id="1/0")) == LOST


def test_an_equal_graph_of_another_region_keeps_its_own_calls():
    other = replace(SOUND, index=1, compile_id="1/0")
    assert gaps(called("1/0"), failed(), other) == ["", ""]


def test_a_mark_tells_the_sound_graph_of_a_region_from_the_failed_one():
    graphs = (failed(), replace(SOUND, index=1))
    assert gaps(called("0/0", call_mark(0)), *graphs) == LOST
    assert gaps(called("0/0", call_mark(1)), *graphs) == ["", ""]
    assert gaps(called("0/0"), *graphs) == LOST


def test_a_graph_without_key_or_region_may_be_any_of_its_like():
    assert gaps(called("0/0", key=None), failed(key=None)) == LOST
    assert gaps(called("0/0"), failed(compile_id=None)) == LOST
    assert gaps(called("0/0"), failed(key=None, compile_id=None), SOUND) == ["", ""]
