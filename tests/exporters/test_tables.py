"""Tables say what the design says, conserve time, and come back from their files."""

from __future__ import annotations

import builtins
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from exporters import tables
from profiler_ext.errors import MissingExtraError, UsageError
from profiler_ext.records import Analysis, Frame, Phase, Place, Recording, Step
from tests.analyses import GPU_MARKS, GPU_PLACES, GPU_ROWS, cpu_step, gpu_step
from tests.handmade import launches, shares, trace

LAUNCH_COLUMNS = {
    "rank": "Int64",
    "launch": "Int64",
    "step": "Int64",
    "name": "string",
    "kernel": "string",
    "kind": "string",
    "device": "Int64",
    "stream": "Int64",
    "start_ns": "Int64",
    "duration_ns": "Int64",
    "phase": "string",
    "graph": "string",
    "compile_id": "string",
    "call_site": "string",
    "kernel_source": "string",
    "process_group": "string",
    "correlation": "Int64",
    "external_id": "Int64",
    "level": "string",
    "evidence": "string",
    "gap": "string",
    "est_bytes": "Int64",
    "est_flops": "Int64",
    "est_gb_per_s": "Float64",
    "est_tflop_per_s": "Float64",
    "est_peak_fraction": "Float64",
}
ATTRIBUTION_COLUMNS = {
    "rank": "Int64",
    "launch": "Int64",
    "node": "string",
    "aten_op": "string",
    "seq_nr": "Int64",
    "phase": "string",
    "autograd_backward": "boolean",
    "forward_node": "string",
    "file": "string",
    "line": "Int64",
    "function": "string",
    "code": "string",
    "user_file": "string",
    "user_line": "Int64",
    "module": "string",
    "module_class": "string",
    "annotation": "string",
    "share": "Float64",
    "duration_ns": "Int64",
    "evidence": "string",
    "gap": "string",
}
PHASES = ["forward", "backward", "recompute", "gradient_accumulation", "optimizer", "other"]
SUM_COLUMNS = [
    "launches",
    "duration_ns",
    *PHASES,
    "inclusive_ns",
    "fraction",
    "steps",
    "per_step_ns",
]
ESTIMATES = [name for name in LAUNCH_COLUMNS if name.startswith("est_")]
SUMMING = [tables.by_line, tables.by_module, tables.by_op, tables.by_phase, tables.by_kernel]
EVERY_TABLE = [*SUMMING, tables.launches, tables.attribution, tables.graphs, tables.coverage]


ONE_STEP = (Step(3, 0, 1_000_000),)


def dtypes(table):
    return {name: str(dtype) for name, dtype in table.dtypes.items()}


def rows(table, *names):
    return [tuple(row) for row in table[list(names)].astype(object).itertuples(index=False)]


def row(table, number):
    return dict(zip(table.columns, rows(table, *table.columns)[number], strict=True))


def empty():
    recording = Recording(trace=trace(()))
    return Analysis(recording, (), launches((), ()), (), shares(()))


def of_rows(*changed, steps=ONE_STEP, places=GPU_PLACES):
    return replace(
        gpu_step(),
        steps=steps,
        places=places,
        launches=launches(GPU_MARKS, changed),
        shares=shares(changed),
    )


def two_steps():
    """The last launch is of a second step, and the one before of none."""
    *first, memset, update = GPU_ROWS
    changed = (*first, replace(memset, step=None), replace(update, step=4))
    return of_rows(*changed, steps=(Step(3, 0, 600_000), Step(4, 600_000, 1_000_000)))


def one_place(**change):
    """A launch of 20,001 ns that belongs to one place."""
    place = replace(GPU_PLACES[1], **change)
    row = replace(GPU_ROWS[2], parts=((0, 20_001),))
    return of_rows(row, places=(place,))


def test_launches_have_the_columns_of_the_design():
    assert list(dtypes(tables.launches(gpu_step())).items()) == list(LAUNCH_COLUMNS.items())


def test_attribution_has_the_columns_of_the_design():
    assert list(dtypes(tables.attribution(gpu_step())).items()) == list(ATTRIBUTION_COLUMNS.items())


def test_a_launch_in_a_graph_carries_graph_call_site_and_source():
    assert row(tables.launches(gpu_step()), 2) == {
        "rank": 0,
        "launch": 2,
        "step": 3,
        "name": "triton_poi_fused__to_copy_gelu_0",
        "kernel": "triton_poi_fused__to_copy_gelu_0",
        "kind": "triton",
        "device": 0,
        "stream": 7,
        "start_ns": 160_000,
        "duration_ns": 20_001,
        "phase": "forward",
        "graph": "fkeyforward",
        "compile_id": "0/0",
        "call_site": "1",
        "kernel_source": "/cache/inductor/fkeyforward.py",
        "process_group": pd.NA,
        "correlation": 13,
        "external_id": 113,
        "level": "line",
        "evidence": "call_order",
        "gap": pd.NA,
        **dict.fromkeys(ESTIMATES, pd.NA),
    }


def test_what_a_launch_lacks_is_absent():
    launch = row(tables.launches(gpu_step()), 0)
    absent = [name for name, value in launch.items() if value is pd.NA]
    unplaced = ["kernel", "graph", "compile_id", "call_site", "kernel_source"]
    unplaced += ["process_group", "gap"]
    assert absent == [*unplaced, *ESTIMATES]


def test_a_cpu_launch_has_no_stream_and_no_correlation():
    assert (
        rows(tables.launches(cpu_step()), "device", "stream", "correlation")
        == [(0, pd.NA, pd.NA)] * 3
    )


def test_a_nested_call_site_is_its_path():
    analysis = gpu_step()
    graph = analysis.recording.graphs[0]
    site = replace(graph.provenance.call_sites[1], path="1/4")
    provenance = replace(graph.provenance, call_sites=(graph.provenance.call_sites[0], site))
    recording = replace(analysis.recording, graphs=(replace(graph, provenance=provenance),) * 2)
    table = tables.launches(replace(analysis, recording=recording))
    assert table["call_site"].tolist()[:3] == [pd.NA, "0", "1/4"]


def test_attribution_of_a_fused_backward_launch_leads_to_both_forward_lines():
    table = tables.attribution(gpu_step())
    fused = table[table["launch"] == 3]
    names = ("node", "phase", "forward_node", "file", "line", "module", "share", "duration_ns")
    assert rows(fused, *names) == [
        ("gelu_backward", "backward", "gelu", "/home/ann/gpt/model.py", 13, "mlp", 2 / 3, 20_000),
        ("sum_1", "backward", "sum", "/home/ann/gpt/model.py", 12, "mlp.up", 1 / 3, 10_000),
    ]


def test_a_gap_is_a_row_of_the_attribution():
    table = tables.attribution(gpu_step())
    gap = table[table["launch"] == 5]
    assert rows(gap, "node", "aten_op", "phase", "duration_ns", "gap") == [
        (pd.NA, pd.NA, "backward", 20_000, "ambiguous_extern_run")
    ]


def test_the_rows_of_each_launch_add_up_to_it():
    parts = tables.attribution(gpu_step()).groupby("launch")["duration_ns"].sum()
    assert parts.tolist() == tables.launches(gpu_step())["duration_ns"].tolist()


def test_a_launch_without_duration_has_no_share():
    row = replace(GPU_ROWS[2], event=len(GPU_MARKS), parts=((2, 0), (3, 0)))
    marks = (*GPU_MARKS, replace(GPU_MARKS[25], duration_ns=0))
    analysis = replace(gpu_step(), launches=launches(marks, (row,)), shares=shares((row,)))
    assert rows(tables.attribution(analysis), "share", "duration_ns") == [(pd.NA, 0)] * 2
    assert rows(tables.by_line(analysis), "line", "launches", "fraction") == [
        (13, 1, pd.NA),
        (14, 1, pd.NA),
    ]


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        (tables.by_line, ["file", "line", "function", "code", "gap"]),
        (tables.by_module, ["module", "module_class", "gap"]),
        (tables.by_op, ["aten_op", "gap"]),
        (tables.by_phase, ["phase"]),
    ],
)
def test_a_summing_table_has_its_keys_and_the_sums(table, keys):
    assert list(table(gpu_step()).columns) == [*keys, *SUM_COLUMNS]


def test_kernels_have_their_sums_and_estimates():
    columns = ["kernel", "kind", *SUM_COLUMNS, *ESTIMATES]
    assert list(tables.by_kernel(gpu_step()).columns) == columns


def test_a_line_has_its_forward_and_its_backward_time():
    table = tables.by_line(gpu_step())
    assert row(table[table["line"] == 13], 0) == {
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


def test_kernels_carry_inductors_name_or_the_events():
    table = tables.by_kernel(gpu_step())
    assert rows(table, "kernel", "kind", "duration_ns")[:3] == [
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>",
            "eager",
            60_000,
        ),
        ("extern_kernels.addmm", "extern", 50_000),
        ("extern_kernels.mm", "extern", 40_000),
    ]


def test_one_kernel_launched_twice_is_one_row():
    analysis = of_rows(GPU_ROWS[2], replace(GPU_ROWS[2], phase="backward"))
    assert rows(tables.by_kernel(analysis), "kernel", "launches", "duration_ns") == [
        ("triton_poi_fused__to_copy_gelu_0", 2, 40_002)
    ]


def test_phases_stand_largest_first():
    assert rows(tables.by_phase(gpu_step()), "phase", "duration_ns") == [
        ("backward", 90_000),
        ("forward", 70_001),
        ("optimizer", 60_500),
        ("other", 10_000),
        ("gradient_accumulation", 4_000),
    ]


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


@pytest.mark.parametrize("table", SUMMING)
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


@pytest.mark.parametrize("table", SUMMING)
def test_the_total_is_the_measured_device_time(table):
    assert table(gpu_step())["duration_ns"].sum() == 234_501
    assert table(two_steps())["duration_ns"].sum() == 234_001


def test_launches_outside_the_steps_are_rows_and_in_no_sum():
    assert tables.launches(two_steps())["step"].tolist()[-3:] == [3, pd.NA, 4]
    assert "aten::zero_" not in tables.by_op(two_steps())["aten_op"].dropna().tolist()


def test_sums_over_two_steps_say_so():
    update = tables.by_op(two_steps()).iloc[0]
    assert (update["aten_op"], update["steps"], update["per_step_ns"]) == (
        "aten::_fused_adamw_",
        2,
        30_000.0,
    )


def test_a_step_can_be_chosen():
    analysis = two_steps()
    assert tables.launches(analysis, step=4)["launch"].tolist() == [8]
    assert tables.attribution(analysis, step=4)["launch"].tolist() == [8]
    assert rows(tables.by_op(analysis, step=4), "aten_op", "steps", "per_step_ns") == [
        ("aten::_fused_adamw_", 1, 60_000.0)
    ]
    assert tables.graphs(analysis, step=4)["key"].tolist() == []
    assert tables.graphs(analysis, step=3)["key"].tolist() == ["fkeyforward", "fkeybackward"]


def test_a_phase_can_be_chosen():
    assert tables.launches(gpu_step(), phase="forward")["launch"].tolist() == [1, 2]
    assert tables.attribution(gpu_step(), phase="backward")["launch"].tolist() == [3, 3, 4, 5]
    assert tables.graphs(gpu_step(), phase="backward")["key"].tolist() == ["fkeybackward"]
    assert tables.graphs(gpu_step(), phase="optimizer")["key"].tolist() == []


@pytest.mark.parametrize("table", EVERY_TABLE)
def test_the_own_rank_chooses_all_and_another_none(table):
    assert_frame_equal(table(gpu_step(), rank=0), table(gpu_step()))
    nothing = table(gpu_step(), rank=1)
    assert len(nothing) == 0
    assert dtypes(nothing) == dtypes(table(gpu_step()))


@pytest.mark.parametrize("table", EVERY_TABLE)
def test_nothing_recorded_is_an_empty_table_with_the_same_columns(table):
    assert len(table(empty())) == 0
    assert dtypes(table(empty())) == dtypes(table(gpu_step()))


@pytest.mark.parametrize("table", EVERY_TABLE)
def test_a_table_carries_the_schema_version(table):
    assert table(gpu_step()).attrs == {"schema_version": 1}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda a: tables.by_line(a, step=9), "step 9 was not profiled"),
        (lambda a: tables.coverage(a, step=9), "ask for one of the steps: 3"),
        (lambda a: tables.launches(a, phase="sideways"), "there is no phase 'sideways'"),
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


AWKWARD = 'a "quoted", \r\n| <b>`cell`</b> \\ é'


@pytest.mark.parametrize("table", EVERY_TABLE)
@pytest.mark.parametrize("analysis", [gpu_step(), cpu_step(), two_steps(), empty()])
def test_csv_comes_back_as_it_was(table, analysis, tmp_path):
    written = table(analysis)
    tables.write_csv(written, tmp_path / "table.csv")
    read = tables.read_csv(tmp_path / "table.csv")
    assert_frame_equal(read, written)
    assert read.attrs == written.attrs


@pytest.mark.parametrize("table", EVERY_TABLE)
@pytest.mark.parametrize("analysis", [gpu_step(), cpu_step(), two_steps(), empty()])
def test_parquet_comes_back_as_it_was(table, analysis, tmp_path):
    written = table(analysis)
    tables.write_parquet(written, tmp_path / "table.parquet")
    read = tables.read_parquet(tmp_path / "table.parquet")
    assert_frame_equal(read, written)
    assert read.attrs == written.attrs


@pytest.mark.parametrize("name", ["", '"', '""', "NA", "None", "<NA>", "1", AWKWARD, "\r", " x "])
def test_csv_keeps_every_name(name, tmp_path):
    written = tables.by_module(one_place(module=name, module_class=None))
    tables.write_csv(written, tmp_path / "table.csv")
    assert_frame_equal(tables.read_csv(tmp_path / "table.csv"), written)


def test_csv_of_an_absent_value_is_an_empty_cell():
    table = tables.by_phase(cpu_step()).assign(phase=pd.array([None, ""], dtype="string"))
    assert [line.split(",")[0] for line in tables.csv_text(table).splitlines()] == [
        "phase",
        "",
        '""""""',
    ]


def test_parquet_without_pyarrow_names_the_command(monkeypatch, tmp_path):
    real = builtins.__import__

    def without_pyarrow(name, *args, **kwargs):
        if name == "pyarrow":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    table = tables.by_phase(gpu_step())
    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    with pytest.raises(MissingExtraError, match=r"pip install 'profiler-ext\[parquet\]'"):
        tables.write_parquet(table, tmp_path / "table.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("read", [tables.read_csv, tables.read_parquet])
def test_a_file_that_is_no_table_is_refused(read, tmp_path):
    (tmp_path / "table").write_bytes(b"launches\nmany\n")
    with pytest.raises(UsageError, match=r"cannot read .*table as a table"):
        read(tmp_path / "table")


def test_json_holds_every_row_with_null_for_absent():
    data = json.loads(tables.json_text(tables.by_op(gpu_step())))
    assert data["schema_version"] == 1
    assert [row["duration_ns"] for row in data["rows"]] == [
        *(60_000, 50_000, 40_000, 20_000, 20_000, 13_334, 10_000, 10_000, 6_667, 4_000, 500)
    ]
    assert data["rows"][4]["aten_op"] is None


def test_markdown_keeps_names_in_their_cells():
    text = tables.markdown_text(tables.by_module(one_place(module=AWKWARD, module_class=None)))
    assert text.splitlines()[2].startswith(
        '| a "quoted",  \\| \\<b\\>\\`cell\\`\\</b\\> \\\\ é |  |  | 1 | 20001 |'
    )
    assert len(text.splitlines()) == 3


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
