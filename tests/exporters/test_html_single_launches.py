"""The page tells of single launches what the tables do, in a size that does not follow them."""

from __future__ import annotations

import pytest

from profiler_ext.exporters.html.data import report_data
from profiler_ext.exporters.html.single_launches import BINS, SLOWEST
from profiler_ext.sessions.session import load
from tests import frames as tables
from tests.analyses import gpu_step
from tests.cases.neutral import FOLDER
from tests.frames import records


@pytest.fixture(scope="module")
def analysis():
    """A compiled Llama's two steps, recorded on an H200."""
    return load(FOLDER / "llama.session.pt.trace.json.gz").analysis


@pytest.fixture(scope="module")
def data(analysis):
    return report_data([analysis], {})[0]


def test_each_kernel_s_spread_is_that_of_the_table(analysis, data):
    rows = records(tables.by_kernel(analysis))
    expected = {
        (row["kernel"], row["name"], row["kind"]): [
            row[f"{n}_ns"] for n in ("min", "median", "max")
        ]
        for row in rows
    }
    single = data["launch_stats"]["kernels"]
    assert {data["kernels"][at][:3]: times for at, *times, _ in single} == expected


def test_each_launch_of_a_kernel_is_in_its_histogram(analysis, data):
    launches = {
        (row["kernel"], row["name"], row["kind"]): row["launches"]
        for row in records(tables.by_kernel(analysis))
    }
    for at, *_, counts in data["launch_stats"]["kernels"]:
        assert sum(counts) == launches[data["kernels"][at][:3]]
        assert len(counts) in (1, BINS)


def test_the_slowest_launches_of_a_kernel_are_reported_with_how_they_were_launched(analysis, data):
    table = tables.launches(analysis).dropna(subset="step")
    for at, *_, most, _ in data["launch_stats"]["kernels"]:
        kernel, name, *_ = data["kernels"][at]
        of_kernel = table[
            (table["name"] == name) & (table.kernel.isna() | (table.kernel == kernel))
        ]
        reported = [row for row in data["launch_stats"]["slowest"] if row[0] == at]
        times = sorted(of_kernel.duration_ns, reverse=True)[:SLOWEST]
        assert [row[4] for row in reported] == times and times[0] == most
        shown = of_kernel[of_kernel.duration_ns == most]
        assert {f"grid {grid}" for grid in shown.grid} >= {
            data["launch_stats"]["shapes"][reported[0][7]].split(",")[0]
        }


def test_a_launch_of_a_trace_that_does_not_tell_has_no_words():
    single = report_data([gpu_step()], {})[0]["launch_stats"]
    assert single["shapes"] == [""]
    assert single["slowest"][0][:5] == (8, 0, 3, 700_000, 60_000)
