"""Owns what the page says of rooflines: of lines and kernels, and of the tree of modules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from profiler_ext.exporters import tables
from profiler_ext.exporters.module_rooflines import tree_rooflines
from profiler_ext.exporters.roofline_texts import roofline_text, work_text
from profiler_ext.exporters.table_texts import records
from profiler_ext.exporters.tables.keys import kernel_keys
from profiler_ext.exporters.tables.selection import Selection
from profiler_ext.exporters.tables.sums import with_rooflines
from profiler_ext.printable import printable
from profiler_ext.records import Analysis
from profiler_ext.rooflines.peaks import PEAKS

CodeByKey = Mapping[Any, int]


def near(analysis: Analysis, lines: CodeByKey, kernels: CodeByKey) -> dict[str, Any]:
    """Return how near each is to its roofline, and what it could save.

    Args:
        analysis: what attribution found.
        lines: the number of each source line, by path and line.
        kernels: the number of each kernel, by name, the device's own name, and kind.

    Returns:
        For lines and kernels the number of each, how near in words, nanoseconds that it could
        save, what it moves and computes, GB/s. For rows of the tree of modules, as it is folded
        and as it is not, the path, how near, and what it could save with all that is below it.
    """
    by_kernel = with_rooflines(analysis, kernel_keys(analysis), Selection(), PEAKS)
    return {
        "lines": _roofline_rows(tables.by_line(analysis), ("file", "line"), lines),
        "modules": _module_rooflines(records(tables.by_module(analysis))),
        "kernels": _roofline_rows(by_kernel, ("kernel", "name", "kind"), kernels),
    }


def _module_rooflines(every: list[dict[str, Any]]) -> list[list[Any]]:
    rows = [row for row in every if row["module"] is not None]
    found = tree_rooflines(rows, fold=False) | tree_rooflines(rows)
    texts = ((path, roofline_text(row), row["could_save_ns"]) for path, row in found.items())
    return [[printable(path), text, saved] for path, text, saved in texts if text or saved]


def _roofline_rows(table: tables.DataFrame, keys: tuple[str, ...], codes: CodeByKey) -> list[list[Any]]:
    return list(_rows_with_code(records(table), keys, codes))


def _rows_with_code(
    rows: Iterable[Mapping[str, Any]], keys: tuple[str, ...], codes: CodeByKey
) -> Iterable[list[Any]]:
    for row in rows:
        code = codes.get(tuple(row[key] for key in keys))
        how_near, work = roofline_text(row), work_text(row)
        if code is not None and (how_near or work):
            rate = row["est_gb_per_s"]
            rounded = None if rate is None else round(rate)
            yield [code, how_near, row["could_save_ns"] or 0, work, rounded]
