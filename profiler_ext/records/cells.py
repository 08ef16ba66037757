"""Owns the cells of a notebook as a session keeps them: they lie in no file that could be read."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_CELL_LINE_LENGTH = 4096
"""Characters of a line that is kept; what is longer was written by no one."""
MAX_CELL_LINES = 20_000
"""The text of a cell with more is not kept."""
_CELL = re.compile(r"In\[\d+\]|cell-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a notebook.

    Attributes:
        name: what it is called wherever a file is named: ``In[3]``.
        lines: its text as it ran; empty where it is not kept.
    """

    name: str
    lines: tuple[str, ...] = ()


def cell_named(number: int) -> str:
    """Return what a cell is called wherever a file is named: ``In[3]``."""
    return f"In[{number}]"


def is_cell(file: str) -> bool:
    """Return whether a recorded path is no file's but a cell's of a notebook.

    One that begins with ``cell-`` is of another process, which had a cell with that text.
    """
    return _CELL.fullmatch(file) is not None
