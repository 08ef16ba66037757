"""A session as a folder of tables, one file each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from profiler_ext.exporters import table_kinds, tables
from profiler_ext.exporters.tables.table import Table
from profiler_ext.records.analysis import Analysis

_MakeTable = Callable[[table_kinds.TableKind], Table]
_WriteTable = Callable[[Table, Path], None]


def export_csv(analysis: Analysis, folder: Path) -> Path:
    """Write one rank's tables as CSV; returns the folder."""
    return _written(_of_rank(analysis), folder, tables.write_csv, "csv")


def export_ranks_csv(analyses: Sequence[Analysis], folder: Path) -> Path:
    """Write several ranks' tables as CSV; returns the folder."""
    return _written(_of_ranks(analyses), folder, tables.write_csv, "csv")


def export_parquet(analysis: Analysis, folder: Path) -> Path:
    """Write one rank's tables as Parquet; returns the folder."""
    return _written(_of_rank(analysis), folder, tables.write_parquet, "parquet")


def export_ranks_parquet(analyses: Sequence[Analysis], folder: Path) -> Path:
    """Write several ranks' tables as Parquet; returns the folder."""
    return _written(_of_ranks(analyses), folder, tables.write_parquet, "parquet")


def _of_rank(analysis: Analysis) -> _MakeTable:
    return lambda kind: kind.make(analysis)


def _of_ranks(analyses: Sequence[Analysis]) -> _MakeTable:
    base_ns = analyses[0].recording.trace.base_ns
    return lambda kind: tables.of_ranks(analyses, base_ns, kind.name)


def _written(make: _MakeTable, folder: Path, write: _WriteTable, suffix: str) -> Path:
    for kind in table_kinds.WRITTEN:
        table, path = make(kind), folder / f"{kind.name}.{suffix}"
        if kind.is_optional and not len(table):
            with suppress(OSError):  # that of an earlier session; the next write says what is wrong
                path.unlink()
        else:
            write(table, path)
    return folder
