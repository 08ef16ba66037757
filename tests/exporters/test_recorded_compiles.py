"""What compiling took on an H200 under torch 2.11: by function, phase, reason and cache."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from profiler_ext.records.compiles import CompilePhase
from profiler_ext.sessions.session import Session, load
from tests.frames import records

RECORDED = Path(__file__).parents[1] / "fixtures" / "h200" / "compiles"
CASES = ("checkpoint", "cudagraphs", "graph_break", "recompilations")
BYPASS = "bypass (Can't cache HigherOrderOperator: graphsafe_run_with_rng_state)"
SIZE = "tensor 'x' size mismatch at index 0. expected 16, actual 48"


@cache
def session(name: str) -> Session:
    return load(RECORDED / f"{name}.session.pt.trace.json.gz")


def rows(name: str) -> list[dict[str, Any]]:
    return records(session(name).compiles())


def reported(name: str, *columns: str) -> list[tuple[object, ...]]:
    return [tuple(row[column] for column in columns) for row in rows(name)]


@pytest.mark.parametrize("name", CASES)
def test_phases_add_up_and_graphs_have_the_device_time_of_their_launches(name: str) -> None:
    compiled = rows(name)
    for row in compiled:
        assert sum(row[f"{phase}_ns"] for phase in CompilePhase) == row["compile_ns"]
    launches = session(name).launches()
    within = launches[launches["compile_id"].notna() & launches["step"].notna()]
    steps = len(session(name).analysis.steps)
    spent = sum(row["per_step_ns"] for row in compiled)
    assert spent == pytest.approx(int(within["duration_ns"].sum()) / steps)
    assert sum(row["launches"] for row in compiled) == len(within)


@pytest.mark.parametrize("name", CASES)
def test_all_of_it_was_before_the_recorded_steps(name: str) -> None:
    first = session(name).analysis.steps[0].start_ns
    assert all(row["start_ns"] + row["compile_ns"] < first for row in rows(name))
    assert {row["profiled_ns"] for row in rows(name)} == {0}


def test_a_break_makes_two_functions_with_a_backward_each() -> None:
    columns = ("compile_kind", "compile_id", "function", "line", "resumed", "graph_breaks")
    assert reported("graph_break", *columns) == [
        ("frame", "0/0", "work", 39, False, 1),
        ("backward", "1/0", "work", 41, True, 0),
        ("backward", "0/0", "work", 39, False, 0),
        ("frame", "1/0", "work", 41, True, 0),
        ("run_time", "1/0", None, None, False, 0),
        ("run_time", "0/0", None, None, False, 0),
    ]
    broken = session("graph_break").recording.compiles[0].breaks[0]
    assert broken.kind == "Call to `torch._dynamo.graph_break()`"
    assert broken.stack[-1].code == "torch._dynamo.graph_break()"


def test_a_recompilation_has_the_guard_that_failed() -> None:
    assert [
        found
        for found in reported("recompilations", "compile_id", "recompiles", "recompile_reason")
        if found[1]
    ] == [("0/1", "0/0", SIZE)]


def test_a_cache_that_was_bypassed_says_why() -> None:
    assert reported("checkpoint", "compile_kind", "cache_detail") == [
        ("frame", f"AOTAutograd's cache: miss; FX graph cache: {BYPASS}"),
        ("backward", f"FX graph cache: {BYPASS}"),
        ("run_time", None),
    ]


def test_what_is_tuned_and_recorded_at_the_first_calls_is_a_row_of_its_own() -> None:
    found = [row for row in rows("cudagraphs") if row["compile_kind"] == "run_time"]
    names = ("compile_id", "autotuning_ns", "cuda_graphs_ns", "inductor_ns", "graphs")
    assert [tuple(bool(row[name]) for name in names) for row in found] == [
        (True, True, True, False, False),
        (True, False, True, False, False),
    ]
