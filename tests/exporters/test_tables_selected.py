"""Tables of a step, a phase, a rank; graphs and coverage."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from profiler_ext.errors import UsageError
from tests import frames as tables
from tests.analyses import gpu_step
from tests.exporters.tabled import EVERY_TABLE, dtypes, empty, rows, two_steps


def test_launches_outside_the_steps_are_rows_and_in_no_sum():
    assert tables.launches(two_steps())["step"].tolist()[-3:] == [3, pd.NA, 4]
    assert "aten::zero_" not in tables.by_op(two_steps())["aten_op"].dropna().tolist()


def test_a_step_can_be_chosen():
    analysis = two_steps()
    assert tables.launches(analysis, step=4)["launch"].tolist() == [8]
    assert tables.attribution(analysis, step=4)["launch"].tolist() == [8]
    assert rows(tables.by_op(analysis, step=4), "aten_op", "steps", "per_step_ns") == [
        ("aten::_fused_adamw_", 1, 60_000.0)
    ]
    assert tables.graphs(analysis, step=4)["key"].tolist() == []
    assert tables.graphs(analysis, step=3)["key"].tolist() == ["fkeyforward", "fkeybackward"]


def test_a_scope_can_be_chosen():
    assert tables.launches(gpu_step(), scope="eager")["launch"].tolist() == [0, 6, 7, 8]
    compiled = tables.by_phase(gpu_step(), scope="compiled", phase="forward")
    assert compiled["duration_ns"].tolist() == [70_001]
    assert tables.graphs(gpu_step(), scope="eager")["key"].tolist() == []


def test_a_phase_can_be_chosen():
    assert tables.launches(gpu_step(), phase="forward")["launch"].tolist() == [1, 2]
    assert tables.attribution(gpu_step(), phase="backward")["launch"].tolist() == [3, 3, 4, 5]
    assert tables.graphs(gpu_step(), phase="backward")["key"].tolist() == ["fkeybackward"]
    assert tables.graphs(gpu_step(), phase="optimizer")["key"].tolist() == []


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        ("kernels.mm", {"extern_kernels.mm"}),
        ("extern_kernels.*", {"extern_kernels.addmm", "extern_kernels.mm"}),
        ("nvjet_tst_64*", {"extern_kernels.addmm"}),
        ("*gelu_0", {"triton_poi_fused__to_copy_gelu_0"}),
        ("Kernel2<cutlass", {"void cutlass::Kernel2<cutlass_80_wmma_tensorop>(Params)"}),
        ("[a-z]", set()),
        ("nothing", set()),
    ],
)
def test_kernels_can_be_chosen_by_a_part_of_either_name(kernel, found):
    chosen = tables.by_kernel(gpu_step(), kernel=kernel)
    assert set(chosen["kernel"]) == found
    of_launches = tables.launches(gpu_step(), kernel=kernel)["duration_ns"].sum()
    by_line = tables.by_line(gpu_step(), kernel=kernel)["duration_ns"].sum()
    assert chosen["duration_ns"].sum() == of_launches == by_line


@pytest.mark.parametrize("table", EVERY_TABLE)
def test_the_own_rank_chooses_all_and_another_none(table):
    assert_frame_equal(table(gpu_step(), rank=0), table(gpu_step()))
    nothing = table(gpu_step(), rank=1)
    assert len(nothing) == 0
    assert dtypes(nothing) == dtypes(table(gpu_step()))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda a: tables.by_line(a, step=9), "step 9 was not profiled"),
        (lambda a: tables.coverage(a, step=9), "ask for one of the steps: 3"),
        (lambda a: tables.launches(a, phase="sideways"), "there is no phase 'sideways'"),
        (lambda a: tables.by_line(a, scope="idle"), "there is no scope 'idle'"),
        (lambda a: tables.graphs(a, phase="sideways"), "there is no phase 'sideways'"),
        (lambda a: tables.by_line(a, view="torch"), "there is no view 'torch'"),
        (lambda a: tables.by_module(a, depth=-1), "the depth of modules is -1"),
        (lambda a: tables.fraction_at(a, level="best"), "there is no level 'best'"),
        (lambda a: tables.fraction_at(a, scope="idle"), "there is no scope 'idle'"),
    ],
)
def test_what_is_not_there_cannot_be_asked_for(ask, message):
    with pytest.raises(UsageError, match=message):
        ask(gpu_step())


def test_graphs_say_how_they_came_to_be():
    names = ("key", "compile_id", "phase", "fx_nodes", "call_sites", "cache_state", "compile_ns")
    assert rows(tables.graphs(gpu_step()), *names) == [
        ("fkeyforward", "0/0", "forward", 3, 2, "miss", 2_000_000_000),
        ("fkeybackward", "0/0", "backward", 3, 2, "miss", 2_000_000_000),
    ]
    assert list(tables.graphs(gpu_step()).columns) == [
        "key",
        "compile_id",
        "phase",
        "fx_nodes",
        "call_sites",
        "cache_state",
        "cache_detail",
        "compile_ns",
        "output_module",
    ]


def test_a_graph_without_provenance_has_no_counts():
    analysis = gpu_step()
    bare = replace(analysis.recording.graphs[1], key=None, provenance=None, runs_optimizer=True)
    recording = replace(analysis.recording, graphs=(bare,))
    table = tables.graphs(replace(analysis, recording=recording))
    assert rows(table, "key", "phase", "fx_nodes", "call_sites") == [
        (pd.NA, "optimizer", pd.NA, pd.NA)
    ]


def test_coverage_adds_up_to_the_wall_time():
    table = tables.coverage(gpu_step())
    assert rows(table, "scope", "level", "category", "duration_ns", "fraction") == [
        ("compiled", "line", "line", 130_001, 0.130001),
        ("compiled", "none", "ambiguous_extern_run", 20_000, 0.02),
        ("eager", "op", "op", 74_500, 0.0745),
        ("idle", pd.NA, "idle", 775_499, 0.775499),
    ]


@pytest.mark.parametrize(
    ("level", "scope", "fraction"),
    [
        ("line", "compiled", 130_001 / 150_001),
        ("op", "compiled", 130_001 / 150_001),
        ("none", "compiled", 1.0),
        ("line", "eager", 0.0),
        ("op", "eager", 1.0),
        ("op", "all", 204_501 / 224_501),
    ],
)
def test_the_fraction_at_a_level_is_of_the_busy_time(level, scope, fraction):
    assert tables.fraction_at(gpu_step(), level=level, scope=scope) == fraction


def test_a_scope_without_time_is_not_covered():
    assert tables.fraction_at(empty()) == 0.0
