"""What is compiled after a graph break has the lines of its statements, however many they have."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

import profiler_ext
from profiler_ext.capture.traces import resumed_lines
from profiler_ext.capture.traces.stacks import parse_stack
from tests.capture.fx_graphs import frame_text
from tests.compiling import capture


def broken(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    y = (
        x.mm(x)
        .t()
        .mm(x)
    )  # fmt: skip
    torch._dynamo.graph_break()
    z = (
        y.mm(x)
        .t()
        .mm(y)
    )  # fmt: skip
    return z.mm(x)


def test_lines_after_a_graph_break_are_those_of_the_source(fresh_torch: Path) -> None:
    profiler_ext.enable(strict=True, cpu_events=False)
    torch.compile(broken)(torch.randn(4, 4))
    nodes = [node for graph in capture().graphs for node in graph.nodes]
    frames = [n.lineage.stack[-1] for n in nodes if n.target == "aten.mm.default"]
    first = broken.__code__.co_firstlineno
    assert [(frame.line - first, frame.code) for frame in frames] == [
        (3, "x.mm(x)"),
        (5, ".mm(x)"),
        (9, "y.mm(x)"),
        (11, ".mm(y)"),
        (13, "return z.mm(x)"),
    ]


def test_breaks_and_where_code_goes_on_are_at_lines_of_the_source(fresh_torch: Path) -> None:
    profiler_ext.enable(strict=True, cpu_events=False)
    torch.compile(broken)(torch.randn(4, 4))
    first = broken.__code__.co_firstlineno
    compiles = capture().compiles_since(time.time_ns())
    told = [(each.function, each.line, each.breaks) for each in compiles if each.line is not None]
    assert [
        (function, line - first, [made.stack[-1].line - first for made in breaks])
        for function, line, breaks in told
    ] == [("broken", 0, [1]), ("broken", 1, [7]), ("broken", 7, [])]


def test_a_line_at_which_code_may_go_on_from_two_places_is_not_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resumed_lines, "_RESUMED_AT", {("m.py", "forward", 9): {7, 8}})
    assert resumed_lines.line_resumed("m.py", "forward", 9) is None
    assert resumed_lines.line_resumed("m.py", "forward", 10) == 10


def test_where_one_of_two_lines_may_be_meant_none_is_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = ("/src/model.py", "torch_dynamo_resume_in_forward_at_3")
    monkeypatch.setitem(resumed_lines._LINES, place, {7: {6, 7}, 9: {8}})
    file, function = place
    either, told = (frame_text(file, line, function, "text") for line in (7, 9))
    assert [frame.line for frame in parse_stack(either + told)] == [8]
