"""Owns the list of texts: what commands print, for a person and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from profiler_ext.errors import UsageError
from profiler_ext.exporters.loading import load_function

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class PrintFormat:
    """What a result can be printed as.

    Attributes:
        name: what ``--format`` calls it.
        words: what it is, for a person.
        writer: the function that makes it of a table, as :mod:`.loading` names one; ``None``
            for what each command makes itself: a screen for a person, an answer for a program.
        is_of_source: annotated source can be printed as it too.
    """

    name: str
    words: str
    writer: str | None = None
    is_of_source: bool = False


TEXT = PrintFormat("text", "for a person, in the terminal", is_of_source=True)
JSON = PrintFormat("json", "one JSON object of answers.schema.json", is_of_source=True)
PRINT_FORMATS = (
    TEXT,
    PrintFormat("csv", "comma-separated, with raw numbers", "tables.files:printed_csv"),
    JSON,
    PrintFormat("md", "a Markdown table", "tables.files:markdown_text"),
)


def printed(table: pd.DataFrame, format: str) -> str:
    """Return a table as text for a program.

    Args:
        table: what to print.
        format: ``csv`` or ``md``.

    Returns:
        The text.

    Raises:
        UsageError: There is no such format.
    """
    for each in PRINT_FORMATS:
        if each.name == format and each.writer is not None:
            return str(load_function(each.writer)(table))
    *first, last = (each.name for each in PRINT_FORMATS)
    raise UsageError(f"there is no format {format!r}; ask for {', '.join(first)} or {last}")
