"""Lines, modules, operators, phases and kernels sum all the time there is, and none twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from profiler_ext.records.analysis import Place
from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Phase
from tests import frames as tables
from tests.analyses import GPU_MARKS, GPU_PLACES, GPU_ROWS, cpu_step, gpu_step
from tests.exporters.tabled import (
    PHASES,
    ROOFLINES,
    SUMMING_TABLES,
    empty,
    of_rows,
    one_place,
    row,
    rows,
    two_steps,
)

SUM_COLUMNS = [
    "launches",
    "duration_ns",
    *PHASES,
    "inclusive_ns",
    "fraction",
    "steps",
    "per_step_ns",
]


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        (tables.by_op, ["aten_op", "gap"]),
        (tables.by_phase, ["phase"]),
        (tables.by_link, ["forward_evidence", "gap"]),
        (tables.by_mechanism, ["mechanism", "gap"]),
    ],
)
def test_a_summing_table_has_its_keys_and_the_sums(table, keys):
    assert list(table(gpu_step()).columns) == [*keys, *SUM_COLUMNS]


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        (tables.by_line, ["file", "line", "function", "code", "gap"]),
        (tables.by_module, ["module", "module_class", "gap"]),
    ],
)
def test_lines_and_modules_have_their_sums_and_rooflines(table, keys):
    assert list(table(gpu_step()).columns) == [*keys, *SUM_COLUMNS, *ROOFLINES]


def test_a_line_has_its_forward_and_its_backward_time():
    table = tables.by_line(gpu_step())
    assert row(table[table["line"] == 13], 0) == {
        **dict.fromkeys(ROOFLINES, pd.NA),
        "unit": "fp32",
        "file": "/home/ann/gpt/model.py",
        "line": 13,
        "function": "forward",
        "code": "h = F.gelu(h)",
        "gap": pd.NA,
        "launches": 2,
        "duration_ns": 33_334,
        "forward": 13_334,
        "backward": 20_000,
        "recompute": 0,
        "gradient_accumulation": 0,
        "optimizer": 0,
        "other": 0,
        "inclusive_ns": 50_001,
        "fraction": 33_334 / 234_501,
        "steps": 1,
        "per_step_ns": 33_334.0,
    }


def test_lines_and_gaps_stand_largest_first():
    assert rows(tables.by_line(gpu_step()), "line", "gap", "duration_ns") == [
        (12, pd.NA, 100_000),
        (pd.NA, "no_source_line", 74_500),
        (13, pd.NA, 33_334),
        (pd.NA, "ambiguous_extern_run", 20_000),
        (14, pd.NA, 6_667),
    ]


def test_equal_times_stand_in_the_order_of_their_names():
    assert rows(tables.by_op(gpu_step()), "aten_op", "duration_ns")[3:5] == [
        ("aten.mul.Tensor", 20_000),
        (pd.NA, 20_000),
    ]


def test_a_module_has_the_time_of_its_own_nodes():
    assert rows(tables.by_module(gpu_step()), "module", "module_class", "duration_ns") == [
        ("mlp.up", "Linear", 100_000),
        (pd.NA, pd.NA, 74_500),
        ("mlp", "MLP", 33_334),
        (pd.NA, pd.NA, 20_000),
        ("mlp.down", "Linear", 6_667),
    ]


def test_a_depth_adds_the_modules_below_and_counts_a_fused_launch_once():
    table = tables.by_module(gpu_step(), depth=1)
    names = ("module", "module_class", "launches", "duration_ns", "inclusive_ns")
    assert rows(table, *names)[0] == ("mlp", "MLP", 4, 140_001, 140_001)


def test_depth_zero_is_the_whole_model_and_no_module_is_not():
    assert rows(tables.by_module(gpu_step(), depth=0), "module", "gap", "duration_ns") == [
        ("", pd.NA, 140_001),
        (pd.NA, "no_source_line", 74_500),
        (pd.NA, "ambiguous_extern_run", 20_000),
    ]


def test_phases_stand_largest_first():
    assert rows(tables.by_phase(gpu_step()), "phase", "duration_ns") == [
        ("backward", 90_000),
        ("forward", 70_001),
        ("optimizer", 60_500),
        ("other", 10_000),
        ("gradient_accumulation", 4_000),
    ]


def test_backward_time_stands_by_the_rule_that_linked_it():
    names = ("forward_evidence", "gap", "backward", "duration_ns")
    assert rows(tables.by_link(gpu_step()), *names) == [
        (pd.NA, "no_source_line", 0, 74_500),
        (pd.NA, pd.NA, 0, 70_001),
        ("seq_nr", pd.NA, 70_000, 70_000),
        (pd.NA, "ambiguous_extern_run", 20_000, 20_000),
    ]


def test_time_stands_by_the_way_by_which_its_line_was_found():
    assert rows(tables.by_mechanism(gpu_step()), "mechanism", "gap", "duration_ns") == [
        ("own_stack", pd.NA, 140_001),
        (pd.NA, "no_source_line", 74_500),
        (pd.NA, "ambiguous_extern_run", 20_000),
    ]


def test_the_linked_part_is_of_the_backward_that_differentiates():
    assert tables.fraction_linked_to_forward([gpu_step()]) == 70_000 / 90_000
    assert tables.fraction_linked_to_forward([cpu_step(), gpu_step()]) == pytest.approx(
        70_000 / 90_000
    )
    assert tables.fraction_linked_to_forward([empty()]) is None


def test_the_users_view_names_the_line_under_the_users_roots():
    library = Frame("/lib/attention.py", 9, "attend", "return q @ k")
    own = Frame("/home/ann/train.py", 40, "main", "loss = model(x)")
    analysis = one_place(
        file=library.file,
        line=library.line,
        function=library.function,
        code=library.code,
        stack=(own, library),
        user_file=own.file,
        user_line=own.line,
    )
    names = ("file", "line", "function", "code")
    assert rows(tables.by_line(analysis), *names) == [
        ("/lib/attention.py", 9, "attend", "return q @ k")
    ]
    assert rows(tables.by_line(analysis, view="user"), *names) == [
        ("/home/ann/train.py", 40, "main", "loss = model(x)")
    ]


def test_a_users_line_without_its_frame_has_no_function():
    analysis = one_place(stack=(), user_file="/home/ann/train.py", user_line=7)
    assert rows(tables.by_line(analysis, "user"), "line", "function", "code") == [(7, pd.NA, pd.NA)]


def test_a_line_whose_text_is_known_in_one_place_shows_it():
    places = (replace(GPU_PLACES[2], code=None), GPU_PLACES[4])
    analysis = of_rows(replace(GPU_ROWS[2], parts=((0, 20_000), (1, 1))), places=places)
    assert rows(tables.by_line(analysis), "code", "duration_ns") == [("h = F.gelu(h)", 20_001)]


@pytest.mark.parametrize("table", SUMMING_TABLES)
@pytest.mark.parametrize("analysis", [gpu_step(), cpu_step(), two_steps(), empty()])
@pytest.mark.parametrize("phase", [None, *PHASES])
def test_time_is_conserved(table, analysis, phase):
    result = table(analysis, phase=phase)
    everything = tables.attribution(analysis, phase=phase).merge(
        tables.launches(analysis)["step"], left_on="launch", right_index=True
    )
    measured = everything["duration_ns"][everything["step"].notna()].sum()
    assert result["duration_ns"].sum() == measured
    assert (result[PHASES].sum(axis=1) == result["duration_ns"]).all()
    assert (result["inclusive_ns"] >= result["duration_ns"]).all()


@pytest.mark.parametrize("table", SUMMING_TABLES)
def test_the_total_is_the_measured_device_time(table):
    assert table(gpu_step())["duration_ns"].sum() == 234_501
    assert table(two_steps())["duration_ns"].sum() == 234_001


def test_sums_over_two_steps_say_so():
    update = tables.by_op(two_steps()).iloc[0]
    assert (update["aten_op"], update["steps"], update["per_step_ns"]) == (
        "aten::_fused_adamw_",
        2,
        30_000.0,
    )


def test_every_phase_has_its_column():
    assert [phase.value for phase in Phase] == PHASES


def test_many_launches_add_up_exactly():
    generator = np.random.default_rng(7)
    chosen = generator.integers(0, len(GPU_ROWS), 2_000)
    many = tuple(GPU_ROWS[at] for at in chosen)
    table = tables.by_line(of_rows(*many))
    assert table["duration_ns"].sum() == sum(GPU_MARKS[row.event].duration_ns for row in many)
    assert table["launches"].sum() == sum(
        len({(GPU_PLACES[at].file, GPU_PLACES[at].line) for at, _ in row.parts}) for row in many
    )


def test_an_eager_place_without_a_gap_has_no_name():
    analysis = of_rows(replace(GPU_ROWS[2], parts=((0, 20_001),)), places=(Place(),))
    assert rows(tables.by_line(analysis), "file", "gap", "duration_ns") == [(pd.NA, pd.NA, 20_001)]
