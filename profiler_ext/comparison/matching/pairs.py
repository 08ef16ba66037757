"""Owns a matching: which name of the base is which of the head, and by what that is known."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from profiler_ext.comparison.words import Match

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Pairs(Generic[Name]):
    """Names of both sides, matched one to one.

    Attributes:
        head_of: the head's name for each name of the base that has one.
        match: by what, for the same names of the base.
    """

    head_of: Mapping[Name, Name]
    match: Mapping[Name, Match]

    def numbers(self, base: Iterable[Name], head: Iterable[Name]) -> Numbers[Name]:
        """Return numbers for the names; those which match have one number.

        Args:
            base: names of the base.
            head: names of the head.
        """
        of_head = {name: number for number, name in enumerate(dict.fromkeys(head))}
        of_base: dict[Name, int] = {}
        after = len(of_head)
        for name in dict.fromkeys(base):
            number = of_head.get(self.head_of[name]) if name in self.head_of else None
            of_base[name] = after + len(of_base) if number is None else number
        return Numbers(of_base, of_head)


@dataclass(frozen=True, slots=True)
class Numbers(Generic[Name]):
    """The number of each name; names that match have the same, and no others."""

    base: Mapping[Name, int]
    head: Mapping[Name, int]


def equal(base: Iterable[Name], head: Iterable[Name]) -> dict[Name, Name]:
    """Return the names that both sides have, each with itself.

    Args:
        base: names of the base.
        head: names of the head.
    """
    common = set(head)
    return {name: name for name in dict.fromkeys(base) if name in common}


def unambiguous_matches(
    scores: Mapping[tuple[Name, Name], float], least: float, margin: float
) -> dict[Name, Name]:
    """Return the pairs that are each other's best by a margin: what is not sure is left alone.

    Args:
        scores: how alike two names are, 0 to 1; a pair that is not named is not alike.
        least: how alike they must be.
        margin: how much more alike than either is to any other.
    """
    rivals: dict[tuple[int, Name], list[float]] = {}
    for (old, new), score in scores.items():
        rivals.setdefault((0, old), []).append(score)
        rivals.setdefault((1, new), []).append(score)
    for each in rivals.values():
        each.sort(reverse=True)

    def is_clear(side: int, name: Name, score: float) -> bool:
        best, *others = rivals[side, name]
        return score == best and not (others and others[0] > score - margin)

    return {
        old: new
        for (old, new), score in scores.items()
        if score >= least and is_clear(0, old, score) and is_clear(1, new, score)
    }
