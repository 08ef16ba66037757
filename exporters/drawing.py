"""Owns what the drawers of tables are given: which rows a terminal shall show, and where."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_ext.exporters import tables
from profiler_ext.exporters.rich_parts import Console
from profiler_ext.exporters.table_kind import TableKind
from profiler_ext.records import Settings


@dataclass(frozen=True, slots=True)
class Drawing:
    """A table to be shown in a terminal.

    Attributes:
        kind: which table it is.
        whole: all its rows.
        shown: the first of them, so many as were asked for.
        settings: has the roots, to shorten paths.
        console: what it must fit.
        wall_ns: the wall time that fills a bar.
        depth: how deep modules are shown; ``None`` for as deep as there is room.
    """

    kind: TableKind
    whole: tables.DataFrame
    shown: tables.DataFrame
    settings: Settings
    console: Console
    wall_ns: int
    depth: int | None = None
