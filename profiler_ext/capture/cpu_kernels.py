"""Owns events for Inductor's C++ kernels, which have none of their own.

The generated module's kernels are rebound after it is loaded, cold or warm, so neither
config nor generated code changes. A rebound kernel costs one Python frame while it is
bound; it records only while a profiler does.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from profiler_ext.isolation.asking import Ends, Ranges
from profiler_ext.isolation.guard import Guard
from profiler_ext.torch_compat import process

_PREFIX = "cpp_"
_Kernel = Callable[..., Any]


class CpuKernels:
    """The rebound kernels, and how to give them back.

    Attributes:
        is_on: they have events.
        lasts: without them, launches would be missing from what is aligned.
    """

    def __init__(self, guard: Guard) -> None:
        """Start with nothing rebound."""
        self.is_on = self.is_persistent = True
        self._guard = guard
        self._originals: list[tuple[dict[str, Any], str, _Kernel, _Kernel]] = []

    def rebind(self, module: ModuleType) -> None:
        """Give each C++ kernel of a generated module an event."""
        if not process.can_record():
            return
        names = [
            n for n, value in vars(module).items() if n.startswith(_PREFIX) and callable(value)
        ]
        for name in names:
            original = vars(module)[name]
            if not hasattr(original, "_profiler_ext_original"):
                wrapped = self._guard.wrap_ranges(original, "C++ kernel", _events(name), self)
                vars(wrapped)["_profiler_ext_original"] = original
                setattr(module, name, wrapped)
                self._originals.append((vars(module), name, original, wrapped))

    def restore(self) -> None:
        """Give the kernels back."""
        self.is_on = False
        for namespace, name, original, wrapped in self._originals:
            if namespace.get(name) is wrapped:
                namespace[name] = original
        self._originals.clear()


def _events(name: str) -> Ranges:
    """Give each call an event; a step has hundreds of them, so nothing observes it."""

    def opened(*_: Any) -> Ends | None:
        if not process.profiler_is_on():
            return None
        event = process.recording(name)
        event.__enter__()
        ends: Ends = event.__exit__
        return ends

    return Ranges(opened)
