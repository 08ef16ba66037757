"""Owns what is asked of a function besides an observation, and how arguments get their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Bind = Callable[[tuple[Any, ...], dict[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Sorting:
    """What is asked of the candidates that a function offers one by one.

    Attributes:
        goes_last: of a candidate, whether it is offered after the others.
        is_left_out: whether such candidates are not offered at all.
    """

    goes_last: Callable[[Any], bool]
    is_left_out: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Results:
    """What is told of each result of a function that is called very often.

    Attributes:
        told: is given the result.
    """

    told: Callable[[Any], object]


def binder_of(original: Callable[..., Any]) -> Bind:
    """Return what gives arguments their names; a kernel that has no signature has none."""
    try:
        signature = inspect.signature(original)
    except (TypeError, ValueError):
        return lambda args, kwargs: kwargs
    if any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
        return lambda args, kwargs: signature.bind(*args, **kwargs).arguments
    names = tuple(signature.parameters)
    return lambda args, kwargs: {**dict(zip(names, args, strict=False)), **kwargs}
