"""Owns which line it is that torch names in code with which Dynamo goes on after a graph break.

What is compiled of it says the lines of that code's table, which are off
(:mod:`profiler_ext.torch_compat.code_lines`), and so is the line at which it goes on, which it has
in its name.
"""

from __future__ import annotations

import linecache
from collections import defaultdict
from types import CodeType

from profiler_ext.torch_compat.code_lines import lines_written
from profiler_ext.torch_compat.process import resumed

_LINES: dict[tuple[str, str], dict[int, set[int]]] = {}
_RESUMED_AT: dict[tuple[str, str, int], set[int | None]] = defaultdict(set)


def note_resumed(code: CodeType) -> None:
    """Note which lines the lines of such code are; several may bear one name, and differ.

    Args:
        code: what Dynamo compiles.
    """
    lines = _LINES.setdefault((code.co_filename, code.co_name), defaultdict(set))
    for said, line in lines_written(code):
        lines[said].add(line)


def line_of(file: str, function: str, said: int) -> tuple[int | None, str | None]:
    """Return the line that is meant where torch says another, with its text.

    Args:
        file: the code's file.
        function: its name.
        said: the line that torch says.

    Returns:
        The line; ``None`` where it may be one of several. Its text is ``None`` where torch has it.
    """
    lines = _LINES.get((file, function))
    meant = {said} if lines is None else lines.get(said, {said})
    if len(meant) != 1:
        return None, None
    (line,) = meant
    return line, (None if line == said else linecache.getline(file, line).strip())


def note_break(file: str, function: str, said: int) -> tuple[int | None, str | None]:
    """Return what :func:`line_of` does of a place at which a graph breaks, and note it.

    Args:
        file: the code's file.
        function: its name.
        said: the line that torch says; the code that goes on there will say so, too.
    """
    line, text = line_of(file, function, said)
    _RESUMED_AT[file, resumed(function) or function, said].add(line)
    return line, text


def line_resumed(file: str, function: str, said: int) -> int | None:
    """Return the line at which code goes on, ``None`` where it may be one of several.

    Args:
        file: the code's file.
        function: what it goes on with.
        said: the line that torch says.
    """
    meant = _RESUMED_AT.get((file, function, said), {said})
    return next(iter(meant)) if len(meant) == 1 else None
