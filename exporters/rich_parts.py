"""Owns the parts of rich that are used, and that they can be imported wherever the process is.

While it is imported, rich asks for the working folder. It takes one that was removed, and none
whose disk is gone: ``rich/__init__.py``, ``_IMPORT_CWD``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["Console", "Group", "Padding", "RenderableType", "Table", "Text"]


@contextmanager
def _folder_as_removed() -> Iterator[None]:
    """Have a working folder that cannot be asked for be one that was removed."""
    asked = os.getcwd
    try:
        asked()
    except OSError:
        vars(os)["getcwd"] = _was_removed
    try:
        yield
    finally:
        if os.getcwd is _was_removed:
            vars(os)["getcwd"] = asked


def _was_removed() -> NoReturn:
    raise FileNotFoundError


with _folder_as_removed():
    from rich.console import Console, Group, RenderableType
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text
