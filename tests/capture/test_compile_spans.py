"""The time of a compile parts among its phases without rest, by what torch calls its parts."""

from __future__ import annotations

import ast
from pathlib import Path

import torch

from profiler_ext.capture.hooks.compile_spans import (
    Span,
    begin_span,
    kind_of,
    phase_of,
    times,
    visible,
)
from profiler_ext.records.compiles import CompileKind, CompilePhase, CompileSpan, CompileTime

TORCH = Path(torch.__file__).parent


def tree(name: str, started: int, duration: int, around: Span | None = None) -> Span:
    span = begin_span(name, started, around)
    span.duration_ns = duration
    return span


def frame() -> Span:
    outermost = tree("dynamo", 0, 1000)
    backend = tree("backend_compile", 100, 800, outermost)
    inductor = tree("inductor_compile", 200, 600, backend)
    inductor.graph = 0
    lowering = tree("GraphLowering.run", 250, 100, inductor)
    tree("of a later torch", 260, 40, lowering)
    tree("async_compile.wait", 400, 300, inductor)
    return outermost


def test_a_compile_parts_into_phases_that_add_up() -> None:
    found = times(frame())
    assert found == (
        CompileTime(CompilePhase.DYNAMO, 200),
        CompileTime(CompilePhase.AOT_AUTOGRAD, 200),
        CompileTime(CompilePhase.INDUCTOR, 300, 0),
        CompileTime(CompilePhase.KERNELS, 300, 0),
    )
    assert sum(each.duration_ns for each in found) == 1000


def test_of_a_clock_that_was_set_back_only_the_sum_is_reported() -> None:
    outermost = tree("dynamo", 0, 100)
    tree("backend_compile", 10, 130, outermost)
    assert times(outermost) == (CompileTime(CompilePhase.OTHER, 100),)


def test_spans_are_kept_in_order_with_how_deep_they_lie() -> None:
    assert visible(frame())[:3] == (
        CompileSpan("dynamo", CompilePhase.DYNAMO, 0, 1000, 0),
        CompileSpan("backend_compile", CompilePhase.AOT_AUTOGRAD, 100, 800, 1),
        CompileSpan("inductor_compile", CompilePhase.INDUCTOR, 200, 600, 2),
    )


def test_spans_too_short_to_be_seen_are_left_out_and_stay_in_the_phases() -> None:
    outermost = tree("dynamo", 0, 1_000_000)
    tree("build_guards", 10, 999, outermost)
    tree("compile_file", 2000, 1000, outermost)
    assert [span.name for span in visible(outermost)] == ["dynamo", "compile_file"]
    assert times(outermost) == (
        CompileTime(CompilePhase.DYNAMO, 999_000),
        CompileTime(CompilePhase.KERNELS, 1000),
    )


def test_what_is_outermost_tells_what_torch_is_at() -> None:
    names = ("dynamo", "entire_frame_compile", "entire_backward_compile", "compiled_autograd")
    assert [kind_of(name) for name in (*names, "CachingAutotuner.benchmark_all_configs")] == [
        CompileKind.FRAME,
        CompileKind.FRAME,
        CompileKind.BACKWARD,
        CompileKind.COMPILED_AUTOGRAD,
        CompileKind.RUN_TIME,
    ]


def test_every_part_that_this_torch_times_is_in_a_phase() -> None:
    found = {name for path in sources() for name in timed_in(path)}
    assert {"build_guards", "fx_codegen_and_compile", "code_gen", "compile_file"} <= found
    assert {name for name in found if phase_of(name) is None} == set()


def sources() -> list[Path]:
    folders = ("_dynamo", "_inductor", "_functorch", "_higher_order_ops", "fx")
    return [path for folder in folders for path in sorted((TORCH / folder).rglob("*.py"))]


def timed_in(path: Path) -> set[str]:
    text = path.read_text()
    if "dynamo_timed" not in text:
        return set()
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return {n for each in calls if name_of(each.func) == "dynamo_timed" for n in reported(each)}


def name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def reported(call: ast.Call) -> set[str]:
    """The name that torch gives the span; none where it is made as torch runs."""
    phase = next((word.value for word in call.keywords if word.arg == "phase_name"), None)
    given = phase or next(iter(call.args), None)
    return {given.value} if isinstance(given, ast.Constant) else set()
