"""What compiling took as a table and as text: whole rows, sums, and every text escaped."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest

from profiler_ext.exporters.table_kinds import table_named
from profiler_ext.exporters.tables import Table
from profiler_ext.exporters.terminal.columns import Drawing
from profiler_ext.exporters.terminal.console import text_console
from profiler_ext.exporters.terminal.tables import compile_table
from profiler_ext.exporters.views.compiles import (
    compile_text,
    compile_text_of_ranks,
    detail_texts,
    name_text,
)
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.compiles import (
    CacheAnswer,
    CacheLookup,
    Compilation,
    CompileCache,
    CompileFailure,
    CompileKind,
    CompilePhase,
    CompileTime,
    GraphBreak,
    Recompilation,
)
from profiler_ext.records.lineage import Frame
from tests import frames as tables
from tests.analyses import gpu_step, report
from tests.frames import records

REASON = "Encountered graph break when attempting to trace CALL:\n\nFailed to trace builtin\n  Hint"
FORWARD = Compilation(
    index=0,
    kind=CompileKind.FRAME,
    compile_id="0/0",
    dynamo_number=0,
    thread=1,
    started_ns=-5_000_000_000,
    duration_ns=4_000_000_000,
    times=(
        CompileTime(CompilePhase.DYNAMO, 1_000_000_000),
        CompileTime(CompilePhase.KERNELS, 3_000_000_000, 0),
    ),
    function="forward",
    file="/home/me/model.py",
    line=12,
    breaks=(GraphBreak(REASON, (Frame("/home/me/model.py", 14, "forward", "print()"),), "k"),),
    lookups=(
        CacheLookup(CompileCache.AUTOGRAD, CacheAnswer.BYPASS, "no way"),
        CacheLookup(CompileCache.FX_GRAPH, CacheAnswer.MISS, "s0 < 5"),
    ),
    graphs=(0,),
)
AGAIN = replace(
    FORWARD,
    index=1,
    compile_id="0/1",
    started_ns=0,
    duration_ns=100,
    times=(CompileTime(CompilePhase.DYNAMO, 100),),
    is_resumed=True,
    recompiles=(Recompilation("0/0", "n == 1 \x1b[31m"), Recompilation("0/9", "older")),
    breaks=(),
    lookups=(),
    graphs=(),
    failure=CompileFailure("Unsupported", "too many\nmore"),
)


def tuned(index: int, kind: CompileKind, duration: int) -> Compilation:
    return Compilation(
        index=index,
        kind=kind,
        compile_id="0/0",
        dynamo_number=None,
        thread=2,
        started_ns=index,
        duration_ns=duration,
        times=(CompileTime(CompilePhase.AUTOTUNING, duration),),
    )


COMPILES = (
    FORWARD,
    AGAIN,
    tuned(2, CompileKind.RUN_TIME, 30),
    tuned(3, CompileKind.RUN_TIME, 40),
    tuned(4, CompileKind.WORKER, 9_000_000_000),
)


def analysis() -> Analysis:
    step = gpu_step()
    return replace(step, recording=replace(step.recording, compiles=COMPILES))


def test_a_row_has_the_function_its_phases_its_reasons_and_what_it_costs_a_step() -> None:
    whole = analysis()
    spent = whole.launches.duration_ns[(whole.launches.graph == 0).filled(False)]
    first = records(tables.compiles(whole))[0]
    steps = len(whole.steps)
    assert first == {
        "rank": 0,
        "compilation": 0,
        "compile_kind": "frame",
        "compile_id": "0/0",
        "function": "forward",
        "file": "/home/me/model.py",
        "line": 12,
        "resumed": False,
        "start_ns": -5_000_000_000,
        "compile_ns": 4_000_000_000,
        "dynamo_ns": 1_000_000_000,
        "aot_autograd_ns": 0,
        "inductor_ns": 0,
        "kernels_ns": 3_000_000_000,
        "autotuning_ns": 0,
        "cuda_graphs_ns": 0,
        "other_ns": 0,
        "profiled_ns": 0,
        "recompile_reason": None,
        "recompiles": None,
        "graph_breaks": 1,
        "break_reason": REASON,
        "break_file": "/home/me/model.py",
        "break_line": 14,
        "failure": None,
        "cache_detail": "AOTAutograd's cache: bypass (no way); FX graph cache: miss (s0 < 5)",
        "graphs": 1,
        "launches": 2,
        "per_step_ns": int(spent.sum()) / steps,
        "as_steps": 4_000_000_000 * steps / int(spent.sum()),
    }


def test_the_phases_of_each_row_add_up_and_what_ran_next_to_is_last() -> None:
    rows = records(tables.compiles(analysis()))
    assert [(row["compilation"], row["compile_kind"], row["compile_ns"]) for row in rows] == [
        (0, "frame", 4_000_000_000),
        (1, "frame", 100),
        (2, "run_time", 70),
        (4, "worker", 9_000_000_000),
    ]
    for row in rows:
        assert sum(row[f"{phase}_ns"] for phase in CompilePhase) == row["compile_ns"]


def test_what_lies_in_the_profiled_steps_is_counted() -> None:
    step = analysis().steps[0]
    within = replace(AGAIN, started_ns=step.start_ns - 60)
    whole = replace(analysis(), recording=replace(gpu_step().recording, compiles=(within,)))
    assert records(tables.compiles(whole))[0]["profiled_ns"] == 40
    assert len(tables.compiles(whole, step=step.number)) == 1
    assert len(tables.compiles(analysis(), step=step.number)) == 3
    assert len(tables.compiles(analysis(), rank=1)) == 0


def test_one_line_says_what_compiling_took_and_what_stands_out() -> None:
    assert compile_text(analysis()) == (
        "compiling took 4.00 s for 1 graph (Triton, C++ 3.00 s, Dynamo 1.00 s, autotuning 70 ns), "
        "170 ns of it in profiled steps: 1 recompilation, 1 graph break, 1 failed compile; "
        "AOTAutograd's cache: 1 bypass; FX graph cache: 1 miss"
    )
    assert compile_text(gpu_step()) is None


@pytest.mark.parametrize(
    ("graphs", "expected"),
    [
        ((0,), "for 1 graph ("),
        ((2,), "for 1 graph, which ran in no profiled step ("),
        ((0, 2, 3), "for 3 graphs, of which 1 ran in the profiled steps ("),
        ((2, 3), "for 2 graphs, of which none ran in the profiled steps ("),
    ],
)
def test_graphs_that_the_steps_do_not_run_are_distinguished(
    graphs: tuple[int, ...], expected: str
) -> None:
    recording = gpu_step().recording
    compiles = (replace(FORWARD, graphs=graphs),)
    more = replace(recording, graphs=recording.graphs * 2, compiles=compiles)
    assert expected in (compile_text(replace(gpu_step(), recording=more)) or "")


def test_of_several_ranks_the_one_that_compiled_for_longest_is_reported() -> None:
    first, second = gpu_step(), analysis()
    settings = replace(second.recording.settings, rank=1)
    second = replace(second, recording=replace(second.recording, settings=settings))
    reported = compile_text_of_ranks([first, second])
    assert reported == f"rank 1, which compiled for longest: {compile_text(second)}"
    assert compile_text_of_ranks([first, first]) is None


def test_rows_of_several_ranks_are_distinguished_and_stand_longest_first() -> None:
    first, second = analysis(), analysis()
    settings = replace(second.recording.settings, rank=1)
    longer = replace(FORWARD, duration_ns=5_000_000_000, times=())
    recording = replace(second.recording, settings=settings, compiles=(longer,))
    second = replace(second, recording=recording)
    table = tables.of_ranks([first, second], 0, "compiles")
    assert list(zip(table["rank"], table["compilation"], strict=True)) == [
        (1, 0),
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 4),
    ]
    console = text_console(file := StringIO(), 80)
    kind = table_named("compiles")
    rows = Table.from_pandas(table)
    console.print(compile_table(Drawing(kind, rows, rows.head(2), settings, console, 0)))
    named = [line for line in file.getvalue().splitlines() if "(0/0)" in line]
    assert [line.partition("rank")[2].split(":")[0] for line in named] == [" 1", " 0"]


def test_the_rows_say_why_in_words_that_steer_no_terminal() -> None:
    whole = analysis()
    settings = whole.recording.settings
    forward, again, at_first_calls, _ = records(tables.compiles(whole))
    assert name_text(forward, settings) == "forward at /home/me/model.py:12 (0/0)"
    assert detail_texts(forward, settings)[:2] == [
        "1 graph break at /home/me/model.py:14: Failed to trace builtin",
        "AOTAutograd's cache: bypass (no way); FX graph cache: miss (s0 < 5)",
    ]
    assert name_text(again, settings) == "forward from /home/me/model.py:12 (0/1)"
    assert detail_texts(again, settings) == [
        "again, as 0/0 failed: n == 1 \N{REPLACEMENT CHARACTER}[31m",
        "gave nothing: too many",
    ]
    assert name_text(at_first_calls, settings) == "(at first calls) (0/0)"


def test_a_report_by_compile_has_a_column_for_each_phase_that_took_time() -> None:
    text = report(analysis(), by="compile", top=2, width=100).splitlines()
    at = next(n for n, line in enumerate(text) if line.endswith("what torch compiled"))
    assert text[at : at + 2] == [
        "   time   Dynamo  kernels  what torch compiled",
        " 4.00 s   1.00 s   3.00 s  forward at /home/me/model.py:12 (0/0)",
    ]
    assert text[at + 7 :][:2] == ["         gave nothing: too many", "(2 more)"]
    narrow = report(analysis(), by="compile", width=60)
    assert " 4.00 s  forward at /home/me/model.py:12 (0/0)" in narrow


def test_a_name_that_does_not_fit_next_to_its_times_stands_below_them() -> None:
    text = report(analysis(), by="compile", top=1, width=72).splitlines()
    at = text.index("   time   Dynamo  kernels  what torch compiled")
    assert text[at + 1] == " 4.00 s   1.00 s   3.00 s  forward at /home/me/model.py:12 (0/0)"
    narrower = report(deeper(), by="compile", top=1, width=72).splitlines()
    assert narrower[at + 1 : at + 3] == [
        " 4.00 s   1.00 s   3.00 s",
        "         forward at /home/me/a/package/of/models/model.py:12 (0/0)",
    ]


def deeper() -> Analysis:
    made = analysis()
    first, *others = made.recording.compiles
    moved = replace(first, file="/home/me/a/package/of/models/model.py")
    return replace(made, recording=replace(made.recording, compiles=(moved, *others)))
