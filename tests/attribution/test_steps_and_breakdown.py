from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from profiler_ext.attribution import attribute
from profiler_ext.attribution.step_breakdown import break_down_steps, busy_spans
from profiler_ext.exporters.tables import fraction_of
from profiler_ext.records.analysis import BreakdownRow, Step
from profiler_ext.records.events import Thread
from profiler_ext.records.recording import Recording
from tests.attribution.graphs import graph, node, triton
from tests.attribution.reading import assert_conserves, rows
from tests.attribution.timeline import MAIN, Timeline
from tests.handmade import Mark, Piece, Row, interned, ints, launches, pieces, trace

STREAMS = (Thread(0, 7), Thread(0, 8))
NOTHING = ints([])


def idle_of(marks: Sequence[Mark]) -> list[Piece]:
    return pieces(attribute(Recording(trace(marks))))


def _kernel(start_ns: int, duration_ns: int, stream: int = 0, device: int = 0) -> Mark:
    args = {"device": device, "stream": stream}
    return Mark("k", "kernel", STREAMS[stream], start_ns, duration_ns, args)


def _table(marks, **changes):
    row = {"parts": (), "kind": "eager", "phase": "forward", "level": "op", **changes}
    return launches(marks, [Row(event=at, **row) for at in range(len(marks))])


def _scoped(table, in_graph):
    scopes = ["compiled" if each else "eager" for each in in_graph.tolist()]
    return replace(table, scope=interned(scopes))


def _none(table):
    return table.start_ns < 0


def _busy(marks):
    return [
        (busy.device, busy.launch.tolist(), busy.start_ns.tolist(), busy.end_ns.tolist())
        for busy in busy_spans(_table(marks))
    ]


def test_overlapping_launches_count_once_for_the_one_that_started_first():
    marks = [_kernel(0, 10), _kernel(5, 10, 1), _kernel(6, 2), _kernel(20, 5)]
    assert _busy(marks) == [(0, [0, 1, 2, 3], [0, 10, 15, 20], [10, 15, 15, 25])]


def test_each_device_is_busy_by_itself():
    marks = [_kernel(0, 10), _kernel(5, 10, device=1)]
    assert _busy(marks) == [(0, [0], [0], [10]), (1, [1], [5], [15])]


def test_the_step_time_breakdown_of_a_step_counts_what_the_device_did_within_it():
    table = _table([_kernel(0, 10), _kernel(12, 10), _kernel(30, 100)])
    step = Step.on_cpu(1, 5, 50)
    in_graph = table.start_ns == 12
    assert break_down_steps(_scoped(table, in_graph), _none(table), busy_spans(table), [step]) == (
        BreakdownRow(1, 0, "compiled", "op", "op", 10),
        BreakdownRow(1, 0, "eager", "op", "op", 25),
        BreakdownRow(1, 0, "idle", None, "idle", 10),
    )


def test_what_was_attributed_to_a_line_against_the_backward_tag_is_a_line_of_its_own():
    table = _table([_kernel(0, 10), _kernel(10, 20), _kernel(30, 5)], level="line")
    in_graph, corrected = table.start_ns < 30, table.start_ns >= 10
    assert break_down_steps(
        _scoped(table, in_graph), corrected, busy_spans(table), [Step.on_cpu(0, 0, 40)]
    ) == (
        BreakdownRow(0, 0, "compiled", "line", "line", 10),
        BreakdownRow(0, 0, "compiled", "line", "line_phase_corrected", 20),
        BreakdownRow(0, 0, "eager", "line", "line_phase_corrected", 5),
        BreakdownRow(0, 0, "idle", None, "idle", 5),
    )


def test_what_has_no_level_is_kept_under_its_reason():
    table = _table([_kernel(0, 10)], level="none", gap="no_launch_call")
    assert break_down_steps(
        _scoped(table, _none(table)), _none(table), busy_spans(table), [Step.on_cpu(0, 0, 10)]
    ) == (
        BreakdownRow(0, 0, "eager", "none", "no_launch_call", 10),
        BreakdownRow(0, 0, "idle", None, "idle", 0),
    )


def test_an_op_without_a_line_is_kept_under_the_reason_and_attributed_to_its_op():
    table = _table([_kernel(0, 10), _kernel(10, 5)], level="op", gap="lines_need_python_3_12")
    in_graph = table.start_ns == 10
    breakdown = break_down_steps(
        _scoped(table, in_graph), _none(table), busy_spans(table), [Step.on_cpu(0, 0, 15)]
    )
    assert breakdown == (
        BreakdownRow(0, 0, "compiled", "op", "lines_need_python_3_12", 5),
        BreakdownRow(0, 0, "eager", "op", "lines_need_python_3_12", 10),
        BreakdownRow(0, 0, "idle", None, "idle", 0),
    )
    assert [fraction_of(breakdown, level, "all") for level in ("line", "op", "none")] == [0, 1, 1]


def _two_steps() -> Timeline:
    timeline = Timeline()
    timeline.op("aten::before", "k")
    for number in (3, 4):
        with timeline.annotation(f"ProfilerStep#{number}"):
            timeline.op("aten::mm", "k", "k")
    return timeline


def test_a_launch_belongs_to_the_step_in_which_it_was_enqueued():
    timeline = _two_steps()
    analysis = attribute(timeline.recording())
    spans = [mark for mark in timeline.marks if mark.name.startswith("ProfilerStep")]
    marked = [(mark.start_ns, mark.start_ns + mark.duration_ns) for mark in spans]
    assert [(step.cpu_start_ns, step.cpu_end_ns) for step in analysis.steps] == marked
    assert rows(analysis, "step") == [(None,), (3,), (3,), (4,), (4,)]
    assert_conserves(analysis)


def test_steps_on_the_device_side_are_no_steps():
    timeline = _two_steps()
    timeline.marks += [
        Mark("ProfilerStep#3", "gpu_user_annotation", STREAMS[0], 0, 9, {}),
    ]
    assert [step.number for step in attribute(timeline.recording()).steps] == [3, 4]


def test_without_steps_one_spans_all_work():
    marks = [
        Mark("aten::mm", "cpu_op", MAIN, 10, 10, {}),
        _kernel(30, 10),
        Mark("PyTorch Profiler (0)", "Trace", Thread("Spans", "x"), 0, 1000, {}),
    ]
    analysis = attribute(Recording(trace(marks)))
    assert analysis.steps == (Step.on_cpu(0, 10, 40),)
    assert rows(analysis, "step") == [(0,)]


def test_idle_spans_tell_what_the_cpu_did():
    marks = [
        Mark("ProfilerStep#1", "user_annotation", MAIN, 0, 1000, {}),
        Mark("aten::outer", "cpu_op", MAIN, 0, 600, {}),
        Mark("cudaDeviceSynchronize", "cuda_runtime", MAIN, 150, 400, {}),
        Mark("aten::short", "cpu_op", MAIN, 10, 20, {}),
        _kernel(100, 50),
        _kernel(600, 100),
    ]
    reported = [(p.start_ns, p.duration_ns, p.cpu_activity) for p in idle_of(marks)]
    assert reported == [
        (0, 100, "aten::outer"),
        (150, 450, "cudaDeviceSynchronize"),
    ]


def test_an_idle_span_is_not_reported_by_a_mark_of_this_package():
    marks = [
        Mark("ProfilerStep#1", "user_annotation", MAIN, 0, 200, {}),
        Mark("aten::outer", "cpu_op", MAIN, 0, 200, {}),
        Mark("profiler_ext: graph 3", "cpu_op", MAIN, 10, 180, {}),
        _kernel(100, 100),
    ]
    assert [(p.duration_ns, p.cpu_activity) for p in idle_of(marks)] == [(100, "aten::outer")]


def test_an_idle_span_in_which_no_cpu_event_stands_is_nameless():
    analysis = attribute(Recording(trace([_kernel(0, 10), _kernel(30, 10)])))
    assert [(p.start_ns, p.duration_ns, p.cpu_activity) for p in pieces(analysis)] == [(10, 20, "")]


def test_a_captured_graph_s_gaps_are_in_the_compiled_scope():
    timeline = Timeline()
    with timeline.forward("fkey"):
        timeline.triton("triton_poi_fused_a_0")
    with timeline.forward("unknown"):
        timeline.triton("triton_poi_fused_a_0")
    graphs = graph((node("a", 1),), (triton("triton_poi_fused_a_0", "a"),))
    analysis = attribute(timeline.recording(graphs))
    busy = [(line.scope, line.category) for line in analysis.breakdown if line.scope != "idle"]
    assert busy == [("compiled", "graph_not_captured"), ("compiled", "line")]
    assert_conserves(analysis)


def test_what_follows_the_last_step_and_enqueued_nothing_is_no_step():
    marks = [
        Mark("ProfilerStep#0", "user_annotation", MAIN, 0, 100, {}),
        Mark("ProfilerStep#1", "user_annotation", MAIN, 100, 50, {}),
        Mark("aten::add", "cpu_op", MAIN, 10, 20, {}),
    ]
    assert attribute(Recording(trace(marks))).steps == (Step.on_cpu(0, 0, 100),)


def test_a_step_in_the_middle_that_enqueued_nothing_is_a_step():
    marks = [
        Mark("ProfilerStep#0", "user_annotation", MAIN, 0, 100, {}),
        Mark("ProfilerStep#1", "user_annotation", MAIN, 100, 50, {}),
        Mark("aten::add", "cpu_op", MAIN, 110, 20, {}),
    ]
    assert [step.number for step in attribute(Recording(trace(marks))).steps] == [0, 1]


def test_overlapping_steps_each_have_their_wall_time_in_the_step_time_breakdown():
    table = _table([_kernel(2, 4), _kernel(8, 10), _kernel(30, 5)])
    steps = [Step.on_cpu(0, 0, 40), Step.on_cpu(1, 4, 12), Step.on_cpu(2, 10, 10)]
    lines = break_down_steps(
        _scoped(table, table.start_ns == 8), _none(table), busy_spans(table), steps
    )
    assert lines == (
        BreakdownRow(0, 0, "compiled", "op", "op", 10),
        BreakdownRow(0, 0, "eager", "op", "op", 9),
        BreakdownRow(0, 0, "idle", None, "idle", 21),
        BreakdownRow(1, 0, "compiled", "op", "op", 4),
        BreakdownRow(1, 0, "eager", "op", "op", 2),
        BreakdownRow(1, 0, "idle", None, "idle", 2),
        BreakdownRow(2, 0, "idle", None, "idle", 0),
    )


def test_an_idle_span_is_of_the_step_that_opened_last():
    marks = [
        Mark("ProfilerStep#0", "user_annotation", MAIN, 0, 100, {}),
        Mark("ProfilerStep#1", "user_annotation", Thread(77, 78), 20, 30, {}),
        Mark("aten::add", "cpu_op", MAIN, 40, 5, {}),
    ]
    assert [(p.step, p.start_ns, p.duration_ns, p.cpu_activity) for p in idle_of(marks)] == [
        (0, 0, 20, ""),
        (1, 20, 20, ""),
        (1, 45, 5, ""),
        (0, 50, 50, ""),
    ]
