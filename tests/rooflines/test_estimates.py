"""Estimates belong to a call: its launches share them by time, and have the call's rate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Device
from profiler_ext.records.provenance import TensorSpec
from profiler_ext.rooflines.compute_units import Unit
from profiler_ext.rooflines.peaks import Peak
from profiler_ext.rooflines.rooflines import rooflines
from tests import frames as tables
from tests.analyses import GPU_MARKS, GPU_ROWS, gpu_step
from tests.exporters.estimated import estimated
from tests.exporters.tabled import ESTIMATES, OF_LAUNCHES
from tests.gpu_events import AUTOGRAD, host
from tests.handmade import Mark, Row, launches, shares, trace

ADDMM, GELU, BACKWARD, MM, AFTER_MM, EAGER, MEMSET = 1, 2, 3, 4, 5, 6, 7
MM_SITE = (1, 1)


def _two_kernels(op_event: int, marks: tuple[Mark, ...] = GPU_MARKS) -> Analysis:
    """Return the step in which the library call ``mm`` runs two kernels."""
    second = replace(GPU_ROWS[AFTER_MM], call_site=1, op_event=op_event)
    return _with_row(AFTER_MM, second, marks)


def _with_row(at: int, row: Row, marks: tuple[Mark, ...] = GPU_MARKS) -> Analysis:
    rows = (*GPU_ROWS[:at], row, *GPU_ROWS[at + 1 :])
    analysis = gpu_step()
    recording = replace(analysis.recording, trace=trace(marks, (Device(0, "NVIDIA H200"),)))
    return replace(
        analysis, recording=recording, launches=launches(marks, rows), shares=shares(rows)
    )


def test_kernels_of_one_library_call_share_its_estimate_by_time():
    found = rooflines(estimated({MM_SITE: ("6000001", "600")}, _two_kernels(op_event=10)))
    assert found.bytes[[MM, AFTER_MM]].tolist() == [4_000_000, 2_000_001]
    assert found.flops[[MM, AFTER_MM]].tolist() == [400, 200]
    assert found.gb_per_s[[MM, AFTER_MM]].tolist() == [6000001 / 60_000] * 2


def test_a_site_called_again_has_its_estimate_again():
    named = list(GPU_MARKS)
    named[16] = host("aten::mm", AUTOGRAD, 275_000, 10_000, External_id=117)
    named[28] = replace(named[28], name=named[27].name)
    again = _two_kernels(op_event=16, marks=tuple(named))
    found = rooflines(estimated({MM_SITE: ("6000000", None)}, again))
    assert found.bytes[[MM, AFTER_MM]].tolist() == [6_000_000, 6_000_000]
    assert found.gb_per_s[[MM, AFTER_MM]].tolist() == [150.0, 300.0]


def test_a_graph_of_dynamic_sizes_has_no_estimate():
    """What capture estimated holds for the sizes that it was compiled with, and for no others."""
    made = estimated({(0, 0): ("50000000", "10"), MM_SITE: ("6000000", "600")})
    forward, backward = made.recording.graphs
    assert forward.provenance is not None
    first, *others = forward.provenance.nodes
    grows = replace(first, outputs=(TensorSpec("float32", ("s0", 8), (8, 1), "cuda:0"),))
    provenance = replace(forward.provenance, nodes=(grows, *others))
    graphs = (replace(forward, provenance=provenance), backward)
    found = rooflines(replace(made, recording=replace(made.recording, graphs=graphs)))
    assert np.flatnonzero(~np.ma.getmaskarray(found.bytes)).tolist() == [MM]


def test_launches_outside_call_sites_have_no_estimate():
    found = rooflines(estimated({(0, 0): ("50000000", "10")}))
    assert np.flatnonzero(~np.ma.getmaskarray(found.bytes)).tolist() == [ADDMM]
    assert np.flatnonzero(~np.ma.getmaskarray(found.peak_fraction)).tolist() == [ADDMM]


def test_the_peak_fraction_is_the_larger_of_two():
    found = rooflines(estimated({(0, 0): ("50000000", "10000000000"), (0, 1): ("20001", None)}))
    assert found.bandwidth_fraction[ADDMM] == 1000 / 4800
    assert found.arithmetic_fraction[ADDMM] == pytest.approx(200 / 989.5)
    assert found.peak_fraction[[ADDMM, GELU]].tolist() == [1000 / 4800, 1 / 4800]


def test_peaks_can_be_given():
    analysis = estimated({(0, 0): ("50000000", "10")})
    found = tables.launches(analysis, peaks={"H200": Peak(2000, {Unit.BF16_TENSOR: 1})})
    assert found["est_peak_fraction"][ADDMM] == 0.5
    unknown = tables.launches(analysis, peaks={})
    assert unknown["est_gb_per_s"][ADDMM] == 1000.0
    assert unknown["est_peak_fraction"][ADDMM] is pd.NA


def test_what_is_not_credible_is_left_out_of_the_tables():
    table = tables.launches(estimated({(0, 0): ("500000000000", "10")}))
    kept = [name for name in OF_LAUNCHES if table[name].notna()[ADDMM]]
    assert kept == ["unit", "unit_evidence"]


@pytest.mark.parametrize("phase", [None, "backward"])
def test_a_kernel_sums_the_estimates_of_its_launches(phase):
    analysis = estimated({MM_SITE: ("6000000", "600000000")}, _two_kernels(op_event=10))
    second = replace(GPU_ROWS[AFTER_MM], call_site=1, op_event=10, kernel="extern_kernels.mm")
    analysis = replace(
        analysis,
        launches=launches(GPU_MARKS, (*GPU_ROWS[:AFTER_MM], second, *GPU_ROWS[AFTER_MM + 1 :])),
    )
    table = tables.by_kernel(analysis, phase=phase).set_index("kernel")
    found = table.loc["extern_kernels.mm"]  # the two kernels that the calls ran
    reported = found[["launches", "duration_ns", *ESTIMATES]].to_numpy().tolist()
    rates = (100.0, 10.0, pytest.approx(480, rel=1e-3), pytest.approx(100 / 4800, rel=1e-3))
    assert reported == [
        [1, 40_000, 4_000_000, 400_000_000, *rates],
        [1, 20_000, 2_000_000, 200_000_000, *rates],
    ]


def _eager(name: str, dims: object, types: object, kernel: str) -> Analysis:
    """Return the step in which the eager op after the backward has told its shapes."""
    marks = list(GPU_MARKS)
    reported = {**marks[16].args, "Input Dims": dims, "Input type": types}
    marks[16] = replace(marks[16], name=name, args=reported)
    marks[29] = replace(marks[29], name=kernel)
    return _with_row(EAGER, GPU_ROWS[EAGER], tuple(marks))


def _estimate(analysis: Analysis, at: int) -> tuple[object, ...]:
    found = rooflines(analysis)
    columns = (found.bytes, found.flops, found.unit, found.unit_evidence, found.is_product)
    return tuple(column[at] for column in columns)


def test_an_eager_product_is_known_by_its_shapes_and_its_kernel():
    types = ["c10::BFloat16", "c10::BFloat16"]
    kernel = "nvjet_tst_128x64_64x8_2x1_v_bz_NTT"
    found = _estimate(_eager("aten::mm", [[64, 32], [32, 16]], types, kernel), EAGER)
    moved = 2 * (64 * 32 + 32 * 16 + 64 * 16)
    assert found == (moved, 2 * 64 * 32 * 16, "bf16_tensor", "kernel_name", True)


def test_the_operands_tell_the_unit_where_the_kernel_does_not():
    types = ["c10::Half", "c10::Half"]
    found = _estimate(_eager("aten::mm", [[64, 32], [32, 16]], types, "nobody_knows"), EAGER)
    assert found[2:] == ("fp16_tensor", "operands", True)


def test_of_float32_the_operands_tell_no_unit_and_there_is_no_roofline():
    analysis = _eager("aten::mm", [[64, 32], [32, 16]], ["float", "float"], "nobody_knows")
    assert _estimate(analysis, EAGER)[2:] == ("", "", True)
    assert rooflines(analysis).roofline_ns[EAGER] is np.ma.masked


def test_an_eager_pointwise_op_moves_its_inputs_and_its_result():
    analysis = _eager("aten::add", [[64, 1], [1, 16], []], ["float", "double", "Scalar"], "x")
    assert _estimate(analysis, EAGER) == (
        4 * 64 + 8 * 16 + 8 * 64 * 16,
        np.ma.masked,
        "",
        "",
        False,
    )
    assert rooflines(analysis).bound[EAGER] == "launch"


@pytest.mark.parametrize(
    ("dims", "types"),
    [
        ([[64, -1], [32, 16]], ["float", "float"]),
        ([[64, 32]], ["float", "float"]),
        ("64 x 32", ["float", "float"]),
        ([[64, 32], [32, 16]], [["float"], 7]),
        ([[2**40, 2**40], [2**40, 2**40]], ["float", "float"]),
        ([[True, 32], [32, 16]], ["float", "float"]),
    ],
)
def test_shapes_that_make_no_sense_tell_nothing(dims: object, types: object):
    assert _estimate(_eager("aten::mm", dims, types, "x"), EAGER)[:3] == (*[np.ma.masked] * 2, "")


def test_an_unknown_op_has_no_roofline_whatever_its_shapes():
    analysis = _eager("aten::sort", [[64, 32], [], []], ["float", "Scalar", "Scalar"], "x")
    assert _estimate(analysis, EAGER) == (*[np.ma.masked] * 2, "", "", False)


def test_a_fill_on_the_device_moves_the_bytes_that_the_trace_tells():
    marks = list(GPU_MARKS)
    marks[30] = replace(marks[30], args={**marks[30].args, "bytes": 2_000})
    analysis = _with_row(MEMSET, GPU_ROWS[MEMSET], tuple(marks))
    assert _estimate(analysis, MEMSET)[0] == 2_000


@pytest.mark.parametrize(("target", "known"), [("mul.Tensor", True), ("index_put.default", False)])
def test_a_kernel_that_adds_to_places_by_index_has_no_roofline(target: str, known: bool):
    analysis = estimated({(1, 0): ("20000", "10")})
    graph = analysis.recording.graphs[1]
    assert graph.provenance is not None
    first, *others = graph.provenance.nodes
    nodes = (replace(first, target=f"aten.{target}"), *others)
    changed = replace(graph, provenance=replace(graph.provenance, nodes=nodes))
    graphs = (analysis.recording.graphs[0], changed)
    found = rooflines(replace(analysis, recording=replace(analysis.recording, graphs=graphs)))
    reported = (found.bytes[BACKWARD], found.roofline_ns[BACKWARD] is not np.ma.masked)
    assert reported == (20_000, known)
