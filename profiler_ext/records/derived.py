"""Owns what is worked out of an analysis once, however many tables ask for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

_T = TypeVar("_T")


class Derived:
    """Values by their names; each is made when it is first asked for."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[Hashable, Any] = {}

    def once(self, name: Hashable, make: Callable[[], _T]) -> _T:
        """Return a value.

        Args:
            name: what it is called: the same name is the same value.
            make: makes it.
        """
        if name not in self._known:
            self._known[name] = make()
        known: _T = self._known[name]
        return known
