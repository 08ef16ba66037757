"""What a hook is: the observations that it makes of a call, and how one mechanism is run by itself.

``id`` is an event for audit hooks. The newest filelock, which torch's compiler imports, has one in
Python from 3.12 on: each call of ``id`` is then one of the hook, of half a microsecond, and of 7 to
9 us amid a step, when no cache has it any more. Nobody is asked for an object's own hash.

Source: ``Python/bltinmodule.c``, ``builtin_id``; ``filelock/_api.py``, ``_register_fork_hooks``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

identity = object.__hash__
"""A number that no other object has while this one lives, however its class compares or hashes."""


R = TypeVar("R")


class TryRun(Protocol):
    """Runs a mechanism; :meth:`profiler_ext.isolation.guard.Guard.alone` keeps what fails."""

    def __call__(self, lost: str, function: Callable[..., R], /, *args: Any) -> R | None:
        """Return what a function returns, ``None`` where it fails."""


def unguarded(lost: str, function: Callable[..., R], /, *args: Any) -> R | None:
    """Return what a function returns; what it raises is the caller's."""
    return function(*args)


T = TypeVar("T")
Bind = Callable[[tuple[Any, ...], dict[str, Any]], Mapping[str, Any]]


class PatchState(Protocol):
    """Tells whether a wrapper is in use.

    Attributes:
        is_on: it is.
        lasts: it is even when capture took itself out: it serves the profiler, not the capture.
    """

    is_on: bool
    is_persistent: bool


class Observed:
    """One call of what is observed.

    Attributes:
        result: what it returned, once it has.
        error: what it raised, once it has; an observation is closed then, at its ``yield``.
    """

    __slots__ = ("_args", "_bind", "_kwargs", "error", "result")

    def __init__(self, bind: Bind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._bind, self._args, self._kwargs = bind, args, kwargs
        self.result: Any = None
        self.error: BaseException | None = None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What it was given, by the names of its parameters; defaults are absent."""
        return self._bind(self._args, self._kwargs)

    def __getitem__(self, name: str) -> Any:
        """Return an argument by its name."""
        return self.arguments[name]


@dataclass(frozen=True, slots=True)
class Sorting:
    """What is asked of the candidates that a function offers one by one.

    Attributes:
        goes_last: of a candidate, whether it is offered after the others.
        is_left_out: whether such candidates are not offered at all.
    """

    goes_last: Callable[[Any], bool]
    is_left_out: Callable[[], bool]

    def in_order(self, candidates: Iterable[T], run: Callable[..., bool | None]) -> Iterator[T]:
        """Yield candidates in another order; they are read as they are asked for.

        Args:
            run: asks of one behind the guard; where that fails, it stays where it is.
        """
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
    """What is told of each result of a function that is called very often.

    Attributes:
        told: is given the result.
    """

    on_result: Callable[[Any], object]


Ends = Callable[[Any, Any, Any], object]
"""The end of a range, which takes what the ``__exit__`` of a context manager does."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """What lies around each call of a method.

    Attributes:
        opened: is given the object and what its method is passed; begins a range and returns its
            end, or nothing.
    """

    opened: Callable[..., Ends | None]


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
