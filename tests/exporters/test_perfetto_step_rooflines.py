"""Lines, modules and kernels have their rooflines in a Perfetto trace, as the tables have them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import profiler_ext
from profiler_ext.exporters.perfetto import export_perfetto, export_ranks, queries
from profiler_ext.records.analysis import Analysis
from tests import frames as tables
from tests.book.recordings import RECORDED
from tests.cases.neutral import SUFFIX
from tests.exporters.estimated import estimated
from tests.exporters.tabled import ROOFLINES
from tests.trace_processor import Reader, reading

KNOWN = ("est_bytes", "est_flops", "unit", "roofline_ns")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Analysis, Reader]]:
    analysis = profiler_ext.load(RECORDED / f"findings/tuned_gpt{SUFFIX}").analysis
    path = export_perfetto(analysis, tmp_path_factory.mktemp("trace") / "trace.pftrace")
    with reading(path) as reader:
        reader.rows(queries())
        yield analysis, reader


def _rows(table: pd.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    known = table[table[[*KNOWN]].notna().any(axis=1) & table[names[0]].notna()]
    columns = [[None if value is pd.NA else value for value in known[name]] for name in names]
    return sorted(zip(*columns, strict=True), key=repr)


def _drawn(reader: Reader, of: str, *names: str) -> list[tuple[Any, ...]]:
    rows = reader.rows(f"select {', '.join(names)} from roofline where of = '{of}'")
    return sorted(rows, key=repr)


def test_lines_have_the_rooflines_of_the_table(both: tuple[Analysis, Reader]) -> None:
    names = ("file", "line", *ROOFLINES)
    assert _drawn(both[1], "line", *names) == _rows(tables.by_line(both[0]), *names)


def test_modules_have_the_rooflines_of_the_table(both: tuple[Analysis, Reader]) -> None:
    names = ("module", *ROOFLINES)
    expected = tables.by_module(both[0])
    expected["module"] = expected["module"].replace("", "(model)")
    assert _drawn(both[1], "module", *names) == _rows(expected, *names)


def test_kernels_have_the_rooflines_of_the_table(both: tuple[Analysis, Reader]) -> None:
    names = ("kernel", "name", "kind", *ROOFLINES)
    assert _drawn(both[1], "kernel", *names) == _rows(tables.by_kernel(both[0]), *names)


def test_each_slice_of_a_line_says_its_roofline(both: tuple[Analysis, Reader]) -> None:
    assert _texts(both[1], "source line", "eager_lines.py:56  *") == [
        "over the profiled step: bound by arithmetic, 47% of its roofline; max saving 302 us; "
        "moves 607 MB at 786 GB/s and does 361 GFLOP in bf16 on tensor cores at 467 TFLOP/s, "
        "of 989 attainable"
    ]


def test_a_module_says_the_roofline_of_all_below_it(both: tuple[Analysis, Reader]) -> None:
    table = tables.by_module(both[0], depth=2)
    (row,) = table[table["module"] == "blocks.0"].to_dict("records")
    assert (row["est_bytes"], row["could_save_ns"]) == (1_608_028_347, 161_216)
    assert _texts(both[1], "module", "blocks.0") == [
        "over the profiled step: bound by arithmetic, 62% of its roofline; max saving 161 us; "
        "moves 1.61 GB at 1,659 GB/s and does 439 GFLOP in bf16 on tensor cores at 478 TFLOP/s, "
        "of 775 attainable"
    ]


def test_what_launching_bounds_says_so_without_a_part(tmp_path: Path) -> None:
    analysis = profiler_ext.load(RECORDED / f"cases/llama{SUFFIX}").analysis
    path = export_perfetto(analysis, tmp_path / "trace.pftrace")
    with reading(path) as reader:
        (reported,) = _texts(reader, "module", "model")
    assert reported.startswith("over the 2 profiled steps: bound by launching; moves ")


def test_ranks_have_rooflines_of_their_own(tmp_path: Path) -> None:
    ranks = [profiler_ext.load(RECORDED / f"cases/ddp.rank_{n}{SUFFIX}").analysis for n in (0, 1)]
    path = export_ranks(ranks, tmp_path / "ranks.pftrace")
    with reading(path) as reader:
        reader.rows(queries())
        drawn = reader.rows(
            "select rank, sum(could_save_ns) from roofline where of = 'line' group by 1"
        )
    sums = [
        int(tables.by_line(each).dropna(subset="file")["could_save_ns"].sum()) for each in ranks
    ]
    assert drawn == [*enumerate(sums)]


def test_a_step_of_which_no_work_is_known_has_none(tmp_path: Path) -> None:
    path = export_perfetto(estimated({}), tmp_path / "trace.pftrace", peaks={})
    with reading(path) as reader:
        reader.rows(queries())
        assert reader.rows("select * from roofline where est_bytes is not null") == []


def _texts(reader: Reader, category: str, name: str) -> list[str]:
    rows = reader.rows(
        "select distinct extract_arg(arg_set_id, 'debug.roofline') as said from slice "
        f"where category = '{category}' and name glob '{name}'"
    )
    return [reported for (reported,) in rows]
