"""Which lines of the source are meant in code that Dynamo wrote, whose tables name others.

Dynamo writes the tables of lines itself, for the code that it runs in a frame's stead and for that
with which it goes on after a graph break. The step to another line is counted twice where an
instruction takes more than eight units, as a method's load does: all lines after it are off by that
step, more with each statement that has several lines.

Source: ``torch/_dynamo/bytecode_transformation.py``, ``linetable_311_writer``.
"""

from __future__ import annotations

import dis
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from types import CodeType
from typing import NamedTuple

from profiler_ext.torch_compat.names import running_names
from profiler_ext.torch_compat.process import is_resumed

_MOST_UNITS = 8
_UNIT_BYTES = 2
_MOVES = frozenset(
    (
        *("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "LOAD_FAST_LOAD_FAST"),
        *("STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "LOAD_CONST"),
        *("RETURN_VALUE", "RETURN_CONST", "POP_TOP", "SWAP", "COPY", "PUSH_NULL", "NOP"),
        *("JUMP_FORWARD", "JUMP_BACKWARD", "RERAISE", "LIST_APPEND", "BUILD_TUPLE", "END_FOR"),
    )
)


def source_lines(code: CodeType) -> Mapping[int, int | None]:
    """Return the line of the source that each line is which running code says, if it is another.

    Args:
        code: any code; that with which Dynamo goes on is off itself, and what Dynamo makes of it
            is off from there.

    Returns:
        The lines of what Dynamo wrote; ``None`` for one that may be one of several.

    Raises:
        PrivateNameError: This torch does not tell what Dynamo made code of.
    """
    if all(line is None or column is not None for line, _, column, _ in code.co_positions()):
        return {}
    original_lines = _lines_of_original(code)
    source_of: dict[int, set[int | None]] = defaultdict(set)
    for reported_line, line in (
        (reported_line, line) for _, reported_line, line in _instructions(code)
    ):
        source_of[reported_line].add(
            None if original_lines is None else original_lines.get(line, line)
        )
    return {
        reported_line: lines.pop() if len(lines) == 1 else None
        for reported_line, lines in source_of.items()
    }


class Traced(NamedTuple):
    """An instruction as Dynamo traces it.

    Attributes:
        said: the line that Dynamo says.
        line: the one that is meant.
        columns: those of the source that Dynamo says.
        computes: it may add to a graph; what moves a value from one place to another does not.
    """

    reported_line: int
    line: int
    columns: tuple[int | None, int | None]
    computes: bool


def lines_traced(code: CodeType) -> Iterator[Traced]:
    """Yield what Dynamo says of each instruction of code.

    It takes a new line where an instruction begins, and none that begins within one.

    Source: ``torch/_dynamo/bytecode_analysis.py``, ``propagate_line_nums``.
    """
    line_starts = dict(dis.findlinestarts(code))
    reported_line = code.co_firstlineno
    for each, _, line in _instructions(code):
        reported_line = line_starts.get(each.offset) or reported_line
        columns = (None, None) if each.positions is None else each.positions[2:]
        yield Traced(reported_line, line, columns, each.opname not in _MOVES)


def _instructions(code: CodeType) -> Iterator[tuple[dis.Instruction, int, int]]:
    """Yield each instruction, the line that the table says, and the one that was to be written."""
    units = [line for line, *_ in code.co_positions()]
    instructions = [*dis.get_instructions(code)]
    starts = [each.offset // _UNIT_BYTES for each in instructions]
    drift = 0
    for each, (start, end) in zip(instructions, pairwise([*starts, len(units)]), strict=True):
        if (reported_line := units[start]) is not None:
            yield each, reported_line, reported_line - drift
        drift += sum(
            (units[at] or 0) - (units[at - _MOST_UNITS] or 0)
            for at in range(start + _MOST_UNITS, end, _MOST_UNITS)
        )


def _lines_of_original(code: CodeType) -> Mapping[int, int | None] | None:
    """Return the lines that are meant in what Dynamo made code of, ``None`` if it forgot of what.

    Code with which Dynamo goes on and that runs as it is was made of nothing. After
    ``torch._dynamo.reset()`` Dynamo knows it still, but not what it compiled of it.
    """
    if running_names.ORIGINAL_CODES.module not in sys.modules:
        return {}
    original = running_names.ORIGINAL_CODES.get().get(code)
    if original is not None:
        return source_lines(original)
    is_forgotten = is_resumed(code) and code not in running_names.RESUMED_CODES.get()
    return None if is_forgotten else {}
