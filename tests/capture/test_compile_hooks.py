"""The hooks that note compiles: their figures are torch's, and their failures cost nothing else."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
import torch
from torch._dynamo.utils import clear_compilation_metrics, get_compilation_metrics

import profiler_ext
from profiler_ext.capture.hooks import installing
from profiler_ext.capture.hooks.compile_log import CompileLog
from profiler_ext.capture.hooks.installing import Capture
from profiler_ext.errors import CaptureWarning
from profiler_ext.records.compiles import CacheAnswer, CompileCache, CompileKind, CompilePhase
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap
from profiler_ext.torch_compat import points
from profiler_ext.torch_compat.patches import Point
from tests.compiling import capture, train_once

pytestmark = pytest.mark.usefixtures("fresh_torch")
BASE_NS = time.time_ns()
COLUMNS = {
    "entire_frame_compile": "dynamo_cumulative_compile_time_us",
    "entire_backward_compile": "backward_cumulative_compile_time_us",
    "backend_compile": "aot_autograd_cumulative_compile_time_us",
    "inductor_compile": "inductor_cumulative_compile_time_us",
    "code_gen": "inductor_code_gen_cumulative_compile_time_us",
}


def enabled(*, strict: bool = True) -> Capture:
    """Switch capture on, and return it."""
    profiler_ext.enable(strict=strict)
    return capture()


def test_the_spans_last_as_long_as_torch_says() -> None:
    clear_compilation_metrics()
    captured = enabled()
    train_once()
    compiles = captured.compiles_since(BASE_NS)
    spent: Counter[str] = Counter()
    for span in (span for each in compiles for span in each.spans):
        spent[span.name] += span.duration_ns // 1000
    of_torch: Counter[str] = Counter()
    for name, column in COLUMNS.items():
        of_torch[name] = sum(getattr(each, column) or 0 for each in get_compilation_metrics())
    assert {name: spent[name] for name in COLUMNS} == dict(of_torch)


def test_a_forward_and_its_backward_are_compiled_with_their_graphs() -> None:
    captured = enabled()
    train_once()
    graphs, compiles = captured.graphs, captured.compiles_since(BASE_NS)
    forward, backward = (each for each in compiles if each.kind in DIRECT)
    assert (forward.kind, backward.kind) == (CompileKind.FRAME, CompileKind.BACKWARD)
    assert [graphs[index].is_backward for index in (*forward.graphs, *backward.graphs)] == [
        False,
        True,
    ]
    assert {each.dynamo_number for each in (forward, backward)} == {graphs[0].dynamo_number}
    assert (forward.function, forward.line) == (backward.function, backward.line)
    for each in compiles:
        assert sum(time.duration_ns for time in each.times) == each.duration_ns
    assert forward.phase_ns(CompilePhase.DYNAMO) > 0 == backward.phase_ns(CompilePhase.DYNAMO)
    assert forward.lookups[0].cache is CompileCache.AUTOGRAD
    assert {each.answer for each in forward.lookups} <= {CacheAnswer.MISS, CacheAnswer.HIT}


DIRECT = (CompileKind.FRAME, CompileKind.BACKWARD)


@pytest.mark.filterwarnings(f"ignore::{CaptureWarning.__module__}.CaptureWarning")
def test_a_failure_of_theirs_is_a_gap_and_takes_nothing_from_a_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(CompileLog, "begin", fail)
    captured = enabled(strict=False)
    train_once()
    assert all(graph.is_known for graph in captured.graphs)
    reasons = {gap.reason for gap in captured.all_gaps}
    reported = [gap.detail for gap in captured.all_gaps]
    assert reasons == {GapReason.COMPILES_INCOMPLETE}
    assert any("RuntimeError" in each for each in reported)


def test_without_a_place_of_theirs_capture_begins_and_says_what_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Point.problem
    gone = f"{points.GRAPH_BREAK.path} is not there"

    def problem(point: Point, *shape: object) -> str | None:
        return gone if point is points.GRAPH_BREAK else whole(point, *shape)  # type: ignore[arg-type]

    monkeypatch.setattr(Point, "problem", problem)
    assert installing.problems() == ()
    captured = enabled()
    train_once()
    compiles, gaps = captured.compiles_since(BASE_NS), captured.all_gaps
    lost = f"{gone}; lost is where Dynamo broke a graph, and why"
    assert gaps[0] == Gap(GapReason.PRIVATE_NAME, lost)
    assert [each.kind for each in compiles if each.kind in DIRECT] == [*DIRECT]


def test_a_function_that_dynamo_gives_up_is_reported_with_its_failure() -> None:
    def given_up(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x + 1
            torch._dynamo.graph_break()
        return x

    captured = enabled()
    torch.compile(given_up, backend="eager")(torch.ones(2))
    compiles = captured.compiles_since(BASE_NS)
    failed = next(each for each in compiles if each.failure)
    assert (failed.function, failed.failure and failed.failure.type) == ("given_up", "Unsupported")
    assert (len(failed.breaks), failed.graphs, failed.dynamo_number) == (1, (), None)


def breaks(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x + 1


def fails(graph: object, inputs: object) -> None:
    raise ValueError("no backend")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"fullgraph": True, "backend": "eager"}, torch._dynamo.exc.Unsupported),
        ({"backend": fails}, torch._dynamo.exc.BackendCompilerFailed),
    ],
)
def test_an_error_of_torchs_is_the_programs_and_is_reported(
    options: dict[str, Any], error: type[Exception]
) -> None:
    captured = enabled()
    with pytest.raises(error):
        torch.compile(breaks, **options)(torch.ones(2))
    failed = captured.compiles_since(BASE_NS)[-1].failure
    assert failed is not None
    assert failed.type == error.__name__
    assert captured.all_gaps == ()
