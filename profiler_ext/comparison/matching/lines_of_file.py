"""Owns how the lines of two versions of one file are matched, by their texts and their order.

Both versions are known in part: a text that is known once on each side can stand elsewhere too,
where nothing ran. So a short text counts only where it moved as its neighbours did.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from profiler_ext.comparison.matching.pairs import unambiguous_matches, equal
from profiler_ext.comparison.words import Match

_MIN_ANCHOR_CHARS = 24
"""A text of so many characters is of one place, if it is known in one."""
_MIN_MOVED_CHARS = 40
"""The same of one that moved out of its order, and by itself."""
_MIN_RATIO, _MIN_RATIO_IN_PLACE, _RATIO_MARGIN = 0.8, 0.65, 0.1
_END = -1
"""Stands for the begin and the end of a file."""
LineMap = dict[int, int]


@dataclass(frozen=True, slots=True)
class Text:
    """A line that is known.

    Attributes:
        number: its number.
        function: the function that it is in.
        code: its text.
    """

    number: int
    function: str
    code: str

    @property
    def key(self) -> tuple[str, str]:
        """What tells texts apart."""
        return self.function, self.code


def match_in_file(base: Sequence[Text], head: Sequence[Text]) -> dict[int, tuple[int, Match]]:
    """Match the lines of two versions of a file.

    Args:
        base: its lines that the base knows, in order.
        head: its lines that the head knows, in order.

    Returns:
        The head's number for each of the base that has one, and by what that is known.
    """
    if _is_unchanged(base, head):
        numbers = equal((text.number for text in base), (text.number for text in head))
        return {number: (number, Match.SAME) for number in numbers}
    old, new = ([(text.number, text.key) for text in side] for side in (base, head))
    if new < old:  # difflib depends on which side is which, and the result must not
        other_way = _match_changed(head, base)
        return {to: (number, why) for number, (to, why) in other_way.items()}
    return _match_changed(base, head)


def match_full_text(base: Sequence[str], head: Sequence[str]) -> dict[int, tuple[int, Match]]:
    """Match the lines of two versions of a text that is known from its first line to its last.

    Args:
        base: its lines.
        head: the other version's.

    Returns:
        As of :func:`match_in_file`; no line that is blank.
    """
    old, new = (_texts(side) for side in (base, head))
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


def _texts(lines: Sequence[str]) -> list[Text]:
    codes = (" ".join(line.split()) for line in lines)
    return [Text(number, "", code) for number, code in enumerate(codes, start=1) if code]


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
    """Tell whether both sides know, as far as they tell, the same version.

    No number has two texts; and a text that is at one number here and at another there has a line
    after it that did not move, so that these are two places of one text.
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
    """Match texts that stand once on each side, and in one order."""
    old, new = (_unique_texts(side, lambda text: text.key) for side in (base, head))
    mine = [text for key, text in old.items() if key in new]
    others = [text for key, text in new.items() if key in old]
    keys = [[text.key for text in side] for side in (mine, others)]
    matched: LineMap = {}
    for run in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_matching_blocks():
        for at in range(run.size):
            matched[mine[run.a + at].number] = others[run.b + at].number
    long = sorted(t.number for t in mine if len(t.code) >= _MIN_ANCHOR_CHARS and t.number in matched)
    anchors = set(long)
    return {n: to for n, to in matched.items() if n in anchors or _moved_as_others(n, matched, long)}


def _moved_as_others(number: int, matched: Mapping[int, int], others: Sequence[int]) -> bool:
    """Tell whether a line moved by no more and no less than those around it."""
    shifts = [matched[n] - n for n in _neighbours(number, others)]
    return bool(shifts) and min(shifts) <= matched[number] - number <= max(shifts)


def _neighbours(number: int, others: Sequence[int]) -> Sequence[int]:
    """Return the next lower and the next higher of others, which are in order."""
    low, high = bisect_left(others, number), bisect_right(others, number)
    return (*others[max(low - 1, 0) : low], *others[high : high + 1])


def _adjacent(base: Sequence[Text], head: Sequence[Text], matched: LineMap) -> LineMap:
    """Match texts that stand in several places: those that moved just as a neighbour did."""
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
    """Match what is left, out of order, as where a function moved or has another name.

    A text must be long, or move together with another.
    """
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
    """Match lines between the same neighbours, in one function, that read alike."""
    old = _gaps(base, {number: number for number in matched})
    new = _gaps(head, {other: number for number, other in matched.items()})
    edited: LineMap = {}
    for gap, mine in old.items():
        scores = {
            (a.number, b.number): ratio
            for a in mine
            for b in new.get(gap, ())
            if a.function == b.function
            and a.code != b.code  # of an equal text it was not sure that it is the same one
            and (ratio := SequenceMatcher(None, a.code, b.code, autojunk=False).ratio())
            >= (_MIN_RATIO_IN_PLACE if _is_in_place(a, b, gap, matched) else _MIN_RATIO)
        }
        pairs = unambiguous_matches(scores, 0.0, _RATIO_MARGIN)
        if list(pairs.values()) == sorted(pairs.values()):
            edited |= pairs
    return edited


def _is_in_place(old: Text, new: Text, gap: tuple[int, int], matched: LineMap) -> bool:
    """Tell whether a line stands as far from a matched neighbour as the other one does."""
    return any(end in matched and new.number - matched[end] == old.number - end for end in gap)


def _gaps(texts: Sequence[Text], known: Mapping[int, int]) -> dict[tuple[int, int], list[Text]]:
    """Return what is left between each two matched neighbours, which have the base's numbers."""
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
