"""Kernels have rows by the device's own names and by call site, with how their launches ran."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from profiler_ext.records.analysis import Step
from profiler_ext.sessions.session import load
from tests import frames as tables
from tests.analyses import GPU_MARKS, GPU_ROWS, gpu_step
from tests.exporters.tabled import PHASES, ROOFLINES, SHAPES, of_rows, row, rows
from tests.handmade import launches, shares, trace
from tests.kineto.traces import H200

TIMES = ["min_ns", "median_ns", "max_ns"]
SUMS = [
    "launches",
    "duration_ns",
    *PHASES,
    "inclusive_ns",
    "fraction",
    "steps",
    "per_step_ns",
]
ADDMM, MM = GPU_ROWS[1], GPU_ROWS[4]
NVJET = "nvjet_tst_64x8_64x16_1x4_h_bz_TNT"
NVJET_OF_BACKWARD = "nvjet_tst_128x64_64x8_2x1_v_bz_NTT"


def shaped(event: int, registers: int = 168, grid: int = 132, start_ns: int = 0, took: int = 0):
    """The mark of one of the step's events with what Kineto says of a kernel's launch."""
    mark = GPU_MARKS[event]
    fields = {
        "grid": [grid, 1, 2],
        "block": [128, 4, 1],
        "registers per thread": registers,
        "shared memory": 32_768,
        "est. achieved occupancy %": 25,
    }
    return replace(
        mark,
        args={**mark.args, **fields},
        start_ns=start_ns or mark.start_ns,
        duration_ns=took or mark.duration_ns,
    )


def launched(*marks_and_rows):
    """The step with other launches only: pairs of a mark, and the row that it is like."""
    marks = tuple(mark for mark, _ in marks_and_rows)
    made = [
        replace(like, event=at, op_event=None, parts=((like.parts[0][0], mark.duration_ns),))
        for at, (mark, like) in enumerate(marks_and_rows)
    ]
    step = gpu_step()
    return replace(
        step,
        recording=replace(step.recording, trace=trace(marks)),
        steps=(Step.on_cpu(3, 0, 1_000_000),),
        launches=launches(marks, made),
        shares=shares(made),
    )


def test_kernels_have_their_sums_times_shapes_and_rooflines():
    columns = list(tables.by_kernel(gpu_step()).columns)
    assert columns == ["kernel", "name", "kind", *SUMS, *TIMES, *SHAPES, *ROOFLINES]


def test_call_sites_have_their_place_sums_times_and_rooflines():
    place = ["graph", "compile_id", "call_site", "file", "line", "function", "code", "module"]
    names = ["kernel", "name", "kind", *place, "input_shapes", *SHAPES]
    assert list(tables.by_site(gpu_step()).columns) == [*names, *SUMS, *TIMES, *ROOFLINES]


def test_kernels_carry_inductors_name_and_the_devices_own():
    table = tables.by_kernel(gpu_step())
    foreach = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>"
    assert rows(table, "kernel", "name", "kind", "duration_ns")[:3] == [
        (foreach, foreach, "eager", 60_000),
        ("extern_kernels.addmm", NVJET, "extern", 50_000),
        ("extern_kernels.mm", NVJET_OF_BACKWARD, "extern", 40_000),
    ]


def test_kernels_that_one_library_call_chose_are_rows_of_their_own():
    other = replace(ADDMM, kernel="extern_kernels.mm")
    analysis = launched((shaped(24), other), (shaped(27), MM), (shaped(27, took=8_000), MM))
    table = tables.by_kernel(analysis)
    assert rows(table, "kernel", "name", "launches", "duration_ns") == [
        ("extern_kernels.mm", NVJET, 1, 50_000),
        ("extern_kernels.mm", NVJET_OF_BACKWARD, 2, 48_000),
    ]


def test_one_kernel_launched_twice_is_one_row():
    analysis = of_rows(GPU_ROWS[2], replace(GPU_ROWS[2], phase="backward"))
    assert rows(tables.by_kernel(analysis), "kernel", "launches", "duration_ns") == [
        ("triton_poi_fused__to_copy_gelu_0", 2, 40_002)
    ]


@pytest.mark.parametrize(
    ("took", "expected"),
    [
        ((7_000,), (7_000, 7_000, 7_000)),
        ((9_000, 5_000), (5_000, 7_000, 9_000)),
        ((9_000, 5_000, 100_000), (5_000, 9_000, 100_000)),
        ((4_000, 1_000, 3_000, 2_000), (1_000, 2_500, 4_000)),
    ],
)
def test_a_kernel_has_the_least_the_median_and_the_largest_of_its_launches(took, expected):
    analysis = launched(*((shaped(27, took=each), MM) for each in took), (shaped(24), ADDMM))
    table = tables.by_kernel(analysis)
    assert rows(table[table["kernel"] == "extern_kernels.mm"], *TIMES) == [expected]


def test_how_a_kernel_was_launched_is_reported_where_all_its_launches_were_alike():
    analysis = launched((shaped(27), MM), (shaped(27, registers=90, grid=64), MM))
    alike = row(tables.by_kernel(launched((shaped(27), MM), (shaped(27), MM))), 0)
    differ = row(tables.by_kernel(analysis), 0)
    assert [alike[name] for name in SHAPES] == ["132x1x2", "128x4x1", 168, 32_768, 0.25]
    assert [differ[name] for name in SHAPES] == [pd.NA, "128x4x1", pd.NA, 32_768, 0.25]


def test_launches_of_other_shapes_and_of_other_lines_are_call_sites_of_their_own():
    elsewhere = replace(MM, call_site=None, graph=None, kernel="", kind="eager", parts=((2, 0),))
    analysis = launched(
        (shaped(27), MM),
        (shaped(27), MM),
        (shaped(27, grid=64), MM),
        (shaped(27, took=7_000), elsewhere),
    )
    names = ("kernel", "graph", "call_site", "line", "grid", "launches", "duration_ns")
    mm = "extern_kernels.mm"
    assert rows(tables.by_site(analysis), *names) == [
        (mm, "fkeybackward", "1", 12, "132x1x2", 2, 80_000),
        (mm, "fkeybackward", "1", 12, "64x1x2", 1, 40_000),
        (NVJET_OF_BACKWARD, pd.NA, pd.NA, 13, "132x1x2", 1, 7_000),
    ]


@pytest.fixture(scope="module")
def eager():
    return load(H200 / "cases" / "eager.session.pt.trace.json.gz")


@pytest.fixture(scope="module")
def llama():
    return load(H200 / "llama.pt.trace.json.gz")


@pytest.mark.parametrize("recorded", ["eager", "llama"])
def test_the_rows_of_a_recording_conserve_its_time_and_its_launches(recorded, request):
    session = request.getfixturevalue(recorded)
    ran = session.launches()
    ran = ran[ran["step"].notna()]
    for table in (session.by_kernel(), session.by_site()):
        assert table["duration_ns"].sum() == ran["duration_ns"].sum() > 0
        assert table["launches"].sum() == len(ran)
        assert (table["min_ns"] <= table["median_ns"]).all()
        assert (table["median_ns"] <= table["max_ns"]).all()
        assert (table["min_ns"] * table["launches"] <= table["inclusive_ns"]).all()
        assert (table["max_ns"] * table["launches"] >= table["inclusive_ns"]).all()


def test_a_phase_leaves_the_rows_of_others_out(eager):
    whole = eager.by_site()["duration_ns"].sum()
    parts = [eager.by_site(phase=phase)["duration_ns"].sum() for phase in PHASES]
    assert sum(parts) == whole
    assert 0 < parts[0] < whole


def test_shapes_of_inputs_tell_products_apart_where_they_were_recorded(llama):
    table = llama.by_site()
    shapes = table[table["name"].str.startswith("nvjet", na=False)]["input_shapes"].dropna()
    assert shapes.str.fullmatch(r"\w+\[\d+(, \d+)*\]( \w+\[\d*(, \d+)*\])+").all()
    assert shapes.nunique() == 12  # of a layer's products, the head's, and their gradients
