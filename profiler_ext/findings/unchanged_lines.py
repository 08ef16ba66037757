"""What no round of a loop changes, and which lines below it are given that, by the text."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from profiler_ext.findings.code_of_lines import KEPT, assigned
from profiler_ext.findings.facts import Facts
from profiler_ext.findings.lines_of_functions import Function, arguments_of
from profiler_ext.records.lineage import Frame

Line = tuple[str, str, int]  # file, function and number
_LOOPS = re.compile(r"(?:async\s+)?(?:for|while)\b")
ASSIGNS_TO_SELF = re.compile(r"[^(=]*\bself\.[\w.]+[^(=]*=[^=]")
"""A statement that keeps something in ``self``, which a later call may read."""
_DRAWN = re.compile(r"rand|drop|noise|sampl|normal_|uniform_|bernoulli|multinomial", re.I)
_LIBRARIES = frozenset({"torch", "F", "nn", "math", "np"})
# Many stacks have the same lines
_assigned = lru_cache(4096)(assigned)
_arguments = lru_cache(4096)(arguments_of)


def calls_of_functions(facts: Facts) -> Iterator[tuple[Function, dict[int, str]]]:
    """Yield the lines that ran in the calls of functions, by where these were called.

    Those of which the text of a line is unknown are left out.
    """
    python = facts.analysis.recording.python
    calls: dict[tuple[int | None, int], dict[int, str]] = {}
    for each in () if python is None else python.positions:
        if each.function is not None and each.line:
            calls.setdefault((each.parent, each.function), {})[each.line] = each.code or ""
    for (_, number), codes in calls.items():
        if python is not None and all(codes.values()):
            yield (python.functions[number].file, python.functions[number].name), codes


def lines_around(facts: Facts) -> Mapping[Line, Mapping[int, str]]:
    """Return, for each line, what ran in the calls of a function that came to it."""
    return facts.analysis.derived.once("lines around lines", lambda: _lines_around(facts))


def _lines_around(facts: Facts) -> Mapping[Line, Mapping[int, str]]:
    around: dict[Line, dict[int, str]] = {}
    for function, codes in calls_of_functions(facts):
        for line in codes:
            around.setdefault((*function, line), {}).update(codes)
    return around


def unchanged_call(
    stack: Sequence[Frame], around: Mapping[Line, Mapping[int, str]]
) -> tuple[Frame, Frame] | None:
    """Return the line of a loop, and the first line below it that reads what no round assigns."""
    for loop, frame, given in _given_in_rounds(stack, around):
        unchanged = given if frame is loop else made_of_unchanged(_lines(around, frame), given)
        if _is_of(frame.code or "", unchanged):
            return loop, frame
    return None


def made_of_unchanged(codes: Mapping[int, str], given: set[str]) -> set[str]:
    """Return the names of a call that have one value in all rounds: given, or made of such."""
    unchanged = given - _changed(codes)
    # Which of two lines assigns a name may change from round to round
    times = Counter(name for code in codes.values() for name in _assigned(code))
    others = {name for name in times if times[name] > 1}
    for line in sorted(codes):
        # What is drawn at random is another value each time
        if _is_of(codes[line], unchanged) and not _DRAWN.search(codes[line]):
            unchanged |= _assigned(codes[line]) - others
        else:
            others |= _assigned(codes[line])
            unchanged -= others
    return unchanged


def _is_of(code: str, names: set[str]) -> bool:
    """Tell whether a line computes a value of these names alone."""
    text = _arguments(code)
    return text.is_value and bool(text.read) and text.read | text.roots <= names


def unchanged_move(
    stack: Sequence[Frame], around: Mapping[Line, Mapping[int, str]]
) -> Frame | None:
    """Return the line of a loop whose rounds all give the last line what that reads, and no less.

    The line may assign to the name that it reads.
    """
    for loop, frame, given in _given_in_rounds(stack, around):
        codes = _lines(around, frame)
        before = {line: code for line, code in codes.items() if line < frame.line}
        if any(map(_LOOPS.match, before.values())):
            before = dict(codes)
        names = _names(frame.code or "")
        if frame is stack[-1] and loop is not frame and names and names <= given - _changed(before):
            return loop
    return None


def _given_in_rounds(
    stack: Sequence[Frame], around: Mapping[Line, Mapping[int, str]]
) -> Iterator[tuple[Frame, Frame, set[str]]]:
    """Yield the line of a loop, one that it calls, and names that have one value in all rounds."""
    for at, loop in enumerate(stack):
        codes = _lines(around, loop)
        begin = min((line for line in codes if _LOOPS.match(codes[line])), default=loop.line)
        if begin >= loop.line:
            continue
        text = _arguments(loop.code or "")
        given = {each for each in text.given | text.roots if not KEPT.search(each)}
        given -= _changed({line: code for line, code in codes.items() if line >= begin})
        yield loop, loop, given
        given &= text.given
        for frame in stack[at + 1 :]:
            yield loop, frame, given
            given = given & _arguments(frame.code or "").given
            given -= _changed(_lines(around, frame))


def _lines(around: Mapping[Line, Mapping[int, str]], frame: Frame) -> Mapping[int, str]:
    return around.get((frame.file, frame.function, frame.line), {})


def _changed(codes: Mapping[int, str]) -> set[str]:
    return {name for code in codes.values() for name in _assigned(code)}


def _names(code: str) -> set[str]:
    """Return the names that a line reads; none where it is no whole statement."""
    try:
        nodes = list(ast.walk(ast.parse(code.strip())))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names = {each.id for each in nodes if isinstance(each, ast.Name) and _is_read(each)}
    return names - _LIBRARIES


def _is_read(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)
