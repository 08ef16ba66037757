"""The kinds of hooks, as the guard sees them, and the protocol that runs one mechanism by itself.

Source: ``Python/bltinmodule.c``, ``builtin_id``; ``filelock/_api.py``, ``_register_fork_hooks``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

# ``id`` raises an audit event. The newest filelock, which torch's compiler imports, hooks it from
# Python 3.12 on: each call of ``id`` then costs half a microsecond, and 7 to 9 us in a step, with
# cold caches. Source: ``Python/bltinmodule.c``, ``builtin_id``; ``filelock/_api.py``,
# ``_register_fork_hooks``.
identity = object.__hash__
"""A number unique to a living object, however its class compares or hashes."""


R = TypeVar("R")


class TryRun(Protocol):
    """Runs a mechanism; :meth:`profiler_ext.isolation.guard.Guard.try_run` keeps its failure."""

    def __call__(self, lost: str, function: Callable[..., R], /, *args: Any) -> R | None:
        """Return what a function returns, ``None`` if it fails."""


def unguarded(lost: str, function: Callable[..., R], /, *args: Any) -> R | None:
    """Return what a function returns, or raise what it raises."""
    return function(*args)


T = TypeVar("T")
Bind = Callable[[tuple[Any, ...], dict[str, Any]], Mapping[str, Any]]


class PatchState(Protocol):
    """Says whether a wrapper is in use."""

    is_on: bool
    is_persistent: bool  # it is the profiler's, and on even if capture is disabled


class Observed:
    """One observed call."""

    __slots__ = ("_args", "_bind", "_kwargs", "error", "result")

    def __init__(self, bind: Bind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._bind, self._args, self._kwargs = bind, args, kwargs
        self.result: Any = None  # once it has returned
        self.error: BaseException | None = None  # then an observation is closed at its ``yield``

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments by parameter name, without defaults."""
        return self._bind(self._args, self._kwargs)

    def __getitem__(self, name: str) -> Any:
        """Return an argument by its name."""
        return self.arguments[name]


@dataclass(frozen=True, slots=True)
class Sorting:
    """How the candidates that a function yields are ordered."""

    goes_last: Callable[[Any], bool]
    is_left_out: Callable[[], bool]  # whether those that go last are dropped

    def in_order(self, candidates: Iterable[T], run: Callable[..., bool | None]) -> Iterator[T]:
        """Yield candidates in order, each read on demand; ``run`` guards the questions."""
        waiting: list[T] = []
        for candidate in candidates:
            if run(self.goes_last, candidate):
                waiting.append(candidate)
            else:
                yield candidate
        is_left_out = bool(waiting) and run(self.is_left_out)
        yield from () if is_left_out else waiting


@dataclass(frozen=True, slots=True)
class Results:
    """What observes each result of a function that is called very often."""

    on_result: Callable[[Any], object]


Ends = Callable[[Any, Any, Any], object]
"""The end of a range, called like ``__exit__``."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """A range around each call of a method."""

    opened: Callable[..., Ends | None]  # begins it, given the object and the arguments


def binder_of(original: Callable[..., Any]) -> Bind:
    """Return a function that names arguments; without a signature only keywords."""
    try:
        signature = inspect.signature(original)
    except (TypeError, ValueError):
        return lambda args, kwargs: kwargs
    if any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
        return lambda args, kwargs: signature.bind(*args, **kwargs).arguments
    names = tuple(signature.parameters)
    return lambda args, kwargs: {**dict(zip(names, args, strict=False)), **kwargs}
