from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profiler_ext import load
from profiler_ext.exporters.perfetto import export_perfetto, queries
from profiler_ext.records.analysis import Analysis
from tests import analyses
from tests import frames as tables
from tests.eager_session import eager_session
from tests.trace_processor import Reader, reading

RECORDED = Path(__file__).parents[1] / "fixtures" / "h200" / "mlp.session.pt.trace.json.gz"
PHASES = ("forward", "backward", "recompute", "gradient_accumulation", "optimizer", "other")
SUMS = ("launches", "duration_ns", *PHASES, "inclusive_ns", "per_step_ns")


@pytest.fixture(scope="module", params=["by hand", "recorded on an H200", "eager on a CPU"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Analysis, Reader]]:
    made = {
        "by hand": analyses.gpu_step,
        "recorded on an H200": lambda: load(RECORDED).analysis,
        "eager on a CPU": lambda: eager_session().analysis,
    }
    analysis = made[request.param]()
    path = tmp_path_factory.mktemp("queries") / "trace.pftrace"
    export_perfetto(analysis, path)
    with reading(path) as reader:
        reader.rows(queries())
        yield analysis, reader


def _rows(table: pd.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    columns = [[None if value is pd.NA else value for value in table[name]] for name in names]
    return sorted(zip(*columns, strict=True), key=repr)


def _drawn(reader: Reader, view: str, *names: str) -> list[tuple[Any, ...]]:
    return sorted(reader.rows(f"select {', '.join(names)} from {view}"), key=repr)


def test_trace_is_taken_without_an_import_error(both: tuple[Analysis, Reader]) -> None:
    assert both[1].import_errors() == []


def test_every_launch_is_a_row(both: tuple[Analysis, Reader]) -> None:
    analysis, reader = both
    names = ("name", "kind", "step", "start_ns", "duration_ns", "phase", "level")
    assert _drawn(reader, "launch", *names) == _rows(tables.launches(analysis), *names)


def test_every_share_is_a_row(both: tuple[Analysis, Reader]) -> None:
    analysis, reader = both
    names = ("node", "aten_op", "phase", "file", "line", "duration_ns", "gap")
    assert _drawn(reader, "launch_share", *names) == _rows(tables.attribution(analysis), *names)


def test_shares_of_a_launch_add_up_to_it(both: tuple[Analysis, Reader]) -> None:
    unequal = both[1].rows("""
        select launch from launch_share group by launch
        having sum(duration_ns) != max(launch_ns)
    """)
    assert unequal == []


def test_time_by_line_is_the_table(both: tuple[Analysis, Reader]) -> None:
    analysis, reader = both
    names = ("file", "line", "code", "gap", *SUMS)
    assert _drawn(reader, "time_by_line", *names) == _rows(tables.by_line(analysis), *names)


def test_time_by_module_is_the_table(both: tuple[Analysis, Reader]) -> None:
    analysis, reader = both
    names = ("module", "gap", *SUMS)
    expected = tables.by_module(analysis)
    expected["module"] = expected["module"].replace("", "(model)")
    assert _drawn(reader, "time_by_module", *names) == _rows(expected, *names)


def test_time_by_phase_is_the_table(both: tuple[Analysis, Reader]) -> None:
    analysis, reader = both
    names = ("phase", "launches", "duration_ns", "inclusive_ns", "per_step_ns")
    assert _drawn(reader, "time_by_phase", *names) == _rows(tables.by_phase(analysis), *names)


def test_time_by_kernel_is_the_table(both: tuple[Analysis, Reader]) -> None:
    analysis, reader = both
    names = ("kernel", "name", "kind", *SUMS)
    assert _drawn(reader, "time_by_kernel", *names) == _rows(tables.by_kernel(analysis), *names)


def test_queries_can_be_run_twice(both: tuple[Analysis, Reader]) -> None:
    reader = both[1]
    before = reader.rows("select * from time_by_line")
    reader.rows(queries())
    assert reader.rows("select * from time_by_line") == before


def test_every_event_of_the_recording_is_drawn_with_its_time(
    both: tuple[Analysis, Reader],
) -> None:
    analysis, reader = both
    events, launches = analysis.recording.trace.events, analysis.launches
    # A launch on the CPU is an event of its thread besides.
    launched = launches.event[~np.ma.getmaskarray(launches.stream)].tolist()
    spans = [row for row in range(len(events)) if events.category[row] == "Trace"]
    others = sorted(set(range(len(events))) - set(launched) - set(spans))
    expected: dict[str, tuple[int, int]] = {}
    for row in others:
        count, total_ns = expected.get(events.category[row], (0, 0))
        expected[events.category[row]] = (count + 1, total_ns + int(events.duration_ns[row]))
    drawn = reader.rows("select category, count() as n, sum(dur) as total from slice group by 1")
    found = {category: (n, total) for category, n, total in drawn if category in expected}
    assert found == expected
