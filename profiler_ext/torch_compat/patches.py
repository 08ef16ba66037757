"""The wrapping of a torch function: checked, installed, restored."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from profiler_ext.errors import TorchCapabilityError
from profiler_ext.isolation.guard import Guard, Observe
from profiler_ext.isolation.hook_protocols import Ranges, Results, Sorting
from profiler_ext.isolation.locks import Lock
from profiler_ext.torch_compat.shapes import ShapeOf, live_shape, owner_of


@dataclass(frozen=True, slots=True)
class Point:
    """A place in torch where a call can be observed."""

    module: str
    path: str  # ``CompiledFxGraph.post_compile``
    parameters: tuple[str, ...]  # that are relied on
    purpose: str  # what is lost without it
    sees: str = ""  # what passes there, for the map of the hooks
    is_vital: bool = True  # capture needs it

    def owner(self) -> Any:
        """Return the module or class that holds the attribute."""
        return owner_of(self.module, self.path)

    @property
    def name(self) -> str:
        """Name of the attribute."""
        return self.path.rpartition(".")[2]

    def problem(self, shape_of: ShapeOf = live_shape) -> str | None:
        """Return why this torch does not fit, if so."""
        try:
            shape = shape_of(self.module, self.path)
        except LookupError:
            return f"{self.module}.{self.path} is not there"
        missing = tuple(name for name in self.parameters if name not in (shape or ()))
        if not missing:
            return None
        return f"{self.module}.{self.path} takes {shape or ()}, but not {missing}"


@dataclass(slots=True)
class Patch:
    """A wrapper around the function at a point, which observes its calls.

    It becomes inactive when removed, even if someone wrapped it again. If that was another patch of
    this package (two threads record, and the first to begin ends first), the last to be removed
    restores the original.
    """

    point: Point
    observe: Observe | Ranges | Results | Sorting
    guard: Guard
    is_on: bool = False
    is_persistent: bool = False  # it is the profiler's: observes even if capture is disabled
    _owner: Any = None
    _original: Any = None
    _wrapper: Any = None

    def install(self) -> None:
        """Install the wrapper.

        Raises:
            TorchCapabilityError: The function is not there or has another shape.
        """
        if problem := self.point.problem():
            raise TorchCapabilityError(problem)
        self._owner = owner = self.point.owner()
        with _STANDING.native:
            self._original = inspect.getattr_static(owner, self.point.name)
            self._wrapper = self._wrap(self._original)
            self.is_on = True
            setattr(owner, self.point.name, self._wrapper)

    def remove(self) -> None:
        """Restore the original; under another wrapper, only become inactive.

        The original goes to the owner it came from: the program may have another there by now.
        """
        if self._wrapper is None:
            return
        with _STANDING.native:
            if inspect.getattr_static(self._owner, self.point.name, None) is self._wrapper:
                setattr(self._owner, self.point.name, _beneath(self._original))
            elif self.is_on:
                _COVERED.append((self._wrapper, self._original))
            self.is_on = False

    def _wrap(self, original: Any) -> Any:
        if isinstance(original, classmethod):
            return classmethod(self._wrap(original.__func__))
        if isinstance(original, staticmethod):
            return staticmethod(self._wrap(original.__func__))
        if isinstance(self.observe, Sorting):
            return self.guard.wrap_candidates(original, self.point.path, self.observe, self)
        if isinstance(self.observe, Ranges):
            return self.guard.wrap_ranges(original, self.point.path, self.observe, self)
        if isinstance(self.observe, Results):
            return self.guard.wrap_results(original, self.point.path, self.observe, self)
        return self.guard.wrap(original, self.point.path, self.observe, self)


_STANDING = Lock()
"""Held while a point is read and changed: threads begin and end at any time."""

_COVERED: list[tuple[Any, Any]] = []
"""Inactive wrappers under other wrappers, and what each wraps."""


def _beneath(original: Any) -> Any:
    """Return the function beneath all inactive wrappers."""
    while covered := next((pair for pair in _COVERED if pair[0] is original), None):
        _COVERED.remove(covered)
        original = covered[1]
    return original


Hook = tuple[Point, Observe | Ranges | Results | Sorting]
"""A place, and what observes it."""


@contextmanager
def installed(hooks: Iterable[Hook], guard: Guard, *, lasting: bool = False) -> Iterator[None]:
    """Install all hooks, or none.

    Raises:
        TorchCapabilityError: A function is not there or has another shape.
    """
    with ExitStack() as stack:
        for point, observe in hooks:
            patch = Patch(point, observe, guard, is_persistent=lasting)
            patch.install()
            stack.callback(patch.remove)
        yield
