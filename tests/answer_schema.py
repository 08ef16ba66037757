"""The JSON schema of all answers, with the columns of each table.

Tables have their columns from the functions that make them, so the types of their rows are made of
tables: of one rank, and of several. A column that only one of them has may be absent.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from types import GenericAlias
from typing import Annotated, Any

import msgspec
from pandas import DataFrame

from profiler_ext.exporters.json_output import documents, explained
from profiler_ext.exporters.json_output.answers import OVERVIEW_TABLES, PHASES
from profiler_ext.exporters.json_output.comparison import ComparisonAnswer
from profiler_ext.exporters.json_output.documents import (
    Answer,
    Part,
    Report,
    Rows,
    SequenceTable,
    TableAnswer,
    about,
)
from profiler_ext.exporters.tables.schema import COLUMNS
from profiler_ext.exporters.tables.trust import EVIDENCE_COLUMNS, SUMMING_TABLES

FramesByTable = Mapping[str, Sequence[DataFrame]]
_TYPES: Mapping[str, Any] = {
    "string": str | None,
    "Int64": int | None,
    "Float64": float | None,
    "boolean": bool | None,
}
_OWN_TYPES = ("findings", "seq_table")
_OF_PHASES = "device time by phase; a phase without time is left out"
_FIXED_TYPES: tuple[type[Answer], ...] = (
    documents.FindingsAnswer,
    documents.AnnotatedSource,
    documents.Doctor,
    documents.CacheList,
    documents.Pruned,
    documents.Written,
    documents.Sessions,
    documents.JobAnswer,
    documents.TryAnswer,
    documents.Failure,
    ComparisonAnswer,
    explained.Explanation,
    explained.Candidates,
)


def json_schema(made: FramesByTable) -> dict[str, Any]:
    """Return the JSON schema of every answer.

    Args:
        made: name of each table to one or several of it, whose columns are its rows' fields.
    """
    return msgspec.json.schema(every_answer(made))


def every_answer(made: FramesByTable) -> Any:
    """Return the union of the types of all answers, told apart by ``answer``."""
    rows = {name: _row_type(name, frames) for name, frames in made.items()}
    of_tables = [_table_type(name, row) for name, row in rows.items() if name not in _OWN_TYPES]
    sequence = _derived_type(
        SequenceTable, "SequenceTable", "seq_table", rows=_list(rows["seq_table"])
    )
    types = (*_FIXED_TYPES, sequence, _report_type(rows), *of_tables)
    return functools.reduce(operator.or_, types)


def _table_type(name: str, row: Any) -> Any:
    return _derived_type(TableAnswer, f"{_title(name)}Answer", name, rows=_list(row))


def _report_type(rows: Mapping[str, Any]) -> Any:
    shown = [
        (name, _derived_type(Rows, f"{_title(name)}Rows", rows=_list(rows[name])))
        for name in OVERVIEW_TABLES
    ]
    tables = msgspec.defstruct("Glance", shown, bases=(Part,), kw_only=True)
    return _derived_type(Report, "Report", "report", tables=tables)


def _row_type(name: str, frames: Sequence[DataFrame]) -> Any:
    columns = list(dict.fromkeys(column for frame in frames for column in frame.columns))
    everywhere = functools.reduce(operator.and_, (set(frame.columns) for frame in frames))
    fields = [_field(each, each in everywhere) for each in columns if each not in PHASES]
    if set(columns) >= PHASES:
        fields.append(("phases_ns", Annotated[dict[str, int], about(_OF_PHASES)]))
    if name in SUMMING_TABLES:
        fields += [
            (column, Annotated[dict[str, int], about(EVIDENCE_COLUMNS[column])])
            for column in EVIDENCE_COLUMNS
        ]
    return msgspec.defstruct(f"{_title(name)}Row", fields, bases=(Part,), kw_only=True)


def _field(column: str, is_required: bool) -> tuple[Any, ...]:
    row = COLUMNS[column]
    stated = operator.getitem(Annotated, (_TYPES[row.dtype], about(row.description)))
    if is_required:
        return column, stated
    return column, stated | msgspec.UnsetType, msgspec.UNSET


def _derived_type(base: type[Part], title: str, tag: str | None = None, **fields: Any) -> Any:
    return msgspec.defstruct(
        title,
        list(fields.items()),
        bases=(base,),
        tag=tag,
        kw_only=True,
        namespace={"__doc__": base.__doc__},
    )


def _list(of: Any) -> Any:
    return GenericAlias(list, (of,))


def _title(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
