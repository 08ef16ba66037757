"""Owns which hooks are put in place when: those of Dynamo with it, all others with Inductor.

A function that one module binds from another is bound before it is wrapped, since what is waited
for imports all the others of its part. When Dynamo hands over its first graph, to whichever
backend, the others are put in place at the latest: AOTAutograd traces then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from profiler_ext.errors import TorchCapabilityError
from profiler_ext.isolation.guard import Guard
from profiler_ext.isolation.locks import Lock
from profiler_ext.torch_compat import points
from profiler_ext.torch_compat.arrivals import DYNAMO, INDUCTOR, ImportWatcher, is_importing
from profiler_ext.torch_compat.patches import Hook

_HOOKED_MODULES = tuple(dict.fromkeys((DYNAMO, INDUCTOR, *(point.module for point in points.ALL))))

Install = Callable[[], object]


def is_dynamo_hook(hook: Hook) -> bool:
    """Tell whether a hook is in a module that Dynamo imports with itself."""
    return hook[0].module.startswith(DYNAMO + ".")


class DeferredHooks:
    """The parts that are not in place yet."""

    def __init__(
        self,
        parts: Sequence[tuple[str, Install]],
        guard: Guard,
        on_incompatible: Callable[[TorchCapabilityError], None],
    ) -> None:
        """Put none in place yet.

        Args:
            parts: for each, in order, the module that is waited for, and what puts it in place.
            guard: what keeps failures from imports.
            unfit: is told why this torch does not fit, where an import shows that.
        """
        self._parts = list(parts)
        self._guard, self._on_incompatible = guard, on_incompatible
        self._imported: set[str] = set()
        self._watcher: ImportWatcher | None = None
        self._lock = Lock()

    @property
    def is_pending(self) -> bool:
        """Whether any is not in place."""
        return bool(self._parts)

    def install(self) -> None:
        """Put in place what can be now, and the rest when its module has been imported.

        Raises:
            TorchCapabilityError: This torch lacks a place that capture stands on.
        """
        self._install_imported()
        if self._parts:
            self._watcher = ImportWatcher(_HOOKED_MODULES, self._on_import, self._guard)

    def install_all(self) -> None:
        """Import what is waited for, so that all are in place.

        Of several threads that ask for it one imports: torch's compiler is in circles, and two that
        begin at once find it half there.

        Raises:
            TorchCapabilityError: This torch lacks a place that capture stands on.
        """
        self.stop_waiting()
        with self._lock.held():
            while self._parts:
                module, install = self._parts[0]
                import_module(module)
                del self._parts[:1]  # not before: Ctrl-C may end the import
                install()

    def install_before_trace(self) -> None:
        """Do the same amid a compile."""
        if self._parts:
            self._attempt(self.install_all)

    def stop_waiting(self) -> None:
        """Wait for nothing any more."""
        if self._watcher is not None:
            self._watcher.leave()
            self._watcher = None

    def _on_import(self, module: str) -> None:
        self._imported.add(module)
        self._attempt(self._install_imported)

    def _attempt(self, install: Install) -> None:
        try:
            install()
        except TorchCapabilityError as error:
            self._parts.clear()
            self._on_incompatible(error)

    def _install_imported(self) -> None:
        while self._parts and self._is_imported(self._parts[0][0]):
            _, install = self._parts.pop(0)
            install()
        if not self._parts:
            self.stop_waiting()

    def _is_imported(self, module: str) -> bool:
        """Tell whether a module is imported, and no place of a hook is being so."""
        others = (each for each in _HOOKED_MODULES if each not in self._imported)
        return module in sys.modules and not any(map(is_importing, others))
