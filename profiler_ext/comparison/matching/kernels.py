"""Owns how kernels of two sides are matched: by what they compute, as their names tell little.

Inductor numbers its kernels, so a name can be another kernel's in the next compile, and libraries
name theirs after the device. What a kernel computes is the set of ops, lines and phases that its
launches have a part in.
"""

from __future__ import annotations

from collections.abc import Mapping

from profiler_ext.comparison.matching.pairs import Pairs, clearly_best
from profiler_ext.comparison.words import Match
from profiler_ext.records import LaunchKind

Kernel = tuple[str | None, str | None]
"""Name and kind."""
Work = frozenset[int]
_NUMBERED = (LaunchKind.TRITON, LaunchKind.TRITON_TEMPLATE, LaunchKind.CPP)
_ALIKE, _MARGIN, _SAME_NAME = 0.5, 0.1, 0.15


def match_kernels(base: Mapping[Kernel, Work], head: Mapping[Kernel, Work]) -> Pairs[Kernel]:
    """Return which kernels match: those with a name of their own by that, others by their work.

    Args:
        base: what each kernel of the base computes.
        head: the same of the head, in the same numbers.
    """
    named = {
        kernel: kernel
        for kernel in base
        if kernel in head and (kernel[1] not in _NUMBERED or not (base[kernel] or head[kernel]))
    }
    scores = _scores(base, head, named)
    # Of kernels with equal work the one that kept its name is the same.
    favoured = {
        pair: score + _SAME_NAME * (pair[0][0] == pair[1][0]) for pair, score in scores.items()
    }
    found = clearly_best(favoured, _ALIKE, _MARGIN)
    match = dict.fromkeys(named, Match.SAME)
    match |= {mine: _why(mine, other, scores[mine, other]) for mine, other in found.items()}
    return Pairs(named | found, match)


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
