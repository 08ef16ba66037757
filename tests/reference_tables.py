"""The pages of the tables' columns: type, unit, meaning, an example, since when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

import profiler_ext
from profiler_ext.exporters.table_kinds import TableKind
from profiler_ext.exporters.tables.schema import Column
from profiler_ext.sessions.merging import MergedSession
from profiler_ext.sessions.session import Session
from tests.cases.neutral import SUFFIX

RECORDED = Path(__file__).parent / "fixtures" / "h200"
_SESSIONS = ("compiles/graph_break", "cases/checkpoint", "findings/data_loader")
_RANKS = ("cases/fsdp2.rank_0", "cases/fsdp2.rank_1")
_WIDEST = 44
_HEADS = ("column", "type", "unit", "what it holds", "for example", "since")


def table_section(kind: TableKind, columns: Mapping[str, Column], made: Sequence[str]) -> str:
    """Return the section of a table.

    Args:
        kind: the table.
        columns: the list of columns.
        made: those that this table has.
    """
    description = f"{kind.description[0].upper()}{kind.description[1:]}."
    rows = column_rows([columns[name] for name in made], _frames(kind.name))
    return "\n\n".join((f"## {kind.name}", description, *_sentences(kind), rows))


def comparison_columns(columns: Mapping[str, Column]) -> str:
    """Return the section of the columns of a comparison's tables.

    Args:
        columns: the list of columns.
    """
    pair = (_session("findings/data_loader"), _session("findings/data_loader.remedied"))
    compared = profiler_ext.diff(*pair)
    frames = [compared.table(by) for by in ("line", "module", "breakdown", "kernel", "op")]
    return f"## The columns\n\n{column_rows(list(columns.values()), frames)}"


def column_rows(columns: Sequence[Column], frames: Sequence[pd.DataFrame]) -> str:
    """Return the table of some columns.

    Args:
        columns: the columns.
        frames: where examples are taken from, the first that has one.
    """
    rows = (
        (f"`{c.name}`", c.dtype, c.unit, _escaped(c.description), _example(c.name, frames), c.since)
        for c in columns
    )
    lines = (_HEADS, ("---",) * len(_HEADS), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _sentences(kind: TableKind) -> Iterator[str]:
    if kind.keys:
        yield f"Its rows are identified by {', '.join(f'`{name}`' for name in kind.keys)}."
    if kind.by:
        yield f"`profiler-ext report --by {kind.by}` prints it."
    if kind.is_written:
        where = ", where it has rows" if kind.is_optional else ""
        yield f"It is a file of an export to a folder of tables{where}."


@lru_cache
def _session(name: str) -> Session:
    return profiler_ext.load(RECORDED / f"{name}{SUFFIX}")


@lru_cache
def _ranks() -> MergedSession:
    return MergedSession([_session(name) for name in _RANKS])


def _frames(table: str) -> list[pd.DataFrame]:
    return [*(_session(name).table(table) for name in _SESSIONS), _ranks().table(table)]


def _example(name: str, frames: Sequence[pd.DataFrame]) -> str:
    """Return a value of the first table that has one."""
    known = (frame[name].dropna() for frame in frames if name in frame)
    values = next((each for each in known if len(each)), None)
    return "" if values is None else _shown(values)


def _shown(values: pd.Series[Any]) -> str:
    """Return the first value that says something."""
    telling = values[values != ""] if values.dtype == "string" else values[values != 0]
    value = (telling if len(telling) else values).iloc[0]
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    short = text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
    return f"`{_escaped(short)}`" if short.strip() else "an empty text"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("`", "'")
