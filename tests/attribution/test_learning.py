from __future__ import annotations

from dataclasses import replace

from profiler_ext.attribution import attribute
from profiler_ext.attribution.learning import library_counts
from profiler_ext.session import Session
from tests.attribution.graphs import extern, graph, numbered, triton
from tests.attribution.timeline import Timeline

SITES = numbered([triton("triton_a"), extern("mm"), extern("mm"), triton("triton_b")])


def _call(*ops: tuple[str, int]) -> Timeline:
    timeline = Timeline()
    with timeline.forward("fkey"):
        for name, launches in ops:
            with timeline.range(name):
                for _ in range(launches):
                    timeline.launch("kernel")
    return timeline


def _counts(timeline: Timeline):
    return library_counts(timeline.recording().trace.events, SITES)


def test_each_library_call_has_as_many_nodes_as_it_launched():
    ops = (("triton_a", 1), ("aten::mm", 1), ("aten::mm", 3), ("triton_b", 1))
    assert _counts(_call(*ops)) == ((1, 1), (2, 3))


def test_the_wrapper_s_own_work_teaches_nothing_and_disturbs_nothing():
    ops = (("triton_a", 1), ("aten::mm", 2), ("aten::mm", 1), ("aten::fill_", 1), ("triton_b", 1))
    assert _counts(_call(*ops)) == ((1, 2), (2, 1))


def test_a_part_that_is_recorded_teaches_nothing_of_its_library_calls():
    ops = (("triton_a", 0), ("aten::mm", 0), ("aten::mm", 2), ("triton_b", 0))
    assert _counts(_call(*ops)) == ((2, 2),)


def test_a_call_that_is_recorded_whole_teaches_nothing():
    ops = (("triton_a", 0), ("aten::mm", 0), ("aten::mm", 0), ("triton_b", 0))
    assert _counts(_call(*ops)) == ()


def test_a_call_that_does_not_align_teaches_nothing():
    assert _counts(_call(("triton_b", 1), ("aten::mm", 1), ("triton_a", 1))) == ()


def test_a_replay_that_was_explained_whole_settles_the_counts():
    timeline = _call(("triton_a", 1), ("aten::mm", 3), ("aten::mm", 1), ("triton_b", 1))
    with timeline.forward("fkey"):
        timeline.replay("triton_a", "k1", "k2", "k3", "k4", "triton_b")
    assert attribute(timeline.recording(graph((), SITES))).library_counts == (
        (0, ((1, 3), (2, 1))),
    )


def test_what_only_another_run_explains_settles_nothing():
    timeline = Timeline()
    with timeline.forward("fkey"):
        timeline.replay("triton_a", "k1", "k2", "k3", "k4", "triton_b")
    late = graph((), SITES)
    assert attribute(timeline.recording(late)).library_counts == ()
    taught = replace(late, stored_counts=((1, 3), (2, 1)))
    assert attribute(timeline.recording(taught)).library_counts == ()


def test_two_calls_in_one_trace_teach_nothing():
    timeline = _call(("triton_a", 1))
    with timeline.forward("fkey"):
        pass
    assert _counts(timeline) == ()


def test_a_session_tells_once_what_was_found():
    told = []
    session = Session(_call(("triton_a", 1)).recording(), told.append)
    assert [session.analysis, session.analysis] == [told[0]] * 2
    assert len(told) == 1
