"""A backward that was captured in another CUDA graph than its forward, in traces by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.attribution import attribute
from profiler_ext.attribution.launches.joined_captures import joined
from profiler_ext.kineto.names import (
    CudaGraphMark,
    call_mark,
    cuda_graph_mark,
    marked_module,
    node_mark,
)
from profiler_ext.kineto.recording import packed_capture
from profiler_ext.records.lineage import ModuleFrame
from profiler_ext.records.recording import GraphNode, Recording, captured_graph
from tests.attribution.timeline import AUTOGRAD, SETTINGS, Timeline

_FORWARD = {"Fwd thread id": 0}
_LATER_NS = 1_000_000
_MODULE = call_mark(module=0) or ""


def _forward(number: int = 0, nodes: tuple[int, ...] = (7,), last: int | None = 7) -> Recording:
    """Record the capture of ops that make nodes, and of one that reads the next number."""
    line = Timeline()
    line.op(cuda_graph_mark(number, CudaGraphMark.BEGINS))
    with line.annotation(_MODULE):
        for node in nodes:
            with line.range("aten::mm", **{"Sequence number": node, **_FORWARD}):
                line.noted_call()
    line.op("aten::detach", **{"Sequence number": nodes[-1] + 1, **_FORWARD})
    if last is not None:
        line.op(node_mark(last))
    line.op(cuda_graph_mark(number, CudaGraphMark.ENDS))
    return line.recording()


def _backward(
    number: int = 1, nodes: tuple[int, ...] = (7,), reads: int | None = None
) -> Recording:
    line = Timeline()
    if reads is not None:
        line.op("aten::relu", **{"Sequence number": reads, **_FORWARD})
    line.op(cuda_graph_mark(number, CudaGraphMark.BEGINS))
    with line.annotation(_MODULE):
        line.op("aten::ones")
    for node in nodes:
        args = {"Sequence number": node, "Fwd thread id": 1}
        with (
            line.on(AUTOGRAD),
            line.range("autograd::engine::evaluate_function: MmBackward0", **args),
            line.range("MmBackward0", **args),
            line.range("aten::mm"),
        ):
            line.noted_call()
    line.op(cuda_graph_mark(number, CudaGraphMark.ENDS))
    return _later(line.recording())


def _later(recording: Recording) -> Recording:
    events = recording.trace.events
    moved = replace(events, start_ns=events.start_ns + _LATER_NS)
    return replace(recording, trace=replace(recording.trace, events=moved))


def _groups(*captures: Recording) -> list[tuple[int, ...]]:
    return sorted(tuple(sorted(group)) for group, _ in joined(dict(enumerate(captures))))


def _forward_of_backward(*captures: Recording) -> str | None:
    """Return the forward op of what the graph of the last capture runs."""
    number = len(captures) - 1
    line = Timeline()
    with line.range(cuda_graph_mark(number, CudaGraphMark.REPLAYS)):
        line.replay("gemm")
    graphs = [
        captured_graph(at, at, [GraphNode("gemm", "kernel")], ()) for at in range(len(captures))
    ]
    packed = (packed_capture(each) for each in captures)
    session = replace(line.recording(), cuda_graphs=tuple(graphs), captures=tuple(packed))
    analysis = attribute(session)
    assert analysis.launches.gap[0] == ""
    assert analysis.launches.phase[0] == "backward"
    return analysis.places[int(analysis.shares.place[0])].forward_node


def test_recordings_of_a_forward_and_of_its_backward_are_one() -> None:
    assert _groups(_forward(), _backward()) == [(0, 1)]
    assert _groups(_backward(), _forward()) == [(0, 1)]
    assert _groups(_forward(), _later(_forward(1, (8,), 8)), _backward(2, (8, 7))) == [(0, 1, 2)]


def test_recordings_without_a_backward_of_another_stay_apart() -> None:
    forward, other = _forward(), _later(_forward(1, (8,), 8))
    assert _groups(forward, other, _backward(2, (8,))) == [(0,), (1, 2)]
    assert _groups(forward, _backward(1, (9,))) == [(0,), (1,)]


@pytest.mark.parametrize("last", [7, None], ids=["marked", "of an older version"])
def test_what_read_the_next_number_made_no_node(last: int | None) -> None:
    """The node 8 was made after the capture, by an op that was not recorded."""
    assert _groups(_forward(last=last), _backward(1, (8,))) == [(0,), (1,)]


def test_numbers_that_begin_again_are_of_another_thread() -> None:
    """The system gave the thread's id to a new one, which counts from the start."""
    assert _groups(_forward(), _backward(reads=3)) == [(0,), (1,)]
    assert _groups(_forward(), _backward(reads=8)) == [(0, 1)]


def test_the_joined_events_keep_what_was_launched_where() -> None:
    ((_, recording),) = joined({0: _forward(), 1: _backward()})
    events = recording.trace.events
    parts = [each.trace.events for each in (_forward(), _backward())]
    assert list(events.start_ns) == [ns for each in parts for ns in each.start_ns.tolist()]
    names = [events.name[at] for at in range(len(events))]
    assert [name.replace("module 1", "module 0") for name in names] == [
        each.name[at] for each in parts for at in range(len(each))
    ]
    correlations = events.correlation.compressed().tolist()
    assert len(set(correlations)) == len(correlations) == 2
    raw = [recording.trace.raw[at] for at in events.position.tolist()]
    assert len(raw) == len(events) and raw[-1] != raw[0]
    assert np.ma.getmaskarray(events.sequence_number)[names.index("aten::detach")]


def test_a_backward_differentiates_the_op_of_another_capture() -> None:
    assert _forward_of_backward(_forward(), _backward()) == "aten::mm"
    assert _forward_of_backward(_forward(), _backward(1, (9,))) is None


def test_marks_of_modules_are_those_of_their_recording() -> None:
    """Each recording numbers the modules that it marks from 0."""
    captures = {
        at: replace(
            own, settings=replace(SETTINGS, called_modules=((0, ModuleFrame(path, "Layer")),))
        )
        for at, (own, path) in enumerate([(_forward(), "layers.0"), (_backward(), "layers.1")])
    }
    ((_, recording),) = joined(captures)
    called = {number: frame.path for number, frame in recording.settings.called_modules}
    events = recording.trace.events
    marked = [marked_module(events.name[at]) for at in range(len(events))]
    assert [called[number] for number in marked if number is not None] == ["layers.0", "layers.1"]
