"""Reading and writing tables: CSV, Parquet, Markdown.

The CSV text equals that of pandas' ``to_csv``, which makes an object of every cell and takes three
times as long. Arrow's writer quotes every text.

An absent value is an empty cell, the model's own (empty) module path is a word, and any other empty
string is ``""``, so that tables round-trip. Texts that a spreadsheet would take for a formula get a
leading apostrophe, as OWASP advises, and so do texts that begin with one: :func:`read_csv` removes
it; with pandas use ``table.replace("^'", "", regex=True)``. Numbers stay as they are.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from profiler_ext import errors, file_io
from profiler_ext.exporters.extras import PARQUET
from profiler_ext.exporters.tables.schema import COLUMNS
from profiler_ext.exporters.tables.table import (
    FLOAT,
    TEXT,
    AnyColumn,
    Dtype,
    Numbers,
    Table,
    Texts,
    gather,
)
from profiler_ext.printable import printable

if TYPE_CHECKING:
    import pandas as pd

_ROWS_AT_ONCE = 20_000
_Quoting = Literal[0, 2]
_FORMULA = tuple("=+-@\t\r\n'\uff1d\uff0b\uff0d\uff20")
_MODULE, _MODEL = "module", "(the model itself)"
_MODULE_WORDS = {"": _MODEL, _MODEL: f"'{_MODEL}"}
_MARKDOWN = re.compile(r"([\\`*_\[\]<>&|~])")


def csv_parts(table: Table, format_cell: Callable[[str, str], str]) -> Iterator[str]:
    """Yield a table's text in chunks of rows; ``format_cell`` formats a column's text."""
    texts = {
        name: [format_cell(name, text) for text in column.strings]
        for name, column in table.by_name.items()
        if isinstance(column, Texts)
    }
    # Most readers end lines at a carriage return, which the writer does not quote.
    returns = any("\r" in text for column in texts.values() for text in column)
    quoting: _Quoting = csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL
    yield _line(table.columns, quoting)
    absent = _line([""] * len(table.columns), quoting).partition(",")[0].removesuffix("\n")
    # A code of -1 is the last: absent.
    texts = {name: [*_quoted(column, quoting), absent] for name, column in texts.items()}
    for first in range(0, len(table), _ROWS_AT_ONCE):
        some = table.take(slice(first, first + _ROWS_AT_ONCE)).by_name
        cells = [
            [texts[name][code] for code in column.codes.tolist()]
            if isinstance(column, Texts)
            else _numbers(column, absent)
            for name, column in some.items()
        ]
        yield "\n".join(map(",".join, zip(*cells, strict=True))) + "\n"


def _numbers(some: Numbers, absent: str) -> list[str]:
    formatted = [*map(repr, some.data.tolist())]
    for row in np.flatnonzero(some.absent).tolist():
        formatted[row] = absent
    return formatted


def _quoted(texts: Iterable[str], quoting: _Quoting) -> Iterator[str]:
    # With a second cell: a lone empty one would be quoted.
    return (_line([text, 0], quoting).removesuffix(",0\n") for text in texts)


def _line(cells: Iterable[object], quoting: _Quoting) -> str:
    file = io.StringIO()
    csv.writer(file, quoting=quoting, lineterminator="\n").writerow(cells)
    return file.getvalue()


def write_csv(table: Table, path: Path) -> None:
    """Write a table as CSV in UTF-8."""
    with file_io.replacing(path) as file:
        for part in csv_parts(table, _cell):
            file.write(part.encode("utf-8", "backslashreplace"))


def csv_text(table: Table) -> str:
    """Return a table as CSV text, as :func:`write_csv` writes it."""
    return "".join(csv_parts(table, _cell))


def _cell(column: str, text: str) -> str:
    if column == _MODULE and text in _MODULE_WORDS:
        return _MODULE_WORDS[text]
    return _formula_escaped(text)


def printed_csv(table: Table) -> str:
    """Return a table as CSV text for standard output, without terminal control codes."""
    return csv_text(_map_text_columns(table, lambda text: printable(text.expandtabs())))


def read_csv(path: Path) -> pd.DataFrame:
    """Read a table that :func:`write_csv` wrote, with its dtypes.

    Raises:
        UsageError: The file is no such table.
    """
    import pandas as pd

    try:
        names = list(pd.read_csv(path, nrows=0).columns)
        table = pd.read_csv(
            path,
            dtype={name: _read_as(name) for name in names},
            keep_default_na=False,
            na_values=[""],
            lineterminator="\n",
        )
        table = table.astype({name: FLOAT for name in names if _dtype(name) == FLOAT})
    except (OSError, ValueError) as error:
        raise errors.UsageError(
            f"cannot read {path} as a table ({error}); give a CSV file that profiler-ext wrote"
        ) from error
    read = Table.from_pandas(table)
    named = _rename_modules(read, {_MODEL: _formula_escaped("")})
    return Table(_map_text_columns(named, _formula_unescaped).by_name).to_pandas()


def write_parquet(table: Table, path: Path) -> None:
    """Write a table as Parquet; the pandas metadata hold the schema version."""
    PARQUET.require("Parquet")
    with file_io.replacing(path) as file:
        table.to_pandas().to_parquet(file, engine="pyarrow", index=False)


def read_parquet(path: Path) -> pd.DataFrame:
    """Read a table that :func:`write_parquet` wrote, with its dtypes.

    Raises:
        UsageError: The file is no Parquet.
    """
    PARQUET.require("Parquet")
    import pandas as pd

    try:
        return pd.read_parquet(path, engine="pyarrow")
    except (OSError, ValueError) as error:
        raise errors.UsageError(
            f"cannot read {path} as a table ({error}); give a Parquet file that profiler-ext wrote"
        ) from error


def markdown_text(table: Table) -> str:
    """Return a table in GitHub's Markdown, with escaped names."""
    table = _rename_modules(table, {"": _MODEL})
    rule = ["---" if isinstance(each, Texts) else "---:" for each in table.by_name.values()]
    rows = zip(*(column.tolist() for column in table.by_name.values()), strict=True)
    lines = (markdown_row(table.columns), f"| {' | '.join(rule)} |", *map(markdown_row, rows))
    return "\n".join(lines) + "\n"


def markdown_row(values: Iterable[object]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(map(markdown_escape, values))} |"


def _read_as(name: str) -> Dtype:
    # Some pandas versions parse floats inexactly; the conversion from text is exact.
    return TEXT if _dtype(name) == FLOAT else _dtype(name)


def _dtype(name: str) -> Dtype:
    return COLUMNS[name].dtype if name in COLUMNS else TEXT


def _rename_modules(table: Table, words: Mapping[str, str]) -> Table:
    if _MODULE not in table:
        return table
    named = _map_distinct(table[_MODULE], lambda text: words.get(text, text))
    return table.with_columns({_MODULE: named})


def _map_text_columns(table: Table, change: Callable[[str], str]) -> Table:
    texts = {n: column for n, column in table.by_name.items() if isinstance(column, Texts)}
    return table.with_columns({name: _map_distinct(each, change) for name, each in texts.items()})


def _map_distinct(column: Texts, change: Callable[[str], str]) -> AnyColumn:
    return gather([*map(change, column.strings)], column.codes, TEXT)


def _formula_escaped(text: str) -> str:
    if text.startswith(_FORMULA):
        return "'" + text
    return text if text.strip('"') else text + '""'


def _formula_unescaped(text: str) -> str:
    if text.startswith("'"):
        return text[1:]
    return text if text.strip('"') else text[:-2]


def markdown_escape(value: object) -> str:
    """Return a value as one line of Markdown without markup."""
    if value is None:
        return ""
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return printable(" ".join(_MARKDOWN.sub(r"\\\1", str(value).expandtabs()).splitlines()))
