"""What holds of the rooflines of every recording of an H200."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from profiler_ext.records.analysis import Analysis
from profiler_ext.records.vocabulary import LaunchKind
from profiler_ext.rooflines.compute_units import Unit
from profiler_ext.rooflines.rooflines import rooflines
from profiler_ext.sessions.session import load
from tests import frames as tables

CASES = Path(__file__).parents[1] / "fixtures" / "h200" / "cases"
SUFFIX = ".session.pt.trace.json.gz"
SUMMED = ["est_bytes", "est_flops", "roofline_ns", "could_save_ns"]
# Of products in float32 the dtype tells nothing; those in fewer bits run on tensor cores.
DTYPES = {
    "float16": {Unit.FP16_TENSOR, Unit.FP32},
    "bfloat16": {Unit.BF16_TENSOR, Unit.FP32},
    "float32": {Unit.FP32, Unit.TF32_TENSOR},
}

NAMES = sorted(path.name.removesuffix(SUFFIX) for path in CASES.glob(f"*{SUFFIX}"))


@pytest.fixture(scope="module", params=NAMES)
def analysis(request: pytest.FixtureRequest) -> Analysis:
    """One recording at a time, for all tests of it."""
    return load(CASES / f"{request.param}{SUFFIX}").analysis


def test_no_launch_saves_more_than_it_took_and_sums_agree(analysis: Analysis) -> None:
    found, duration_ns = rooflines(analysis), analysis.launches.duration_ns
    known = ~np.ma.getmaskarray(found.roofline_ns)
    assert (found.could_save_ns.data[known] <= duration_ns[known]).all()
    assert (found.could_save_ns.data[known] >= 0).all()
    assert (known == ~found.bound.where("")).all()
    assert not (known & analysis.launches.kind.where(LaunchKind.COMMUNICATION)).any()
    sums = [
        table(analysis)[SUMMED].sum().tolist()
        for table in (tables.by_line, tables.by_module, tables.by_kernel)
    ]
    assert sums[0] == sums[1] == sums[2]


def test_the_unit_agrees_with_the_dtype_of_the_product(analysis: Analysis) -> None:
    found, launches = rooflines(analysis), analysis.launches
    for row in np.flatnonzero(found.is_product & ~np.ma.getmaskarray(launches.call_site)):
        graph = analysis.recording.graphs[int(launches.graph[row])]
        assert graph.provenance is not None
        nodes = {node.name: node for node in graph.provenance.nodes}
        site = graph.call_sites[int(launches.call_site[row])]
        products = [nodes[each] for each in site.nodes if nodes[each].target in PRODUCTS]
        if len(products) == 1 and found.unit[row]:
            assert found.unit[row] in DTYPES[products[0].outputs[0].dtype], launches.name[row]


PRODUCTS = {
    *(f"aten.{op}.default" for op in ("mm", "addmm", "bmm", "baddbmm", "convolution")),
    *("aten.convolution_backward.default", "aten._scaled_dot_product_cudnn_attention.default"),
}
