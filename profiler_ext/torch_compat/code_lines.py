"""The right source lines of code that Dynamo wrote, whose line tables are off.

Source: ``torch/_dynamo/bytecode_transformation.py``, ``linetable_311_writer``: the step to another
line is counted twice for an instruction of more than eight units, such as a method's load, so all
later lines are off by it.
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
    """Return the source line of each line that running code reports, where it differs.

    ``None`` if it is ambiguous.
    """
    if all(line is None or column is not None for line, _, column, _ in code.co_positions()):
        return {}
    original_lines = _lines_of_original(code)
    source_of: dict[int, set[int | None]] = defaultdict(set)
    for _, reported_line, line in _instructions(code):
        original = None if original_lines is None else original_lines.get(line, line)
        source_of[reported_line].add(original)
    return {at: lines.pop() if len(lines) == 1 else None for at, lines in source_of.items()}


class Traced(NamedTuple):
    """An instruction as Dynamo traces it."""

    reported_line: int
    line: int
    columns: tuple[int | None, int | None]
    computes: bool  # it may add to a graph, and does not just move a value


def lines_traced(code: CodeType) -> Iterator[Traced]:
    """Yield what Dynamo reports of each instruction of code.

    Source: ``torch/_dynamo/bytecode_analysis.py``, ``propagate_line_nums``: a line counts if it
    begins with an instruction.
    """
    line_starts = dict(dis.findlinestarts(code))
    reported_line = code.co_firstlineno
    for each, _, line in _instructions(code):
        reported_line = line_starts.get(each.offset) or reported_line
        columns = (None, None) if each.positions is None else each.positions[2:]
        yield Traced(reported_line, line, columns, each.opname not in _MOVES)


def _instructions(code: CodeType) -> Iterator[tuple[dis.Instruction, int, int]]:
    """Yield each instruction, its line in the table, and the right line."""
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
    """Return the right lines of the code that Dynamo compiled; ``None`` if it is unknown."""
    # A resume function that runs uncompiled has no original. After ``torch._dynamo.reset()`` Dynamo
    # still knows it, but not what it compiled from it.
    if running_names.ORIGINAL_CODES.module not in sys.modules:
        return {}
    original = running_names.ORIGINAL_CODES.get().get(code)
    if original is not None:
        return source_lines(original)
    is_forgotten = is_resumed(code) and code not in running_names.RESUMED_CODES.get()
    return None if is_forgotten else {}
