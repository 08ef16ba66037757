"""Owns which code of this process is a cell of a notebook, and what its cell is called.

A cell lies in no file. IPython names its code ``<ipython-input-3-0f1e2d3c4b5a>``, its kernel for
Jupyter ``/tmp/ipykernel_PID/HASH.py``, and both put the text where :mod:`linecache` finds it. In
another process the same cell has another name, so what is kept names it by its text.
"""

from __future__ import annotations

import hashlib
import linecache
import re
import sys
from functools import lru_cache
from typing import Any

_BY_TEXT = "cell-"
_NUMBERED = re.compile(r"<ipython-input-(\d+)-[0-9a-f]+>")
_SHOWN = re.compile(r"In\[(\d+)\]")


def cell_number(file: str) -> int | None:
    """Return the number of the cell that code is of, as its notebook shows it: 3 of ``In[3]``.

    Args:
        file: what the code names as its file.

    Returns:
        The number when it last ran; ``None`` of code that is no cell's.

    Source: ``IPython/core/compilerop.py``, ``code_name`` and ``CachingCompiler.format_code_name``;
    ``ipykernel/compiler.py``, ``get_file_name``.
    """
    number_match = _NUMBERED.fullmatch(file) or _SHOWN.fullmatch(_shown(file))
    return None if number_match is None else int(number_match[1])


def cell_lines(file: str) -> tuple[str, ...]:
    """Return the lines of a cell as they ran; none where they are not known any more.

    Args:
        file: what the cell's code names as its file.
    """
    return tuple(line.rstrip("\n") for line in linecache.getlines(file))


def name_by_text(file: str) -> str | None:
    """Return what names a cell in every process in which its text runs; ``None`` of no cell.

    Args:
        file: what the code names as its file.
    """
    lines = () if cell_number(file) is None else cell_lines(file)
    return _digest(lines) if lines else None


def cell_file(name: str) -> str | None:
    """Return what code of this process names as its file, the cell of which has a text.

    Args:
        name: as :func:`name_by_text` gave it, in any process.

    Returns:
        Of several the one that ran last; ``None`` where no cell here has the text.
    """
    if not name.startswith(_BY_TEXT):
        return None
    cells = (each for each in reversed([*linecache.cache]) if cell_number(each) is not None)
    return next((each for each in cells if name_by_text(each) == name), None)


@lru_cache(maxsize=1024)
def _digest(lines: tuple[str, ...]) -> str:
    text = "\n".join(lines).encode("utf-8", "backslashreplace")
    return _BY_TEXT + hashlib.sha256(text).hexdigest()[:12]


def _shown(file: str) -> str:
    """Return what IPython calls the cell of a file, if it runs here and knows it."""
    get_ipython: Any = getattr(sys.modules.get("IPython"), "get_ipython", None)
    compiler = getattr(get_ipython() if callable(get_ipython) else None, "compile", None)
    format_name = getattr(compiler, "format_code_name", None)  # IPython 7 has none
    shown = format_name(file) if callable(format_name) else None
    return shown[1] if shown else ""
