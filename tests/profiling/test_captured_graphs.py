"""What is kept of captures of CUDA graphs, with a class that captures nothing in torch's place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.cuda import graphs

import profiler_ext
from profiler_ext.kineto.names import (
    CudaGraphMark,
    marked_cuda_graph,
    marked_moment,
    marked_node,
)
from profiler_ext.kineto.recording import unpacked_capture
from profiler_ext.profiling import captured_graphs, switch
from profiler_ext.records.recording import GraphNode, Recording
from profiler_ext.torch_compat.captured_nodes import CapturedNodes

# Another file may have compiled, and had capture forget it; here nothing is compiled.
pytestmark = pytest.mark.filterwarnings("ignore::profiler_ext.errors.LateCaptureWarning")

_NODES = (GraphNode("a", "kernel"), GraphNode("", "gpu_memset"), GraphNode("a", "kernel"))


class _Graph:
    """What is called of ``torch.cuda.CUDAGraph``."""

    def capture_begin(self) -> None:
        """Begin a capture."""

    def capture_end(self) -> None:
        """End it."""

    def replay(self) -> None:
        """Replay the graph."""
        torch.ones(2).neg()


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Switch capture on, with the class in the place of torch's."""
    monkeypatch.setattr(graphs, "CUDAGraph", _Graph)
    monkeypatch.setattr(
        captured_graphs, "nodes_being_captured", lambda: CapturedNodes(_NODES, ((0, 1), (1, 2)))
    )
    profiler_ext.disable()
    profiler_ext.enable(strict=True)
    yield
    profiler_ext.disable()


def _is_clock(name: str) -> bool:
    """Tell whether an event is a mark of the lines' clock."""
    return marked_moment(name) is not None


def _captured() -> _Graph:
    graph = _Graph()
    graph.capture_begin()
    torch.ones(2).cos()
    graph.capture_end()
    return graph


def _session(*replays: _Graph) -> Recording:
    with profiler_ext.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for graph in replays:
            graph.replay()
        torch.ones(2).sin()
    return profile.session.recording


@pytest.mark.usefixtures("capture")
def test_a_session_has_the_graphs_that_it_replays_with_their_captures() -> None:
    first, unused, second = _captured(), _captured(), _captured()
    recording = _session(second, first, second)
    assert [(each.number, each.capture) for each in recording.cuda_graphs] == [(0, 0), (2, 1)]
    assert [node.name for node in recording.cuda_graphs[0].kinds] == ["a", ""]
    assert recording.cuda_graphs[0].nodes.tolist() == [0, 1, 0]
    assert recording.cuda_graphs[0].edges.tolist() == [[0, 1], [1, 2]]
    named = [set(unpacked_capture(each).trace.events.name.strings) for each in recording.captures]
    assert all("aten::cos" in names and "aten::neg" not in names for names in named)
    del unused


@pytest.mark.usefixtures("capture")
def test_a_replay_through_a_method_that_the_program_kept_is_seen() -> None:
    graph = _captured()
    replay = graph.replay
    with profiler_ext.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        replay()
    replay()
    recording = profile.session.recording
    assert [each.number for each in recording.cuda_graphs] == [0]
    marks = [marked_cuda_graph(name, CudaGraphMark.REPLAYS) for name in _names(recording)]
    assert marks.count(0) == 1


@pytest.mark.usefixtures("capture")
def test_a_capture_marks_the_last_node_that_autograd_made() -> None:
    """What is captured later may differentiate it."""
    graph = _Graph()
    graph.capture_begin()
    made = torch.ones(2, requires_grad=True) * 2
    made.detach()
    graph.capture_end()
    assert made.grad_fn is not None
    (capture,) = _session(graph).captures
    nodes = [marked_node(name) for name in _names(unpacked_capture(capture))]
    assert [node for node in nodes if node is not None] == [made.grad_fn._sequence_nr()]


def _names(recording: Recording) -> list[str]:
    events = recording.trace.events
    return [events.name[row] for row in range(len(events))]


@pytest.mark.usefixtures("capture")
def test_a_capture_within_recorded_steps_is_kept_for_later_ones() -> None:
    with profiler_ext.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(2).sin()
        graph = _captured()
        torch.ones(2).tan()
        graph.replay()
    for recording in (profile.session.recording, _session(graph)):
        (capture,) = recording.captures
        names = set(unpacked_capture(capture).trace.events.name.strings)
        assert "aten::cos" in names
        # Without the marks of the clock no line of the capture would be known.
        assert any(map(_is_clock, names)) is (recording.python is not None)


def _graphed(callables: int) -> list[_Graph]:
    """Capture as ``torch.cuda.make_graphed_callables`` does: several graphs in one call."""
    return [_captured() for _ in range(callables)]


@pytest.mark.usefixtures("capture")
def test_captures_of_one_call_share_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of a backward are those of its forward, which is captured before it."""
    profiler_ext.disable()
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", _graphed)
    profiler_ext.enable(strict=True)
    graphs_made = torch.cuda.make_graphed_callables(2)  # type: ignore[call-overload]
    recording = _session(*graphs_made, _captured())
    captures = [(each.number, each.capture) for each in recording.cuda_graphs]
    assert captures == [(0, 0), (1, 0), (2, 1)]
    profiler_ext.disable()


@pytest.mark.usefixtures("capture")
def test_a_capture_that_fails_ends_its_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: Any) -> None:
        raise RuntimeError("capture failed")

    with monkeypatch.context() as patched:
        profiler_ext.disable()
        patched.setattr(_Graph, "capture_end", failing)
        profiler_ext.enable(strict=True)
        with pytest.raises(RuntimeError, match="capture failed"):
            _captured()
        profiler_ext.disable()
    profiler_ext.enable(strict=True)
    assert len(_session(_captured()).cuda_graphs) == 1


@pytest.mark.usefixtures("capture")
@pytest.mark.parametrize("variable", ["0", "1"])
def test_nothing_is_recorded_before_a_profile_unless_asked_for(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(captured_graphs.LEARN_VARIABLE, variable)
    profiler_ext.disable()
    profiler_ext.enable(strict=True, learn=False)
    assert len(_session(_captured()).captures) == int(variable)


@pytest.mark.usefixtures("capture")
def test_graphs_that_are_gone_are_forgotten() -> None:
    captured = switch.captured_graphs()
    assert captured is not None
    graph = _captured()
    assert captured.number(graph) == 0
    del graph
    assert not captured.replayed_in(["profiler_ext: cuda graph 0 replays"])[0]


@pytest.mark.usefixtures("capture")
def test_a_session_without_source_has_captures_without_it() -> None:
    """The capture's recording keeps where its lines are, and not their text."""
    graph = _captured()
    options = {"activities": [torch.profiler.ProfilerActivity.CPU], "source": False}
    with profiler_ext.profile(**options) as profile:  # type: ignore[arg-type]
        graph.replay()
    (capture,) = profile.session.recording.captures
    python = unpacked_capture(capture).python
    assert python is None or {position.code for position in python.positions} == {None}
