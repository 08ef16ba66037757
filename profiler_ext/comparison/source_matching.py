"""Matches files, functions and lines of two versions of a program by their recorded text.

A recording holds the text of lines with time, of lines that ran and of their callers, and not whole
files; the file on disk may have changed since, so it is not read. A text that is known once on each
side may also stand elsewhere, where nothing ran: a short text counts only if it moved as its
neighbours did. A wrong match is worse than none: what is not sure is new, and gone.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from profiler_ext.comparison.matching import Pairs, equal, unambiguous_matches
from profiler_ext.comparison.records import Match
from profiler_ext.records import lineage, recording

LineMap = dict[int, int]
Line = tuple[str, int]
Lines = Mapping[Line, lineage.Frame]
Function = tuple[str, int, str]  # file, first line and name
# The text of the cells of a notebook that have time, of the base and of the head.
Cells = tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]]
_NO_CELLS: Cells = ({}, {})
_MIN_ANCHOR_CHARS = 24  # a longer text that is known in one place is of that place
_MIN_MOVED_CHARS = 40  # the same of a line that moved out of order, by itself
_MIN_RATIO, _MIN_RATIO_IN_PLACE, _RATIO_MARGIN = 0.8, 0.65, 0.1
_END = -1  # the begin and the end of a file
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+?)_at_\d+$")
_MIN_FILE_SIMILARITY, _FILE_MARGIN = 0.5, 0.1
_MIN_COMMON_PART = 0.8
_MIN_COMMON_LINES = 3  # lines that two files of different names must share
_SAME_NUMBER = 0.2  # of two cells with one text, prefers the one of the same number


@dataclass(frozen=True, slots=True)
class Text:
    """A line of known text."""

    number: int
    function: str
    code: str

    @property
    def key(self) -> tuple[str, str]:
        """What tells texts apart."""
        return self.function, self.code


def match_in_file(base: Sequence[Text], head: Sequence[Text]) -> dict[int, tuple[int, Match]]:
    """Return the head's number of each line of the base that has one, and how they match."""
    if _is_unchanged(base, head):
        numbers = equal((text.number for text in base), (text.number for text in head))
        return {number: (number, Match.SAME) for number in numbers}
    old, new = ([(text.number, text.key) for text in side] for side in (base, head))
    if new < old:  # difflib depends on which side is which, and the result must not
        other_way = _match_changed(head, base)
        return {to: (number, why) for number, (to, why) in other_way.items()}
    return _match_changed(base, head)


def match_full_text(base: Sequence[str], head: Sequence[str]) -> dict[int, tuple[int, Match]]:
    """Match the lines of two versions whose whole text is known."""
    codes = ([" ".join(line.split()) for line in side] for side in (base, head))
    old, new = ([Text(n, "", code) for n, code in enumerate(side, 1) if code] for side in codes)
    if [text.code for text in new] < [text.code for text in old]:
        return {to: (number, why) for number, (to, why) in match_full_text(head, base).items()}
    matcher = SequenceMatcher(None, [t.code for t in old], [t.code for t in new], autojunk=False)
    matched = {
        old[block.a + at].number: new[block.b + at].number
        for block in matcher.get_matching_blocks()
        for at in range(block.size)
    }
    match = {a: (b, Match.SAME if a == b else Match.MOVED) for a, b in matched.items()}
    return match | {a: (b, Match.EDITED) for a, b in _edited(old, new, matched).items()}


def _match_changed(base: Sequence[Text], head: Sequence[Text]) -> dict[int, tuple[int, Match]]:
    matched = _in_order(base, head)
    matched |= _adjacent(base, head, matched)
    matched |= _out_of_order(base, head, matched, lambda text: text.key)
    matched |= _out_of_order(base, head, matched, lambda text: text.code)
    functions = ({text.number: text.function for text in side} for side in (base, head))
    old, new = functions
    same = {
        mine: (other, Match.SAME if (mine, old[mine]) == (other, new[other]) else Match.MOVED)
        for mine, other in matched.items()
    }
    return same | {a: (b, Match.EDITED) for a, b in _edited(base, head, matched).items()}


def _is_unchanged(base: Sequence[Text], head: Sequence[Text]) -> bool:
    """Return whether both sides may be the same version.

    No number has two texts; and a text that stands at other numbers is two places of one text, as a
    later line did not move.
    """
    old, new = ({text.number: text.code for text in side} for side in (base, head))
    common = old.keys() & new.keys()
    if not common or any(old[number] != new[number] for number in common):
        return False
    after = {code: number for number, code in new.items() if number not in common}
    moved = (max(n, after[old[n]]) for n in old.keys() - common if old[n] in after)
    return all(number < max(common) for number in moved)


def _unique_texts(texts: Sequence[Text], by: Callable[[Text], Hashable]) -> dict[Hashable, Text]:
    often = Counter(by(text) for text in texts)
    return {by(text): text for text in texts if often[by(text)] == 1}


def _in_order(base: Sequence[Text], head: Sequence[Text]) -> LineMap:
    """Match texts that stand once on each side, in one order."""
    old, new = (_unique_texts(side, lambda text: text.key) for side in (base, head))
    mine = [text for key, text in old.items() if key in new]
    others = [text for key, text in new.items() if key in old]
    keys = [[text.key for text in side] for side in (mine, others)]
    matched: LineMap = {}
    for run in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_matching_blocks():
        for at in range(run.size):
            matched[mine[run.a + at].number] = others[run.b + at].number
    long = sorted(
        t.number for t in mine if len(t.code) >= _MIN_ANCHOR_CHARS and t.number in matched
    )
    anchors = set(long)
    kept: LineMap = {}
    for number, other in matched.items():
        shifts = [matched[n] - n for n in _neighbours(number, long)]
        moved_alike = bool(shifts) and min(shifts) <= other - number <= max(shifts)
        if number in anchors or moved_alike:
            kept[number] = other
    return kept


def _neighbours(number: int, others: Sequence[int]) -> Sequence[int]:
    """Return the next lower and the next higher of sorted numbers."""
    low, high = bisect_left(others, number), bisect_right(others, number)
    return (*others[max(low - 1, 0) : low], *others[high : high + 1])


def _adjacent(base: Sequence[Text], head: Sequence[Text], matched: LineMap) -> LineMap:
    """Match texts that stand in several places: those that moved as a neighbour did."""
    taken, known = set(matched.values()), sorted(matched)
    left = {text.number: text for text in head if text.number not in taken}
    adjacent: LineMap = {}
    for text in base:
        for neighbour in _neighbours(text.number, known) if text.number not in matched else ():
            other = left.get(text.number + matched[neighbour] - neighbour)
            if other is not None and other.key == text.key:
                adjacent[text.number] = other.number
    return adjacent if len(set(adjacent.values())) == len(adjacent) else {}


def _out_of_order(
    base: Sequence[Text], head: Sequence[Text], matched: LineMap, by: Callable[[Text], Hashable]
) -> LineMap:
    """Match the rest out of order, as where a function moved: long texts, or several together."""
    taken = set(matched.values())
    old = _unique_texts([text for text in base if text.number not in matched], by)
    new = _unique_texts([text for text in head if text.number not in taken], by)
    moved = {text: new[key].number for key, text in old.items() if key in new}
    shifts = Counter(other - text.number for text, other in moved.items())
    return {
        text.number: other
        for text, other in moved.items()
        if len(text.code) >= _MIN_MOVED_CHARS or shifts[other - text.number] > 1
    }


def _edited(base: Sequence[Text], head: Sequence[Text], matched: LineMap) -> LineMap:
    """Match similar lines between the same neighbours, in one function."""
    old = _gaps(base, {number: number for number in matched})
    new = _gaps(head, {other: number for number, other in matched.items()})
    edited: LineMap = {}
    for gap, mine in old.items():
        scores = {
            (a.number, b.number): ratio
            for a in mine
            for b in new.get(gap, ())
            if a.function == b.function
            and a.code != b.code  # equal texts were rejected above
            and (ratio := SequenceMatcher(None, a.code, b.code, autojunk=False).ratio())
            >= (_MIN_RATIO_IN_PLACE if _is_in_place(a, b, gap, matched) else _MIN_RATIO)
        }
        pairs = unambiguous_matches(scores, 0.0, _RATIO_MARGIN)
        if list(pairs.values()) == sorted(pairs.values()):
            edited |= pairs
    return edited


def _is_in_place(old: Text, new: Text, gap: tuple[int, int], matched: LineMap) -> bool:
    """Return whether two lines are equally far from a matched neighbour."""
    return any(end in matched and new.number - matched[end] == old.number - end for end in gap)


def _gaps(texts: Sequence[Text], known: Mapping[int, int]) -> dict[tuple[int, int], list[Text]]:
    """Return the unmatched lines between neighbours, which have the base's numbers."""
    gaps: dict[tuple[int, int], list[Text]] = {}
    before, waiting = _END, list[Text]()
    for text in texts:
        if text.number not in known:
            waiting.append(text)
            continue
        after = known[text.number]
        if waiting:
            gaps[before, after] = waiting
        before, waiting = after, []
    return gaps | ({(before, _END): waiting} if waiting else {})


def match_lines(base: Lines, head: Lines, cells: Cells = _NO_CELLS) -> Pairs[Line]:
    """Return which lines of two versions match."""
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
    """Match functions of one name in matching files, in their order."""
    old, new = (_functions_by_name(side) for side in (base, head))
    result: dict[Function, Function] = {}
    for (file, name), mine in old.items():
        others = new.get((files.head_of.get(file or ""), name), [])
        # With more functions of a name on one side it is unclear which is which.
        result |= dict(zip(mine, others, strict=True)) if len(mine) == len(others) else {}
    match = {mine: Match.SAME if mine == other else Match.MOVED for mine, other in result.items()}
    return Pairs(result, match)


def _functions_by_name(
    functions: Iterable[Function],
) -> dict[tuple[str | None, str], list[Function]]:
    result: dict[tuple[str | None, str], list[Function]] = {}
    for each in sorted(set(functions)):
        result.setdefault((each[0], _function(each[2])), []).append(each)
    return result


def match_files(base: Lines, head: Lines, cells: Cells = _NO_CELLS) -> Pairs[str]:
    """Match files by their names, the rest by the texts of their lines.

    A notebook's cell gets another number when it runs again: cells match by their texts first.
    """
    files = [
        dict.fromkeys(file for file, _ in side if not recording.is_cell(file) or file in cells[at])
        for at, side in enumerate((base, head))
    ]
    named = {file: file for file in equal(*files) if not recording.is_cell(file)}
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
    """Return the lines of known text by file, sorted."""
    result: dict[str, list[Text]] = {}
    for (file, number), frame in sorted(lines.items(), key=lambda item: item[0]):
        if frame.code:
            text = Text(number, _function(frame.function), " ".join(frame.code.split()))
            result.setdefault(file, []).append(text)
    return {file: tuple(texts) for file, texts in result.items()}


def _all_by_file(lines: Lines) -> dict[str, dict[int, lineage.Frame]]:
    result: dict[str, dict[int, lineage.Frame]] = {}
    for (file, number), frame in lines.items():
        result.setdefault(file, {})[number] = frame
    return result


def _function(name: str) -> str:
    """Return a function's own name; Dynamo renames what resumes after a graph break."""
    resumed = _RESUMED.search(name)
    return resumed[1] if resumed else name


def _file_similarity(mine: str, other: str, base: Counter[str], head: Counter[str]) -> float:
    """Return how alike two files of different names are, or two cells."""
    if mine != other:
        is_again = recording.is_cell(mine) and recording.is_cell(other) and base == head
        return _similarity(base, head, 1 if is_again else _MIN_COMMON_LINES)
    return (_similarity(base, head, 1) if base and head else 1.0) + _SAME_NUMBER


def _similarity(base: Counter[str], head: Counter[str], least: int) -> float:
    """Return the part of the shorter file's texts that the other has; 0 for too few."""
    common = (base & head).total()
    return common / min(base.total(), head.total()) if common >= least else 0.0


def _codes(lines: Lines, cells: Mapping[str, Sequence[str]]) -> dict[str, Counter[str]]:
    """Return the known texts of each file; of a cell, all of them."""
    result = {file: Counter[str]() for file, _ in lines}
    result |= {
        file: Counter(text.code for text in texts) for file, texts in _by_file(lines).items()
    }
    full = ((file, [" ".join(line.split()) for line in cells.get(file, ())]) for file in result)
    return result | {file: Counter(filter(None, texts)) for file, texts in full if texts}


def _without_text(
    base: Mapping[int, lineage.Frame], head: Mapping[int, lineage.Frame], *, is_known: bool
) -> dict[int, tuple[int, Match]]:
    """Match by number the lines without text on one side, in an unchanged file.

    If no text shows that the file is unchanged, most lines must be of one number and function.
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
