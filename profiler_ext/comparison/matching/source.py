"""Owns how files and lines of two versions of a program are matched, by the texts recorded of them.

A recording holds the texts of lines that have time, or that ran, or that lead to such a line, and
not whole files; a file on disk may have changed since, so nothing is read from there. A wrong
match is worse than none: what is not sure is new, and gone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from profiler_ext.comparison.matching.lines_of_file import Text, match_in_file, match_full_text
from profiler_ext.comparison.matching.pairs import Pairs, unambiguous_matches, equal
from profiler_ext.comparison.words import Match
from profiler_ext.records import Frame, is_cell

Line = tuple[str, int]
Lines = Mapping[Line, Frame]
Cells = tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]]
"""The text of the cells of a notebook that have time, of the base and of the head."""
_NO_CELLS: Cells = ({}, {})
Function = tuple[str, int, str]
"""File, first line and name."""
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+?)_at_\d+$")
_MIN_FILE_SIMILARITY, _FILE_MARGIN = 0.5, 0.1
_MIN_COMMON_PART = 0.8
_MIN_COMMON_LINES = 3
"""So many lines must two files of different names have in common."""
_SAME_NUMBER = 0.2
"""So much more alike are cells of one number: of two with one text it is the one."""


def match_lines(base: Lines, head: Lines, cells: Cells = _NO_CELLS) -> Pairs[Line]:
    """Return which lines of two versions match.

    Args:
        base: what is known of each line of the base, by file and number.
        head: the same of the head.
        cells: their cells.
    """
    old, new = _by_file(base), _by_file(head)
    full = _all_by_file(base), _all_by_file(head)
    head_of: dict[Line, Line] = {}
    match: dict[Line, Match] = {}
    for mine, other in match_files(base, head, cells).head_of.items():
        texts = cells[0].get(mine), cells[1].get(other)
        if texts[0] and texts[1]:
            every = match_full_text(texts[0], texts[1]).items()
            result = {n: to for n, to in every if (mine, n) in base and (other, to[0]) in head}
        else:
            result = match_in_file(old.get(mine, ()), new.get(other, ()))
        if all(why is Match.SAME for _, why in result.values()):
            result |= _without_text(full[0][mine], full[1][other], is_known=bool(result))
        for number, (to, why) in result.items():
            head_of[mine, number], match[mine, number] = (other, to), why
    return Pairs(head_of, match)


def match_functions(
    base: Iterable[Function], head: Iterable[Function], files: Pairs[str]
) -> Pairs[Function]:
    """Return which functions match: those of one name in files that match, in their order.

    Args:
        base: functions of the base, with file and first line.
        head: the same of the head.
        files: what files match.
    """
    old, new = (_functions_by_name(side) for side in (base, head))
    result: dict[Function, Function] = {}
    for (file, name), mine in old.items():
        others = new.get((files.head_of.get(file or ""), name), [])
        # Where one side knows more functions of a name, it is not sure which is which.
        result |= dict(zip(mine, others, strict=True)) if len(mine) == len(others) else {}
    match = {mine: Match.SAME if mine == other else Match.MOVED for mine, other in result.items()}
    return Pairs(result, match)


def _functions_by_name(functions: Iterable[Function]) -> dict[tuple[str | None, str], list[Function]]:
    result: dict[tuple[str | None, str], list[Function]] = {}
    for each in sorted(set(functions)):
        result.setdefault((each[0], _function(each[2])), []).append(each)
    return result


def match_files(base: Lines, head: Lines, cells: Cells = _NO_CELLS) -> Pairs[str]:
    """Return which files match: by their names, and what is left by the texts of their lines.

    A notebook's cell has another number when it is run again: cells match by their texts first.

    Args:
        base: what is known of each line of the base, by file and number.
        head: the same of the head.
        cells: their cells.
    """
    files = [
        dict.fromkeys(file for file, _ in side if not is_cell(file) or file in cells[at])
        for at, side in enumerate((base, head))
    ]
    named = {file: file for file in equal(*files) if not is_cell(file)}
    old, new = (_codes(side, text) for side, text in zip((base, head), cells, strict=True))
    scores = {
        (mine, other): _file_similarity(mine, other, old[mine], new[other])
        for mine in files[0]
        for other in files[1]
        if mine not in named and other not in named
    }
    renamed = unambiguous_matches(scores, _MIN_FILE_SIMILARITY, _FILE_MARGIN)
    result = named | renamed
    match = {a: Match.SAME if a == b else Match.RENAMED for a, b in result.items()}
    return Pairs(result, match)


def _by_file(lines: Lines) -> dict[str, tuple[Text, ...]]:
    """Return the lines whose text is known, by file, in their order."""
    result: dict[str, list[Text]] = {}
    for (file, number), frame in sorted(lines.items(), key=lambda item: item[0]):
        if frame.code:
            text = Text(number, _function(frame.function), " ".join(frame.code.split()))
            result.setdefault(file, []).append(text)
    return {file: tuple(texts) for file, texts in result.items()}


def _all_by_file(lines: Lines) -> dict[str, dict[int, Frame]]:
    result: dict[str, dict[int, Frame]] = {}
    for (file, number), frame in lines.items():
        result.setdefault(file, {})[number] = frame
    return result


def _function(name: str) -> str:
    """Return a function's own name; Dynamo calls what goes on after a break otherwise."""
    resumed = _RESUMED.search(name)
    return resumed[1] if resumed else name


def _file_similarity(mine: str, other: str, base: Counter[str], head: Counter[str]) -> float:
    """Return how alike two files are that do not match by their names."""
    if mine != other:
        is_again = is_cell(mine) and is_cell(other) and base == head
        return _similarity(base, head, 1 if is_again else _MIN_COMMON_LINES)
    return (_similarity(base, head, 1) if base and head else 1.0) + _SAME_NUMBER


def _similarity(base: Counter[str], head: Counter[str], least: int) -> float:
    """Return which part of the texts of the shorter file the other has; 0 for too few."""
    common = (base & head).total()
    return common / min(base.total(), head.total()) if common >= least else 0.0


def _codes(lines: Lines, cells: Mapping[str, Sequence[str]]) -> dict[str, Counter[str]]:
    """Return the texts of each file, as far as they are known; of a cell that is all of them."""
    result = {file: Counter[str]() for file, _ in lines}
    result |= {file: Counter(text.code for text in texts) for file, texts in _by_file(lines).items()}
    full = ((file, [" ".join(line.split()) for line in cells.get(file, ())]) for file in result)
    return result | {file: Counter(filter(None, texts)) for file, texts in full if texts}


def _without_text(
    base: Mapping[int, Frame], head: Mapping[int, Frame], *, is_known: bool
) -> dict[int, tuple[int, Match]]:
    """Match by number the lines whose text one side lacks, in a file that did not change.

    Where no line has a text that says so, nearly all lines must be of one number and function.
    """
    common = [
        number
        for number in base.keys() & head.keys()
        if _function(base[number].function) == _function(head[number].function)
    ]
    if not is_known and len(common) < _MIN_COMMON_PART * min(len(base), len(head)):
        return {}
    return {
        number: (number, Match.NUMBER)
        for number in common
        if not (base[number].code and head[number].code)
    }
