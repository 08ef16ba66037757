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

from profiler_ext.comparison.matching.pairs import clearly_best, equal
from profiler_ext.comparison.words import Match

_LONG = 24
"""A text of so many characters is of one place, if it is known in one."""
_LONG_ALONE = 40
"""The same of one that moved out of its order, and by itself."""
_ALIKE, _ALIKE_IN_PLACE, _MARGIN = 0.8, 0.65, 0.1
_END = -1
"""Stands for the begin and the end of a file."""
Found = dict[int, int]


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


def match_whole(base: Sequence[str], head: Sequence[str]) -> dict[int, tuple[int, Match]]:
    """Match the lines of two versions of a text that is known from its first line to its last.

    Args:
        base: its lines.
        head: the other version's.

    Returns:
        As of :func:`match_in_file`; no line that is blank.
    """
    old, new = (_texts(side) for side in (base, head))
    if [text.code for text in new] < [text.code for text in old]:
        return {to: (number, why) for number, (to, why) in match_whole(head, base).items()}
    matcher = SequenceMatcher(None, [t.code for t in old], [t.code for t in new], autojunk=False)
    found = {
        old[block.a + at].number: new[block.b + at].number
        for block in matcher.get_matching_blocks()
        for at in range(block.size)
    }
    match = {a: (b, Match.SAME if a == b else Match.MOVED) for a, b in found.items()}
    return match | {a: (b, Match.EDITED) for a, b in _edited(old, new, found).items()}


def _texts(lines: Sequence[str]) -> list[Text]:
    codes = (" ".join(line.split()) for line in lines)
    return [Text(number, "", code) for number, code in enumerate(codes, start=1) if code]


def _match_changed(base: Sequence[Text], head: Sequence[Text]) -> dict[int, tuple[int, Match]]:
    found = _in_order(base, head)
    found |= _beside(base, head, found)
    found |= _elsewhere(base, head, found, lambda text: text.key)
    found |= _elsewhere(base, head, found, lambda text: text.code)
    functions = ({text.number: text.function for text in side} for side in (base, head))
    old, new = functions
    same = {
        mine: (other, Match.SAME if (mine, old[mine]) == (other, new[other]) else Match.MOVED)
        for mine, other in found.items()
    }
    return same | {a: (b, Match.EDITED) for a, b in _edited(base, head, found).items()}


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


def _once(texts: Sequence[Text], by: Callable[[Text], Hashable]) -> dict[Hashable, Text]:
    often = Counter(by(text) for text in texts)
    return {by(text): text for text in texts if often[by(text)] == 1}


def _in_order(base: Sequence[Text], head: Sequence[Text]) -> Found:
    """Match texts that stand once on each side, and in one order."""
    old, new = (_once(side, lambda text: text.key) for side in (base, head))
    mine = [text for key, text in old.items() if key in new]
    others = [text for key, text in new.items() if key in old]
    keys = [[text.key for text in side] for side in (mine, others)]
    found: Found = {}
    for run in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_matching_blocks():
        for at in range(run.size):
            found[mine[run.a + at].number] = others[run.b + at].number
    long = sorted(t.number for t in mine if len(t.code) >= _LONG and t.number in found)
    told = set(long)
    return {n: to for n, to in found.items() if n in told or _moved_as_others(n, found, long)}


def _moved_as_others(number: int, found: Mapping[int, int], others: Sequence[int]) -> bool:
    """Tell whether a line moved by no more and no less than those around it."""
    shifts = [found[n] - n for n in _neighbours(number, others)]
    return bool(shifts) and min(shifts) <= found[number] - number <= max(shifts)


def _neighbours(number: int, others: Sequence[int]) -> Sequence[int]:
    """Return the next lower and the next higher of others, which are in order."""
    low, high = bisect_left(others, number), bisect_right(others, number)
    return (*others[max(low - 1, 0) : low], *others[high : high + 1])


def _beside(base: Sequence[Text], head: Sequence[Text], found: Found) -> Found:
    """Match texts that stand in several places: those that moved just as a neighbour did."""
    taken, known = set(found.values()), sorted(found)
    left = {text.number: text for text in head if text.number not in taken}
    beside: Found = {}
    for text in base:
        for neighbour in _neighbours(text.number, known) if text.number not in found else ():
            other = left.get(text.number + found[neighbour] - neighbour)
            if other is not None and other.key == text.key:
                beside[text.number] = other.number
    return beside if len(set(beside.values())) == len(beside) else {}


def _elsewhere(
    base: Sequence[Text], head: Sequence[Text], found: Found, by: Callable[[Text], Hashable]
) -> Found:
    """Match what is left, out of order, as where a function moved or has another name.

    A text must be long, or move together with another.
    """
    taken = set(found.values())
    old = _once([text for text in base if text.number not in found], by)
    new = _once([text for text in head if text.number not in taken], by)
    moved = {text: new[key].number for key, text in old.items() if key in new}
    shifts = Counter(other - text.number for text, other in moved.items())
    return {
        text.number: other
        for text, other in moved.items()
        if len(text.code) >= _LONG_ALONE or shifts[other - text.number] > 1
    }


def _edited(base: Sequence[Text], head: Sequence[Text], found: Found) -> Found:
    """Match lines between the same neighbours, in one function, that read alike."""
    old = _gaps(base, {number: number for number in found})
    new = _gaps(head, {other: number for number, other in found.items()})
    edited: Found = {}
    for gap, mine in old.items():
        scores = {
            (a.number, b.number): likeness
            for a in mine
            for b in new.get(gap, ())
            if a.function == b.function
            and a.code != b.code  # of an equal text it was not sure that it is the same one
            and (likeness := SequenceMatcher(None, a.code, b.code, autojunk=False).ratio())
            >= (_ALIKE_IN_PLACE if _is_in_place(a, b, gap, found) else _ALIKE)
        }
        pairs = clearly_best(scores, 0.0, _MARGIN)
        if list(pairs.values()) == sorted(pairs.values()):
            edited |= pairs
    return edited


def _is_in_place(old: Text, new: Text, gap: tuple[int, int], found: Found) -> bool:
    """Tell whether a line stands as far from a matched neighbour as the other one does."""
    return any(end in found and new.number - found[end] == old.number - end for end in gap)


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
