"""Owns how files and lines of two versions of a program are matched, by the texts recorded of them.

A recording holds the texts of lines that have time, or that ran, or that lead to such a line, and
not whole files; a file on disk may have changed since, so nothing is read from there. A wrong
match is worse than none: what is not sure is new, and gone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from profiler_ext.comparison.matching.lines_of_file import Text, match_in_file
from profiler_ext.comparison.matching.pairs import Pairs, clearly_best, equal
from profiler_ext.comparison.words import Match
from profiler_ext.records import Frame

Line = tuple[str, int]
Lines = Mapping[Line, Frame]
Function = tuple[str, int, str]
"""File, first line and name."""
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+?)_at_\d+$")
_ALIKE, _MARGIN = 0.5, 0.1
_NEARLY_ALL = 0.8
_TELLING = 3
"""So many lines must two files of different names have in common."""


def match_lines(base: Lines, head: Lines) -> Pairs[Line]:
    """Return which lines of two versions match.

    Args:
        base: what is known of each line of the base, by file and number.
        head: the same of the head.
    """
    old, new = _by_file(base), _by_file(head)
    whole = _all_by_file(base), _all_by_file(head)
    head_of: dict[Line, Line] = {}
    match: dict[Line, Match] = {}
    for mine, other in match_files(base, head).head_of.items():
        found = match_in_file(old.get(mine, ()), new.get(other, ()))
        if all(why is Match.SAME for _, why in found.values()):
            found |= _without_text(whole[0][mine], whole[1][other], is_known=bool(found))
        for number, (to, why) in found.items():
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
    old, new = (_by_name(side) for side in (base, head))
    found: dict[Function, Function] = {}
    for (file, name), mine in old.items():
        others = new.get((files.head_of.get(file or ""), name), [])
        # Where one side knows more functions of a name, it is not sure which is which.
        found |= dict(zip(mine, others, strict=True)) if len(mine) == len(others) else {}
    match = {mine: Match.SAME if mine == other else Match.MOVED for mine, other in found.items()}
    return Pairs(found, match)


def _by_name(functions: Iterable[Function]) -> dict[tuple[str | None, str], list[Function]]:
    found: dict[tuple[str | None, str], list[Function]] = {}
    for each in sorted(set(functions)):
        found.setdefault((each[0], _function(each[2])), []).append(each)
    return found


def match_files(base: Lines, head: Lines) -> Pairs[str]:
    """Return which files match: by their names, and what is left by the texts of their lines.

    Args:
        base: what is known of each line of the base, by file and number.
        head: the same of the head.
    """
    files = [dict.fromkeys(file for file, _ in side) for side in (base, head)]
    named = equal(*files)
    old, new = (_by_file(side) for side in (base, head))
    scores = {
        (mine, other): _likeness(old.get(mine, ()), new.get(other, ()))
        for mine in files[0]
        for other in files[1]
        if mine not in named and other not in named
    }
    renamed = clearly_best(scores, _ALIKE, _MARGIN)
    match = dict.fromkeys(named, Match.SAME) | dict.fromkeys(renamed, Match.RENAMED)
    return Pairs(named | renamed, match)


def _by_file(lines: Lines) -> dict[str, tuple[Text, ...]]:
    """Return the lines whose text is known, by file, in their order."""
    found: dict[str, list[Text]] = {}
    for (file, number), frame in sorted(lines.items(), key=lambda item: item[0]):
        if frame.code:
            text = Text(number, _function(frame.function), " ".join(frame.code.split()))
            found.setdefault(file, []).append(text)
    return {file: tuple(texts) for file, texts in found.items()}


def _all_by_file(lines: Lines) -> dict[str, dict[int, Frame]]:
    found: dict[str, dict[int, Frame]] = {}
    for (file, number), frame in lines.items():
        found.setdefault(file, {})[number] = frame
    return found


def _function(name: str) -> str:
    """Return a function's own name; Dynamo calls what goes on after a break otherwise."""
    resumed = _RESUMED.search(name)
    return resumed[1] if resumed else name


def _likeness(base: Sequence[Text], head: Sequence[Text]) -> float:
    """Return which part of the texts of the shorter file the other has; 0 for too few."""
    old, new = (Counter(text.code for text in side) for side in (base, head))
    common = (old & new).total()
    return common / min(old.total(), new.total()) if common >= _TELLING else 0.0


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
    if not is_known and len(common) < _NEARLY_ALL * min(len(base), len(head)):
        return {}
    return {
        number: (number, Match.NUMBER)
        for number in common
        if not (base[number].code and head[number].code)
    }
