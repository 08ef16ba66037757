"""Matches ATen ops, modules and kernels of two sides.

A module of another name is the same if its content (its lines and ops) and the numbers in its path
are: all layers of a model have one content.

Inductor numbers its kernels, so a name may be another kernel's in the next compile, and libraries
name theirs after the device. Kernels match by the ops, lines and phases of their launches; where
those are not known, by what the name says was fused, without the number.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from profiler_ext.comparison.records import Match
from profiler_ext.records.vocabulary import LaunchKind

Name = TypeVar("Name", bound=Hashable)
Content = frozenset[Hashable]
Kernel = tuple[str | None, str | None]  # name and kind
Work = frozenset[int]
_MIN_MODULE_OVERLAP, _MODULE_MARGIN = 0.6, 0.1
_PATH_INDEX = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")
_NUMBER_SUFFIX = re.compile(r"_\d+$")
_NUMBERED = (LaunchKind.TRITON, LaunchKind.TRITON_TEMPLATE, LaunchKind.CPP)
_MIN_KERNEL_OVERLAP, _KERNEL_MARGIN, _SAME_NAME_BONUS = 0.5, 0.1, 0.15


@dataclass(frozen=True, slots=True)
class Pairs(Generic[Name]):
    """Names of both sides, matched one to one."""

    head_of: Mapping[Name, Name]  # name of the base to name of the head
    match: Mapping[Name, Match]  # by what, for the same names of the base

    def numbers(self, base: Iterable[Name], head: Iterable[Name]) -> Numbers[Name]:
        """Return numbers for the names; matching names have one number."""
        of_head = {name: number for number, name in enumerate(dict.fromkeys(head))}
        of_base: dict[Name, int] = {}
        after = len(of_head)
        for name in dict.fromkeys(base):
            number = of_head.get(self.head_of[name]) if name in self.head_of else None
            of_base[name] = after + len(of_base) if number is None else number
        return Numbers(of_base, of_head)


@dataclass(frozen=True, slots=True)
class Numbers(Generic[Name]):
    """The number of each name; only matching names share one."""

    base: Mapping[Name, int]
    head: Mapping[Name, int]


def equal(base: Iterable[Name], head: Iterable[Name]) -> dict[Name, Name]:
    """Return the names that both sides have, each with itself."""
    common = set(head)
    return {name: name for name in dict.fromkeys(base) if name in common}


def unambiguous_matches(
    scores: Mapping[tuple[Name, Name], float], least: float, margin: float
) -> dict[Name, Name]:
    """Return the pairs that are each other's best score (0 to 1) by a margin."""
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


def match_ops(base: Iterable[str], head: Iterable[str]) -> Pairs[str]:
    """Match ATen ops: a graph's ``aten.add.Tensor`` is the eager ``aten::add``."""
    old, new = dict.fromkeys(base), dict.fromkeys(head)
    same = equal(old, new)
    left = [_by_op_name([op for op in side if op not in same]) for side in (old, new)]
    respelt = {left[0][name]: left[1][name] for name in left[0] if name in left[1]}
    match = dict.fromkeys(same, Match.SAME) | dict.fromkeys(respelt, Match.RESPELLED)
    return Pairs(same | respelt, match)


def op_name(op: str) -> str:
    """Return an op's name without namespace and overload."""
    if "::" in op:
        return op.partition("::")[2].partition(".")[0]
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op


def match_modules(base: Mapping[str, Content], head: Mapping[str, Content]) -> Pairs[str]:
    """Match modules by path, the rest by content."""
    same = equal(base, head)
    scores = {
        (mine, other): len(base[mine] & head[other]) / len(base[mine] | head[other])
        for mine in base.keys() - same.keys()
        for other in head.keys() - same.keys()
        if _PATH_INDEX.findall(mine) == _PATH_INDEX.findall(other) and base[mine] & head[other]
    }
    renamed = unambiguous_matches(scores, _MIN_MODULE_OVERLAP, _MODULE_MARGIN)
    match = dict.fromkeys(same, Match.SAME) | dict.fromkeys(renamed, Match.RENAMED)
    return Pairs(same | renamed, match)


def match_layers(modules: Pairs[str], base: Iterable[str], head: Iterable[str]) -> Pairs[str]:
    """Match modules whose paths have their numbers replaced: ``blocks.*.mlp``."""
    same = equal(map(without_indices, base), map(without_indices, head))
    renamed: dict[str, set[str]] = {}
    back: dict[str, set[str]] = {}
    for mine, other in modules.head_of.items():
        pair = without_indices(mine), without_indices(other)
        renamed.setdefault(pair[0], set()).add(pair[1])
        back.setdefault(pair[1], set()).add(pair[0])
    taken = set(same)
    result = {
        mine: other
        for mine, (other, *more) in renamed.items()
        if not more and len(back[other]) == 1 and mine not in taken and other not in taken
    }
    match = dict.fromkeys(same, Match.SAME) | dict.fromkeys(result, Match.RENAMED)
    return Pairs(same | result, match)


def without_indices(path: str) -> str:
    """Return a module's path with its numbers as ``*``."""
    return _PATH_INDEX.sub("*", path)


def _by_op_name(ops: Iterable[str]) -> dict[str, str]:
    """Return the op of each name that is of one op only."""
    result: dict[str, list[str]] = {}
    for op in ops:
        result.setdefault(op_name(op), []).append(op)
    return {name: own[0] for name, own in result.items() if len(own) == 1}


def match_kernels(base: Mapping[Kernel, Work], head: Mapping[Kernel, Work]) -> Pairs[Kernel]:
    """Match library kernels by name, generated ones by their work."""
    named = {kernel: kernel for kernel in base if kernel in head and kernel[1] not in _NUMBERED}
    named |= _by_name_alone(
        *([k for k, work in s.items() if k[1] in _NUMBERED and not work] for s in (base, head))
    )
    scores = _scores(base, head, named)
    # Among kernels with equal work, the one that kept its name matches.
    weighted = {
        pair: score + _SAME_NAME_BONUS * (pair[0][0] == pair[1][0])
        for pair, score in scores.items()
    }
    result = unambiguous_matches(weighted, _MIN_KERNEL_OVERLAP, _KERNEL_MARGIN)
    match = {a: Match.SAME if a == b else Match.RENAMED for a, b in named.items()}
    for mine, other in result.items():
        same = Match.SAME if mine == other else Match.SAME_WORK
        match[mine] = Match.SIMILAR_WORK if scores[mine, other] < 1 else same
    return Pairs(named | result, match)


def _by_name_alone(base: Iterable[Kernel], head: Iterable[Kernel]) -> dict[Kernel, Kernel]:
    """Match generated kernels of unknown work by what their names say was fused.

    Either each side has one of a name, or both have those of the same numbers.
    """
    old, new = _kernels_by_name(base), _kernels_by_name(head)
    result: dict[Kernel, Kernel] = {}
    for name in old.keys() & new.keys():
        if len(old[name]) == len(new[name]) == 1 or set(old[name]) == set(new[name]):
            result |= dict(zip(sorted(old[name], key=str), sorted(new[name], key=str), strict=True))
    return result


def _kernels_by_name(kernels: Iterable[Kernel]) -> dict[Kernel, list[Kernel]]:
    result: dict[Kernel, list[Kernel]] = {}
    for name, kind in kernels:
        result.setdefault((_NUMBER_SUFFIX.sub("", name or ""), kind), []).append((name, kind))
    return result


def _scores(
    base: Mapping[Kernel, Work], head: Mapping[Kernel, Work], named: Mapping[Kernel, Kernel]
) -> dict[tuple[Kernel, Kernel], float]:
    """Return the overlap of two kernels' work, where there is any."""
    having: dict[int, list[Kernel]] = {}
    for kernel, work in head.items():
        for each in work if kernel not in named else ():
            having.setdefault(each, []).append(kernel)
    return {
        (mine, other): len(work & head[other]) / len(work | head[other])
        for mine, work in base.items()
        if mine not in named
        for other in dict.fromkeys(k for each in sorted(work) for k in having.get(each, ()))
    }
