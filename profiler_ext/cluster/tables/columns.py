"""Owns how a job's tables are made of columns, and in which order their rows stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from profiler_ext.cluster.tables.schema import JOB_COLUMNS
from profiler_ext.exporters.tables import DataFrame
from profiler_ext.exporters.tables.arrays import frame, gather

LINE: Final = ("file", "line", "function", "code", "gap")
COLLECTIVE_COLUMNS: Final = ("collective", "process_group")
_Columns = Mapping[str, Sequence[Any]]


def frame_of(columns: _Columns) -> DataFrame:
    """Return a table of columns whose names say what they hold.

    Args:
        columns: the values of each; ``None`` is absent.
    """
    return frame(
        {
            name: gather(list(values), np.arange(len(values)), JOB_COLUMNS[name].dtype)
            for name, values in columns.items()
        }
    )


def ordered(table: DataFrame, largest: str, keys: Sequence[str]) -> DataFrame:
    """Return a table in order: of one column the largest first, then by others.

    Args:
        table: the table.
        largest: the one column.
        keys: the others.
    """
    by = [largest, *keys]
    ordered = table.sort_values(by, ascending=[name != largest for name in by], ignore_index=True)
    return frame({name: ordered[name].array for name in ordered.columns})
