"""Owns how ops and modules of two sides are matched.

A module of another name is the same where it has the same content, what is known of its lines and
ops, and the same numbers in its path: all layers of a model have one content.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping

from profiler_ext.comparison.matching.pairs import Pairs, unambiguous_matches, equal
from profiler_ext.comparison.words import Match

_MIN_MODULE_OVERLAP, _MODULE_MARGIN = 0.6, 0.1
_PATH_INDEX = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")
Content = frozenset[Hashable]


def match_ops(base: Iterable[str], head: Iterable[str]) -> Pairs[str]:
    """Return which ATen ops match: ``aten.add.Tensor`` of a graph is eager work's ``aten::add``.

    Args:
        base: ops of the base.
        head: ops of the head.
    """
    old, new = dict.fromkeys(base), dict.fromkeys(head)
    same = equal(old, new)
    left = [_by_op_name([op for op in side if op not in same]) for side in (old, new)]
    respelt = {left[0][name]: left[1][name] for name in left[0] if name in left[1]}
    match = dict.fromkeys(same, Match.SAME) | dict.fromkeys(respelt, Match.RESPELT)
    return Pairs(same | respelt, match)


def op_name(op: str) -> str:
    """Return the name of an op without namespace and overload, however it is spelt."""
    if "::" in op:
        return op.partition("::")[2].partition(".")[0]
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op


def match_modules(base: Mapping[str, Content], head: Mapping[str, Content]) -> Pairs[str]:
    """Return which modules match: by path, and what is left by content.

    Args:
        base: what each module of the base has time in, by path.
        head: the same of the head, in the same terms.
    """
    same = equal(base, head)
    scores = {
        (mine, other): len(base[mine] & head[other]) / len(base[mine] | head[other])
        for mine in base.keys() - same.keys()
        for other in head.keys() - same.keys()
        if _numbers(mine) == _numbers(other) and base[mine] & head[other]
    }
    renamed = unambiguous_matches(scores, _MIN_MODULE_OVERLAP, _MODULE_MARGIN)
    match = dict.fromkeys(same, Match.SAME) | dict.fromkeys(renamed, Match.RENAMED)
    return Pairs(same | renamed, match)


def match_layers(modules: Pairs[str], base: Iterable[str], head: Iterable[str]) -> Pairs[str]:
    """Return which modules match when all numbers in paths are one: ``blocks.*.mlp``.

    Args:
        modules: which modules match.
        base: modules of the base.
        head: modules of the head.
    """
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
    """Return the op of each name that one op only has."""
    result: dict[str, list[str]] = {}
    for op in ops:
        result.setdefault(op_name(op), []).append(op)
    return {name: own[0] for name, own in result.items() if len(own) == 1}


def _numbers(path: str) -> tuple[str, ...]:
    return tuple(_PATH_INDEX.findall(path))
