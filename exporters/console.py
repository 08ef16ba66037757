"""Owns how lines are printed on a console: a person's, or one that writes into a file."""

from __future__ import annotations

from typing import IO

from rich.console import Console
from rich.text import Text

from profiler_ext.printable import printable


def text_console(file: IO[str], width: int) -> Console:
    """Return a console that writes plain text into ``file``, in a notebook as well.

    Args:
        file: where to.
        width: of lines, in characters.
    """
    return Console(
        file=file, width=width, color_system=None, legacy_windows=False, force_jupyter=False
    )


def say(console: Console, line: str, style: str = "") -> None:
    """Print one line, cut to the console's width.

    Args:
        console: where to.
        line: the line.
        style: one of rich's styles.
    """
    console.print(Text(line, style=style), no_wrap=True, overflow="ellipsis")


def print_notes(notes: tuple[str, ...], console: Console) -> None:
    """Print sentences for a person.

    Args:
        notes: the sentences.
        console: where to.
    """
    for note in notes:
        console.print(Text(printable(f"note: {note}"), style="yellow"))
