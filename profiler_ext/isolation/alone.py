"""Owns how a mechanism is run whose failure costs what it gives, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

R = TypeVar("T")


class Alone(Protocol):
    """Runs a mechanism; :meth:`profiler_ext.isolation.guard.Guard.alone` keeps what fails."""

    def __call__(self, lost: str, function: Callable[..., R], /, *args: Any) -> R | None:
        """Return what a function returns, ``None`` where it fails.

        Args:
            lost: what is lost where it fails, as its gap says it.
            function: the mechanism.
            *args: what it is given.
        """


def unguarded(lost: str, function: Callable[..., R], /, *args: Any) -> R | None:
    """Return what a function returns; what it raises is the caller's.

    Args:
        lost: what would be lost.
        function: the mechanism.
        *args: what it is given.
    """
    return function(*args)
