"""Torch's stack traces as frames, with the right file and line where Dynamo names others.

Source: ``torch/_dynamo/bytecode_transformation.py``, ``_cached_cleaned_instructions``.
"""

from __future__ import annotations

import functools
import linecache
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from traceback import FrameSummary, StackSummary
from types import CodeType

from profiler_ext.records.lineage import Frame
from profiler_ext.source_paths import absolute, shorten
from profiler_ext.torch_compat.code_lines import Traced, lines_traced
from profiler_ext.torch_compat.process import resumed

_TRACED: dict[tuple[str, str], dict[int, set[Traced]]] = {}
"""By file, function and reported line: a resume function's line table is off."""
_RESUMED_AT: dict[tuple[str, str, int], set[int | None]] = defaultdict(set)
_CARETS = re.compile(r" +[~^]*")


def note_resumed(code: CodeType) -> None:
    """Note the lines of a resume function; several may have one name, and differ."""
    known = _TRACED.setdefault((code.co_filename, code.co_name), defaultdict(set))
    for each in lines_traced(code):
        known[each.reported_line].add(each)


def line_of(
    file: str, function: str, reported_line: int, text: Sequence[str] = ()
) -> tuple[int | None, str | None]:
    """Return the line that torch's reported line stands for, with its text.

    ``None`` if it is ambiguous; carets in ``text`` give the column. The text is ``None`` if torch
    has it.
    """
    traced: set[Traced] = _TRACED.get((file, function), {}).get(reported_line, set())
    candidates: set[Traced] = {each for each in traced if each.computes} or traced
    column = _first_caret(text) if len({each.line for each in candidates}) > 1 else None
    if column is not None:
        candidates = {each for each in candidates if _first_caret(_text(file, each)) == column}
    return _only(file, reported_line, candidates or traced)


def _first_caret(text: Sequence[str]) -> int | None:
    """Return the column of torch's carets under a line of code."""
    carets = "".join(text[2:3])
    return len(carets) - len(carets.lstrip()) if _CARETS.fullmatch(carets) else None


def _text(file: str, traced: Traced) -> Sequence[str]:
    """Return torch's text for an instruction.

    Source: ``torch/_dynamo/symbolic_convert.py``, ``InstructionTranslatorBase.frame_summary``.
    """
    start, end = traced.columns
    summary = FrameSummary(
        file, traced.reported_line, "", lookup_line=False, colno=start, end_colno=end
    )
    return "".join(StackSummary.from_list([summary]).format()).splitlines()


def _only(file: str, reported_line: int, traced: Iterable[Traced]) -> tuple[int | None, str | None]:
    line, *others = {each.line for each in traced} or {reported_line}
    if others:
        return None, None
    return line, (None if line == reported_line else linecache.getline(file, line).strip())


def note_break(file: str, function: str, reported_line: int) -> tuple[int | None, str | None]:
    """Return the line at which a graph breaks, as :func:`line_of` does, and note it.

    A graph may break at the first instruction of a statement, where nothing is computed.
    """
    line, text = _only(
        file, reported_line, _TRACED.get((file, function), {}).get(reported_line, ())
    )
    _RESUMED_AT[file, resumed(function) or function, reported_line].add(line)
    return line, text


def line_resumed(file: str, function: str, reported_line: int) -> int | None:
    """Return the line at which a resume function starts; ``None`` if it is ambiguous."""
    candidates = _RESUMED_AT.get((file, function, reported_line), {reported_line})
    return next(iter(candidates)) if len(candidates) == 1 else None


Function = tuple[str, str]
"""Its file and its name."""

_OWNERS: dict[tuple[str, str, int], set[Function]] = defaultdict(set)
"""By file, name and line of reported code: the functions that may contain it."""
_LOCALS_MARKER = "<locals>"


def note_equal_code(traced: Collection[CodeType]) -> None:
    """Note the functions whose nested code torch may report in another file."""
    # Dynamo caches instructions by code equality, which ignores the file. For a function with an
    # equal in another file (a copy of a module, an earlier notebook cell) it takes the nested
    # lambdas and generators from there, and reports that file.
    named = [code for code in traced if _LOCALS_MARKER in code.co_qualname]
    for owner in traced if named else ():
        for own in _nested_codes(owner):
            for code in named:
                if code.co_filename != own.co_filename and code == own:
                    owners = {(each.co_filename, owner.co_name) for each in (code, own)}
                    for _, _, line in code.co_lines():
                        if line is not None:
                            _OWNERS[code.co_filename, code.co_name, line] |= owners


def _nested_codes(owner: CodeType) -> Iterator[CodeType]:
    for const in owner.co_consts:
        if isinstance(const, CodeType):
            yield const
            yield from _nested_codes(const)


def file_of(
    file: str, function: str, line: int, outer_functions: Collection[Function]
) -> str | None:
    """Return the file of a frame: that of the outer function that contains such code."""
    owners = _OWNERS.get((file, function, line))
    if owners is None:
        return file
    files = {file for file, name in owners if (file, name) in outer_functions}
    return files.pop() if len(files) == 1 else None


_FILE = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+?)\s*$')
_MARKER = re.compile(r"^[\s~^]*$")


@functools.lru_cache(maxsize=65536)
def parse_stack(trace: str | None) -> tuple[Frame, ...]:
    """Parse a ``node.meta["stack_trace"]``: outermost frame first, perhaps with carets."""
    lines = (trace or "").splitlines()
    matches = [(index, match) for index, line in enumerate(lines) if (match := _FILE.match(line))]
    functions = {(match["file"], match["function"]) for _, match in matches}
    ends = [*(index for index, _ in matches[1:]), len(lines)]
    frames = (
        _frame(match, lines[index:end], functions)
        for (index, match), end in zip(matches, ends, strict=False)
    )
    return tuple(frame for frame in frames if frame is not None)


def _frame(
    match: re.Match[str], frame_lines: list[str], functions: Collection[Function]
) -> Frame | None:
    file = file_of(match["file"], match["function"], int(match["line"]), functions)
    line, text = line_of(match["file"], match["function"], int(match["line"]), frame_lines)
    if file is None or line is None:
        return None
    code = text or "".join(frame_lines[1:2]).strip()
    usable = code and not _MARKER.match(code)
    return Frame(
        file=shorten(absolute(file)),
        line=line,
        function=match["function"],
        code=code if usable else None,
    )
