"""Owns how kernels of two sides are matched: by what they compute, as their names tell little.

Inductor numbers its kernels, so a name can be another kernel's in the next compile, and libraries
name theirs after the device. What a kernel computes is the set of ops, lines and phases that its
launches have a part in. Where that is not known, its name tells what was fused, but for the number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from profiler_ext.comparison.matching.pairs import Pairs, clearly_best
from profiler_ext.comparison.words import Match
from profiler_ext.records import LaunchKind

Kernel = tuple[str | None, str | None]
"""Name and kind."""
Work = frozenset[int]
_NUMBER = re.compile(r"_\d+$")
_NUMBERED = (LaunchKind.TRITON, LaunchKind.TRITON_TEMPLATE, LaunchKind.CPP)
_ALIKE, _MARGIN, _SAME_NAME = 0.5, 0.1, 0.15


def match_kernels(base: Mapping[Kernel, Work], head: Mapping[Kernel, Work]) -> Pairs[Kernel]:
    """Return which kernels match: those with a name of their own by that, others by their work.

    Args:
        base: what each kernel of the base computes.
        head: the same of the head, in the same numbers.
    """
    named = {kernel: kernel for kernel in base if kernel in head and kernel[1] not in _NUMBERED}
    named |= _by_name_alone(_unknown(base), _unknown(head))
    scores = _scores(base, head, named)
    # Of kernels with equal work the one that kept its name is the same.
    favoured = {
        pair: score + _SAME_NAME * (pair[0][0] == pair[1][0]) for pair, score in scores.items()
    }
    found = clearly_best(favoured, _ALIKE, _MARGIN)
    match = {a: Match.SAME if a == b else Match.RENAMED for a, b in named.items()}
    match |= {mine: _why(mine, other, scores[mine, other]) for mine, other in found.items()}
    return Pairs(named | found, match)


def _unknown(kernels: Mapping[Kernel, Work]) -> list[Kernel]:
    """Return the generated kernels of which nothing is known but their names."""
    return [kernel for kernel, work in kernels.items() if kernel[1] in _NUMBERED and not work]


def _by_name_alone(base: Iterable[Kernel], head: Iterable[Kernel]) -> dict[Kernel, Kernel]:
    """Match kernels by what their names say was fused, where numbers cannot mislead.

    Either each side has one of a name, or both have those of the same numbers.

    Args:
        base: those of the base.
        head: those of the head.
    """
    old, new = _by_name(base), _by_name(head)
    found: dict[Kernel, Kernel] = {}
    for name in old.keys() & new.keys():
        if len(old[name]) == len(new[name]) == 1 or set(old[name]) == set(new[name]):
            found |= dict(zip(sorted(old[name], key=str), sorted(new[name], key=str), strict=True))
    return found


def _by_name(kernels: Iterable[Kernel]) -> dict[Kernel, list[Kernel]]:
    """Return kernels by their names without the number."""
    found: dict[Kernel, list[Kernel]] = {}
    for name, kind in kernels:
        found.setdefault((_NUMBER.sub("", name or ""), kind), []).append((name, kind))
    return found


def _scores(
    base: Mapping[Kernel, Work], head: Mapping[Kernel, Work], named: Mapping[Kernel, Kernel]
) -> dict[tuple[Kernel, Kernel], float]:
    """Return how alike the work of two kernels is, where they have any in common."""
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


def _why(base: Kernel, head: Kernel, score: float) -> Match:
    if score < 1:
        return Match.SIMILAR_WORK
    return Match.SAME if base == head else Match.SAME_WORK
