"""What is compiled after a graph break has the lines of its statements, however many they have."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import profiler_ext
from profiler_ext.capture.traces import stack_traces
from profiler_ext.capture.traces.stack_traces import parse_stack
from profiler_ext.torch_compat.code_lines import Traced
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
    reported = [
        (each.function, each.line, each.breaks) for each in compiles if each.line is not None
    ]
    assert [
        (function, line - first, [made.stack[-1].line - first for made in breaks])
        for function, line, breaks in reported
    ] == [("broken", 0, [1]), ("broken", 1, [7]), ("broken", 7, [])]


def test_a_line_at_which_code_may_go_on_from_two_places_is_not_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stack_traces, "_RESUMED_AT", {("m.py", "forward", 9): {7, 8}})
    assert stack_traces.line_resumed("m.py", "forward", 9) is None
    assert stack_traces.line_resumed("m.py", "forward", 10) == 10


def test_where_one_of_two_lines_may_be_meant_none_is_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = ("/src/model.py", "torch_dynamo_resume_in_forward_at_3")
    traced = {7: {_computing(7, 6), _computing(7, 7)}, 9: {_computing(9, 8)}}
    monkeypatch.setitem(stack_traces._TRACED, place, traced)
    file, function = place
    either, reported = (frame_text(file, line, function, "text") for line in (7, 9))
    assert [frame.line for frame in parse_stack(either + reported)] == [8]


def _computing(reported: int, line: int) -> Traced:
    return Traced(reported, line, (None, None), computes=True)


def stored(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    y = (
        x
        .mm(x)
        .t()
    )  # fmt: skip
    return y.mm(x)


def test_what_stores_a_value_or_returns_it_is_no_line_of_what_computed_it(
    fresh_torch: Path,
) -> None:
    assert _lines_of_products(stored) == [4, 7]


# The same once more: what is known of code that went on is known by its name, and for good.
def called(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    y = (
        x
        .mm(x)
        .t()
    )  # fmt: skip
    return y.mm(x)


def calling(x: torch.Tensor) -> torch.Tensor:
    return called(x).t()


def test_lines_are_those_of_the_source_where_code_goes_on_within_a_function_that_is_called(
    fresh_torch: Path,
) -> None:
    with torch._dynamo.config.patch(nested_graph_breaks=True):
        lines = _lines_of_products(calling)
    beyond = calling.__code__.co_firstlineno - called.__code__.co_firstlineno
    assert [line + beyond for line in lines] == [4, 7]


def multiplied(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return (
        x
        .t()
        .mm(x)
        @ x
    )  # fmt: skip


def test_a_line_that_begins_within_an_instruction_is_none_that_torch_says(
    fresh_torch: Path,
) -> None:
    assert _lines_of_products(multiplied) == [5, 3]


def test_carets_tell_which_of_two_lines_is_meant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (file := tmp_path / "model.py").write_text("with scope():\n    y = (x\n         .mm(x))\n")
    product, leaving = Traced(3, 2, (10, 12), True), Traced(3, 1, (5, 7), True)
    monkeypatch.setitem(stack_traces._TRACED, (str(file), "forward"), {3: {product, leaving}})
    text = frame_text(str(file), 3, "forward", ".mm(x))")
    (reported,) = parse_stack(f"{text}     ^^\n")
    assert (reported.line, reported.code) == (2, "y = (x")
    assert parse_stack(text) == ()


def _lines_of_products(function: Callable[[torch.Tensor], torch.Tensor]) -> list[int]:
    """Return the lines of a function's products, from its own on."""
    profiler_ext.enable(strict=True, cpu_events=False)
    torch.compile(function)(torch.randn(4, 4))
    nodes = [node for graph in capture().graphs for node in graph.nodes]
    stacks = [node.lineage.stack for node in nodes if node.target == "aten.mm.default"]
    return [stack[-1].line - function.__code__.co_firstlineno for stack in stacks]
