"""Owns which line it is that torch names in code with which Dynamo goes on after a graph break.

Torch writes that code's table of lines itself, and counts the step to another line twice where an
instruction takes more than eight units, as a method's load does: all lines after it are off by that
step, more with each statement that has several lines.

Source: ``torch/_dynamo/bytecode_transformation.py``, ``linetable_311_writer``.
"""

from __future__ import annotations

import dis
import linecache
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from types import CodeType

_MOST_UNITS = 8
_UNIT_BYTES = 2
_LINES: dict[tuple[str, str], dict[int, set[int]]] = {}


def note_resumed(code: CodeType) -> None:
    """Note which lines the lines of such code are; several may bear one name, and differ.

    Args:
        code: what Dynamo compiles.
    """
    lines = _LINES.setdefault((code.co_filename, code.co_name), defaultdict(set))
    for said, line in _lines(code):
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


def _lines(code: CodeType) -> Iterator[tuple[int, int]]:
    """Yield the line that the table says of each instruction, and the one that was meant."""
    units = [line for line, *_ in code.co_positions()]
    starts = [each.offset // _UNIT_BYTES for each in dis.get_instructions(code)]
    drift = 0
    for start, end in pairwise([*starts, len(units)]):
        if (said := units[start]) is not None:
            yield said, said - drift
        drift += sum(
            (units[at] or 0) - (units[at - _MOST_UNITS] or 0)
            for at in range(start + _MOST_UNITS, end, _MOST_UNITS)
        )
