"""How values and tables stand in a gold file: tabs between cells, ``-`` for what is absent."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator

import pandas as pd

ABSENT = "-"
TAB = "\t"
_LIBRARIES = re.compile(r"^/\S*/site-packages/|^/\S*/lib/python[\d.]+/")


def cells(values: Iterable[object]) -> str:
    """Return one line."""
    return TAB.join(map(cell, values))


def cell(value: object) -> str:
    """Return one value; of a library's file, what follows the library's folder."""
    if value is None:
        return ABSENT
    return f"{value:.6g}" if isinstance(value, float) else _shown(str(value))


@functools.lru_cache(maxsize=100_000)
def _shown(text: str) -> str:
    return _LIBRARIES.sub("~", text).removeprefix("/src/").replace("\n", "\\n").replace(TAB, "\\t")


def at(file: object, line: object) -> str:
    """Return a place in a source file."""
    return ABSENT if file is None else f"{cell(file)}:{line}"


def rows(table: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a table, with None for what is absent."""
    columns = [table[name].to_numpy(object, na_value=None).tolist() for name in table]
    return zip(*columns, strict=True)


def lines(table: pd.DataFrame) -> list[str]:
    """Return a table as lines, its head first."""
    return [cells(table.columns), *map(cells, rows(table))]
