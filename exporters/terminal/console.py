"""rich, imported without side effects on the program, and line printing.

rich asks for the working folder on import, and fails if its disk is gone (``rich/__init__.py``,
``_IMPORT_CWD``), though not if it was removed. It also draws from Python's random generator, whose
next numbers are the program's (``rich/style.py``, ``_id_generator``).
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import wrap
from typing import IO, NoReturn

from profiler_ext.printable import printable

__all__ = ["Console", "Group", "Padding", "RenderableType", "Table", "Text"]


@contextmanager
def _with_removed_folder() -> Iterator[None]:
    """Make an inaccessible working folder look like a removed one."""
    original = os.getcwd
    try:
        original()
    except OSError:
        vars(os)["getcwd"] = _was_removed
    try:
        yield
    finally:
        if os.getcwd is _was_removed:
            vars(os)["getcwd"] = original


def _was_removed() -> NoReturn:
    raise FileNotFoundError


@contextmanager
def _random_state_kept() -> Iterator[None]:
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


with _with_removed_folder(), _random_state_kept():
    from rich.console import Console, Group, RenderableType
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text


_QUANTITY = re.compile(r"(?<=\d) (?=(?:ns|us|ms|s)\b)")
_NO_BREAK = "\N{NO-BREAK SPACE}"


def text_console(file: IO[str], width: int) -> Console:
    """Return a console that writes plain text to ``file``, in a notebook too."""
    return Console(
        file=file, width=width, color_system=None, legacy_windows=False, force_jupyter=False
    )


def print_line(console: Console, line: str, style: str = "") -> None:
    """Print one line, cut to the console's width."""
    console.print(Text(line, style=style), no_wrap=True, overflow="ellipsis")


def print_wrapped(console: Console, text: str, style: str = "", indent: int = 0) -> None:
    """Print wrapped text; a number and its unit stay together."""
    whole = _QUANTITY.sub(_NO_BREAK, printable(text))
    lines = wrap(whole, console.width, subsequent_indent=" " * indent) or [""]
    console.print(Text("\n".join(lines).replace(_NO_BREAK, " "), style=style))


def print_notes(notes: tuple[str, ...], console: Console) -> None:
    """Print notes for the user."""
    for note in notes:
        print_wrapped(console, f"note: {note}", "yellow")
