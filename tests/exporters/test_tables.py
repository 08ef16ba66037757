"""Launches and attribution have the rows and columns that the design says."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from tests import frames as tables
from tests.analyses import GPU_MARKS, GPU_ROWS, cpu_step, gpu_step
from tests.exporters.tabled import EVERY_TABLE, OF_LAUNCHES, dtypes, empty, row, rows
from tests.handmade import launches, shares

LAUNCH_COLUMNS = {
    "rank": "Int64",
    "launch": "Int64",
    "step": "Int64",
    "name": "string",
    "kernel": "string",
    "kind": "string",
    "scope": "string",
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
    "mechanism": "string",
    "gap": "string",
    "share_evidence": "string",
    "grid": "string",
    "block": "string",
    "registers_per_thread": "Int64",
    "shared_memory_bytes": "Int64",
    "est_occupancy": "Float64",
    "est_bytes": "Int64",
    "est_flops": "Int64",
    "est_gb_per_s": "Float64",
    "est_tflop_per_s": "Float64",
    "est_attainable_tflop_per_s": "Float64",
    "est_peak_fraction": "Float64",
    "unit": "string",
    "unit_evidence": "string",
    "bound": "string",
    "roofline_ns": "Int64",
    "could_save_ns": "Int64",
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
    "forward_evidence": "string",
    "file": "string",
    "line": "Int64",
    "function": "string",
    "code": "string",
    "user_file": "string",
    "user_line": "Int64",
    "caller_file": "string",
    "caller_line": "Int64",
    "module": "string",
    "module_class": "string",
    "annotation": "string",
    "share": "Float64",
    "duration_ns": "Int64",
    "evidence": "string",
    "mechanism": "string",
    "gap": "string",
}


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
        "scope": "compiled",
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
        "mechanism": "own_stack",
        "gap": pd.NA,
        "share_evidence": pd.NA,
        **dict.fromkeys(OF_LAUNCHES, pd.NA),
        "unit": "fp32",
        "unit_evidence": "generated",
    }


def test_what_a_launch_lacks_is_absent():
    launch = row(tables.launches(gpu_step()), 0)
    absent = [name for name, value in launch.items() if value is pd.NA]
    unplaced = ["kernel", "graph", "compile_id", "call_site", "kernel_source"]
    unplaced += ["process_group", "mechanism", "gap", "share_evidence"]
    assert absent == [*unplaced, *OF_LAUNCHES]


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


@pytest.mark.parametrize("table", EVERY_TABLE)
def test_nothing_recorded_is_an_empty_table_with_the_same_columns(table):
    assert len(table(empty())) == 0
    assert dtypes(table(empty())) == dtypes(table(gpu_step()))


@pytest.mark.parametrize("table", EVERY_TABLE)
def test_a_table_carries_the_schema_version(table):
    assert table(gpu_step()).attrs == {"schema_version": 2}
