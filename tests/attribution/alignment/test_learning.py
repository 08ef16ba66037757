from __future__ import annotations

import copy
from dataclasses import replace

from profiler_ext.attribution import attribute
from profiler_ext.attribution.alignment.observed_kernels import library_kernels
from profiler_ext.sessions.session import Session
from tests.attribution.graphs import extern, graph, numbered, triton
from tests.attribution.timeline import Timeline

SITES = numbered([triton("triton_a"), extern("mm"), extern("mm"), triton("triton_b")])


def _call(*ops: tuple[str, tuple[str, ...]]) -> Timeline:
    timeline = Timeline()
    with timeline.forward("fkey"):
        for name, kernels in ops:
            timeline.op(name, *kernels)
    return timeline


def _recorded(*ops: tuple[str, int], replayed: tuple[str, ...]) -> Timeline:
    """Write a call that records a CUDA graph, as torch does it, and replays it."""
    timeline = Timeline()
    with timeline.forward("fkey"):
        timeline.op("aten::_foreach_copy_", "copy")
        enclosing = timeline.range("CUDAGraphNode.record (dynamo_timed)")
        with timeline.range("CUDAGraphNode.record"), enclosing:
            timeline.op("aten::fill_", "seed")
            for name, calls in ops:
                with timeline.range(name):
                    for _ in range(calls):
                        timeline.noted_call()
        timeline.replay(*replayed)
    return timeline


def _kernels(timeline: Timeline):
    return library_kernels(timeline.recording().trace.events, SITES)


def test_each_library_call_has_the_kernels_that_it_launched():
    mms = ("aten::mm", ("k1",)), ("aten::mm", ("k2", "Memset", "k1"))
    ops = (("triton_a", ("triton_a",)), *mms, ("triton_b", ("triton_b",)))
    assert _kernels(_call(*ops)) == ((1, ("k1",)), (2, ("k2", "Memset", "k1")))


def test_the_wrapper_s_own_work_teaches_nothing_and_disturbs_nothing():
    mms = ("aten::mm", ("k1", "k2")), ("aten::mm", ("k3",)), ("aten::fill_", ("fill",))
    ops = (("triton_a", ("triton_a",)), *mms, ("triton_b", ("triton_b",)))
    assert _kernels(_call(*ops)) == ((1, ("k1", "k2")), (2, ("k3",)))


def test_a_call_that_tries_algorithms_out_does_not_teach_what_it_will_run():
    ops = (("triton_a", ("triton_a",)), ("aten::mm", ("k",) * 65), ("aten::mm", ("k",) * 64))
    assert _kernels(_call(*ops, ("triton_b", ("triton_b",)))) == ((2, ("k",) * 64),)


def test_each_call_that_is_recorded_becomes_what_the_replay_runs_in_its_place():
    ops = (("triton_a", 1), ("aten::mm", 1), ("aten::mm", 2), ("triton_b", 1))
    ran = ("triton_a", "k1", "Memset (Device)", "k2", "triton_b")
    assert _kernels(_recorded(*ops, replayed=ran)) == ((1, ("k1",)), (2, ("Memset", "k2")))


def test_a_driver_that_reports_no_launches_of_generated_kernels_is_no_hindrance():
    ops = (("triton_a", 0), ("aten::mm", 1), ("aten::mm", 2), ("triton_b", 0))
    ran = ("triton_a", "k1", "k2", "k3", "triton_b")
    assert _kernels(_recorded(*ops, replayed=ran)) == ((1, ("k1",)), (2, ("k2", "k3")))


def test_calls_whose_number_is_not_that_of_the_replay_teach_nothing_of_where_they_end():
    ops = (("triton_a", 1), ("aten::mm", 2), ("aten::mm", 2), ("triton_b", 1))
    ran = ("triton_a", "k1", "k2", "k3", "triton_b")
    assert _kernels(_recorded(*ops, replayed=ran)) == ()


def test_a_lone_call_with_a_memset_of_no_bytes_becomes_all_that_lies_between():
    ops = (("triton_a", 1), ("aten::mm", 2), ("aten::mm", 0), ("triton_b", 1))
    ran = ("triton_a", "k1", "triton_b")
    assert _kernels(_recorded(*ops, replayed=ran)) == ((1, ("k1",)),)


def test_a_replay_of_other_generated_kernels_teaches_nothing():
    ops = (("triton_a", 1), ("aten::mm", 1), ("aten::mm", 1), ("triton_b", 1))
    assert _kernels(_recorded(*ops, replayed=("triton_b", "k1", "k2", "triton_a"))) == ()


def test_a_part_that_runs_while_another_is_recorded_has_its_own_kernels():
    timeline = Timeline()
    with timeline.forward("fkey"):
        for kernel in ("triton_a", "triton_b"):
            with timeline.range("CUDAGraphNode.record"), timeline.range(kernel):
                timeline.noted_call()
            timeline.replay(kernel)
            if kernel == "triton_a":
                timeline.op("aten::mm", "k1", "k2")
                timeline.op("aten::mm", "k3")
    assert _kernels(timeline) == ((1, ("k1", "k2")), (2, ("k3",)))


def test_a_part_that_is_recorded_and_not_replayed_teaches_nothing_of_its_library_calls():
    ops = (("triton_a", ()), ("aten::mm", ()), ("aten::mm", ("k1", "k2")), ("triton_b", ()))
    assert _kernels(_call(*ops)) == ((2, ("k1", "k2")),)


def test_a_call_that_is_recorded_whole_and_not_replayed_teaches_nothing():
    ops = (("triton_a", ()), ("aten::mm", ()), ("aten::mm", ()), ("triton_b", ()))
    assert _kernels(_call(*ops)) == ()


def test_a_call_that_does_not_align_teaches_nothing():
    ops = ("triton_b", "aten::mm", "triton_a")
    assert _kernels(_call(*((name, (name,)) for name in ops))) == ()


MMS = ("aten::mm", ("k1", "k2", "k3")), ("aten::mm", ("k4",))
CALLED = _call(("triton_a", ("triton_a",)), *MMS, ("triton_b", ("triton_b",)))
SEEN = ((1, ("k1", "k2", "k3")), (2, ("k4",)))


def test_a_replay_that_was_explained_whole_settles_the_kernels():
    timeline = copy.deepcopy(CALLED)
    with timeline.forward("fkey"):
        timeline.replay("triton_a", "k1", "k2", "k3", "k4", "triton_b")
    assert attribute(timeline.recording(graph((), SITES))).library_kernels == ((0, SEEN),)


def test_what_only_another_run_explains_settles_nothing():
    timeline = Timeline()
    with timeline.forward("fkey"):
        timeline.replay("triton_a", "k1", "k2", "k3", "k4", "triton_b")
    late = graph((), SITES)
    assert attribute(timeline.recording(late)).library_kernels == ()
    taught = replace(late, stored_kernels=SEEN)
    assert attribute(timeline.recording(taught)).library_kernels == ()


def test_two_calls_in_one_trace_teach_nothing():
    timeline = copy.deepcopy(CALLED)
    with timeline.forward("fkey"):
        pass
    assert _kernels(timeline) == ()


def test_a_session_tells_once_what_was_found():
    reported = []
    session = Session(CALLED.recording(), reported.append)
    assert [session.analysis, session.analysis] == [reported[0]] * 2
    assert len(reported) == 1
