"""Owns how a torch function is wrapped and given back: checked, kept, restored.

A patch never changes what the wrapped function is given or returns; the wrapper it
installs falls silent when the patch is removed, even where someone wrapped it again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from profiler_ext.errors import TorchCapabilityError
from profiler_ext.torch_compat.shapes import ShapeOf, live_shape, owner_of

Call = Callable[..., Any]
Around = Callable[[Call, tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Point:
    """A place in torch where a call can be observed.

    Attributes:
        module: module that holds the name.
        path: dotted name in it, ``CompiledFxGraph.post_compile``.
        parameters: names of the leading parameters that are relied on; none of what is no
            function, or is only asked to be there.
        serves: what is lost without it, for a person.
    """

    module: str
    path: str
    parameters: tuple[str, ...]
    serves: str

    def owner(self) -> Any:
        """Return the module or class that holds the attribute."""
        return owner_of(self.module, self.path)

    @property
    def name(self) -> str:
        """Name of the attribute."""
        return self.path.rpartition(".")[2]

    def problem(self, shape_of: ShapeOf = live_shape) -> str | None:
        """Return why this torch does not fit, or ``None``.

        Args:
            shape_of: tells the shapes of another torch, from a recorded table.
        """
        try:
            shape = shape_of(self.module, self.path)
        except LookupError:
            return f"{self.module}.{self.path} is not there"
        leading = (shape or ())[: len(self.parameters)]
        if leading == self.parameters:
            return None
        return f"{self.module}.{self.path} takes {leading}, expected {self.parameters}"


@dataclass(slots=True)
class Patch:
    """One installed wrapper around the function at a point."""

    point: Point
    around: Around
    _original: Any = None
    _wrapper: Any = None
    _active: bool = field(default=False)

    def install(self) -> None:
        """Put the wrapper in place.

        Raises:
            TorchCapabilityError: The function is not there or has another shape.
        """
        if problem := self.point.problem():
            raise TorchCapabilityError(problem)
        owner = self.point.owner()
        self._original = inspect.getattr_static(owner, self.point.name)
        self._wrapper = self._wrap(self._original)
        self._active = True
        setattr(owner, self.point.name, self._wrapper)

    def remove(self) -> None:
        """Give the original back; where someone wrapped the wrapper, only fall silent."""
        owner = self.point.owner()
        if inspect.getattr_static(owner, self.point.name) is self._wrapper:
            setattr(owner, self.point.name, self._original)
        self._active = False

    def _wrap(self, original: Any) -> Any:
        if isinstance(original, classmethod):
            return classmethod(self._wrap(original.__func__))
        if isinstance(original, staticmethod):
            return staticmethod(self._wrap(original.__func__))

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not self._active:
                return original(*args, **kwargs)
            return self.around(original, args, kwargs)

        return wrapper
