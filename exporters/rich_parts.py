"""Owns the parts of rich that are used, and that to import them costs the process nothing.

While it is imported, rich asks for the working folder. It takes one that was removed, and none
whose disk is gone: ``rich/__init__.py``, ``_IMPORT_CWD``. And it draws a number of Python's
generator, whose next numbers are the program's: ``rich/style.py``, ``_id_generator``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["Console", "Group", "Padding", "RenderableType", "Table", "Text"]


@contextmanager
def _with_removed_folder() -> Iterator[None]:
    """Have a working folder that cannot be asked for be one that was removed."""
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
    """Have the program draw the numbers that it would draw."""
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
