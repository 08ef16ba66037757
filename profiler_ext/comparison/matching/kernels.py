"""Owns how kernels of two sides are matched: by what they compute, as their names tell little.

Inductor numbers its kernels, so a name can be another kernel's in the next compile, and libraries
name theirs after the device. What a kernel computes is the set of ops, lines and phases that its
launches have a part in. Where that is not known, its name tells what was fused, but for the number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from profiler_ext.comparison.matching.pairs import Pairs, unambiguous_matches
from profiler_ext.comparison.words import Match
from profiler_ext.records import LaunchKind

Kernel = tuple[str | None, str | None]
"""Name and kind."""
Work = frozenset[int]
_NUMBER_SUFFIX = re.compile(r"_\d+$")
_NUMBERED = (LaunchKind.TRITON, LaunchKind.TRITON_TEMPLATE, LaunchKind.CPP)
_MIN_KERNEL_OVERLAP, _KERNEL_MARGIN, _SAME_NAME_BONUS = 0.5, 0.1, 0.15


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
    weighted = {
        pair: score + _SAME_NAME_BONUS * (pair[0][0] == pair[1][0]) for pair, score in scores.items()
    }
    result = unambiguous_matches(weighted, _MIN_KERNEL_OVERLAP, _KERNEL_MARGIN)
    match = {a: Match.SAME if a == b else Match.RENAMED for a, b in named.items()}
    match |= {mine: _match_kind(mine, other, scores[mine, other]) for mine, other in result.items()}
    return Pairs(named | result, match)


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
    old, new = _kernels_by_name(base), _kernels_by_name(head)
    result: dict[Kernel, Kernel] = {}
    for name in old.keys() & new.keys():
        if len(old[name]) == len(new[name]) == 1 or set(old[name]) == set(new[name]):
            result |= dict(zip(sorted(old[name], key=str), sorted(new[name], key=str), strict=True))
    return result


def _kernels_by_name(kernels: Iterable[Kernel]) -> dict[Kernel, list[Kernel]]:
    """Return kernels by their names without the number."""
    result: dict[Kernel, list[Kernel]] = {}
    for name, kind in kernels:
        result.setdefault((_NUMBER_SUFFIX.sub("", name or ""), kind), []).append((name, kind))
    return result


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


def _match_kind(base: Kernel, head: Kernel, score: float) -> Match:
    if score < 1:
        return Match.SIMILAR_WORK
    return Match.SAME if base == head else Match.SAME_WORK
