"""``profiler_ext.exporters.tables`` as users see it: each table is a pandas frame."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import pandas as pd

from profiler_ext.exporters import tables
from profiler_ext.exporters.tables import Table
from profiler_ext.exporters.views import summary


def __getattr__(name: str) -> Any:
    found = getattr(tables, name)
    return as_frames(found) if callable(found) and not isinstance(found, type) else found


def as_frames(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of tables that takes and returns frames."""

    @wraps(function)
    def of_frames(*arguments: Any, **options: Any) -> Any:
        result = function(*map(_of_frames, arguments), **options)
        return result.to_pandas() if isinstance(result, Table) else result

    return of_frames


def _of_frames(value: Any) -> Any:
    if isinstance(value, list):
        return [*map(_of_frames, value)]
    return Table.from_pandas(value) if isinstance(value, pd.DataFrame) else value


records = as_frames(summary.records)
