"""Owns the list of texts: what commands print, for a person and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from profiler_ext.errors import UsageError
from profiler_ext.exporters.loading import named

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Printed:
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


TEXT = Printed("text", "for a person, in the terminal", is_of_source=True)
JSON = Printed("json", "one JSON object of answers.schema.json", is_of_source=True)
PRINTED = (
    TEXT,
    Printed("csv", "comma-separated, with raw numbers", "tables.files:printed_csv"),
    JSON,
    Printed("md", "a Markdown table", "tables.files:markdown_text"),
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
    for each in PRINTED:
        if each.name == format and each.writer is not None:
            return str(named(each.writer)(table))
    *first, last = (each.name for each in PRINTED)
    raise UsageError(f"there is no format {format!r}; ask for {', '.join(first)} or {last}")
