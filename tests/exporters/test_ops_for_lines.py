"""In place of one row for all eager work on Python 3.11, a report by line or module has its ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from profiler_ext.exporters.tables import Table
from profiler_ext.exporters.tables.table import INT, gather
from profiler_ext.exporters.terminal.first_screen import with_ops
from profiler_ext.records.gaps import GapReason

OLD = GapReason.LINES_NEED_PYTHON_312.value
LINES = Table.from_pandas(
    pd.DataFrame(
        {
            "file": pd.array([None, "gpt.py", None], "string"),
            "line": pd.array([None, 36, None], "Int64"),
            "gap": pd.array([OLD, None, "no_launching_op"], "string"),
            "duration_ns": pd.array([90, 60, 5], "Int64"),
        }
    )
)
OPS = Table.from_pandas(
    pd.DataFrame(
        {
            "aten_op": pd.array(["aten::mm", "aten::add", None], "string"),
            "gap": pd.array([None, None, "no_launching_op"], "string"),
            "duration_ns": pd.array([70, 20, 5], "Int64"),
        }
    )
)


def rows(by: str, ops: Table = OPS, **filters: Any) -> list[tuple[Any, Any, int]]:
    asked: list[tuple[str, dict[str, Any]]] = []

    def table(name: str, **filters: Any) -> Table:
        asked.append((name, filters))
        return ops

    shown = with_ops(by, table, LINES, {**filters})  # type: ignore[typeddict-item]
    assert asked in ([], [("by_op", {**filters, "scope": "eager"})])
    assert list(shown.columns) == list(LINES.columns)
    return [*zip(*(shown[name].tolist() for name in ("file", "gap", "duration_ns")), strict=True)]


ALL = [(None, OLD, 90), ("gpt.py", None, 60), (None, "no_launching_op", 5)]


@pytest.mark.parametrize("by", ["line", "module"])
def test_the_ops_stand_by_size_among_the_lines(by: str) -> None:
    assert rows(by) == [
        (None, "aten::mm", 70),
        ("gpt.py", None, 60),
        (None, "aten::add", 20),
        (None, "no_launching_op", 5),
    ]


def test_filters_hold_for_the_ops_too() -> None:
    assert sum(took for *_, took in rows("line", phase="backward", step=5)) == 155


def test_where_the_ops_are_not_all_of_that_time_the_row_stays() -> None:
    assert (
        rows("line", OPS.with_columns({"duration_ns": gather([70, 19, 5], np.arange(3), INT)}))
        == ALL
    )


def test_other_tables_and_compiled_work_are_left_as_they_are() -> None:
    assert rows("kernel") == ALL
    assert rows("line", scope="compiled") == ALL
