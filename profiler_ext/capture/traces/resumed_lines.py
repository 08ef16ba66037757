"""Owns which line it is that torch names in code with which Dynamo goes on after a graph break.

What is compiled of it says the lines of that code's table, which are off
(:mod:`profiler_ext.torch_compat.code_lines`), and so is the line at which it goes on, which it has
in its name.
"""

from __future__ import annotations

import linecache
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from traceback import FrameSummary, StackSummary
from types import CodeType

from profiler_ext.torch_compat.code_lines import Traced, lines_traced
from profiler_ext.torch_compat.process import resumed

_TRACED: dict[tuple[str, str], dict[int, set[Traced]]] = {}
"""By file, function and the line that torch says."""
_RESUMED_AT: dict[tuple[str, str, int], set[int | None]] = defaultdict(set)
_CARETS = re.compile(r" +[~^]*")


def note_resumed(code: CodeType) -> None:
    """Note which lines the lines of such code are; several may bear one name, and differ.

    Args:
        code: what Dynamo compiles.
    """
    known = _TRACED.setdefault((code.co_filename, code.co_name), defaultdict(set))
    for each in lines_traced(code):
        known[each.reported_line].add(each)


def line_of(
    file: str, function: str, reported_line: int, text: Sequence[str] = ()
) -> tuple[int | None, str | None]:
    """Return the line that is meant where torch says another of what a graph has, with its text.

    Args:
        file: the code's file.
        function: its name.
        said: the line that torch says.
        text: all that torch says; where there are carets, they tell the column.

    Returns:
        The line; ``None`` where it may be one of several. Its text is ``None`` where torch has it.
    """
    traced: set[Traced] = _TRACED.get((file, function), {}).get(reported_line, set())
    candidates: set[Traced] = {each for each in traced if each.computes} or traced
    column = _first_caret(text) if len({each.line for each in candidates}) > 1 else None
    if column is not None:
        candidates = {each for each in candidates if _first_caret(_text(file, each)) == column}
    return _only(file, reported_line, candidates or traced)


def _first_caret(text: Sequence[str]) -> int | None:
    """Return where the line of carets begins that torch writes under a line of code."""
    carets = "".join(text[2:3])
    return len(carets) - len(carets.lstrip()) if _CARETS.fullmatch(carets) else None


def _text(file: str, traced: Traced) -> Sequence[str]:
    """Return what torch says of an instruction.

    Source: ``torch/_dynamo/symbolic_convert.py``, ``InstructionTranslatorBase.frame_summary``.
    """
    start, end = traced.columns
    summary = FrameSummary(file, traced.reported_line, "", lookup_line=False, colno=start, end_colno=end)
    return "".join(StackSummary.from_list([summary]).format()).splitlines()


def _only(file: str, reported_line: int, traced: Iterable[Traced]) -> tuple[int | None, str | None]:
    line, *others = {each.line for each in traced} or {reported_line}
    if others:
        return None, None
    return line, (None if line == reported_line else linecache.getline(file, line).strip())


def note_break(file: str, function: str, reported_line: int) -> tuple[int | None, str | None]:
    """Return the line at which a graph breaks, with its text, as :func:`line_of` does; note it.

    A graph may break where nothing is computed: at the first instruction of a statement.

    Args:
        file: the code's file.
        function: its name.
        said: the line that torch says; the code that goes on there will say so, too.
    """
    line, text = _only(file, reported_line, _TRACED.get((file, function), {}).get(reported_line, ()))
    _RESUMED_AT[file, resumed(function) or function, reported_line].add(line)
    return line, text


def line_resumed(file: str, function: str, reported_line: int) -> int | None:
    """Return the line at which code goes on, ``None`` where it may be one of several.

    Args:
        file: the code's file.
        function: what it goes on with.
        said: the line that torch says.
    """
    candidates = _RESUMED_AT.get((file, function, reported_line), {reported_line})
    return next(iter(candidates)) if len(candidates) == 1 else None
