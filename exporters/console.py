"""Owns how lines are printed on a console: a person's, or one that writes into a file."""

from __future__ import annotations

import re
from textwrap import wrap
from typing import IO

from profiler_ext.exporters.rich_parts import Console, Text
from profiler_ext.printable import printable

_QUANTITY = re.compile(r"(?<=\d) (?=(?:ns|us|ms|s)\b)")
_NO_BREAK = "\N{NO-BREAK SPACE}"


def text_console(file: IO[str], width: int) -> Console:
    """Return a console that writes plain text into ``file``, in a notebook as well.

    Args:
        file: where to.
        width: of lines, in characters.
    """
    return Console(
        file=file, width=width, color_system=None, legacy_windows=False, force_jupyter=False
    )


def print_line(console: Console, line: str, style: str = "") -> None:
    """Print one line, cut to the console's width.

    Args:
        console: where to.
        line: the line.
        style: one of rich's styles.
    """
    console.print(Text(line, style=style), no_wrap=True, overflow="ellipsis")


def print_wrapped(console: Console, text: str, style: str = "", indent: int = 0) -> None:
    """Print a text on as many lines as it takes; a number and its unit stay together.

    Args:
        console: where to.
        text: the text.
        style: one of rich's styles.
        indent: how far the lines after the first are moved in.
    """
    whole = _QUANTITY.sub(_NO_BREAK, printable(text))
    lines = wrap(whole, console.width, subsequent_indent=" " * indent) or [""]
    console.print(Text("\n".join(lines).replace(_NO_BREAK, " "), style=style))


def print_notes(notes: tuple[str, ...], console: Console) -> None:
    """Print sentences for a person.

    Args:
        notes: the sentences.
        console: where to.
    """
    for note in notes:
        print_wrapped(console, f"note: {note}", "yellow")
