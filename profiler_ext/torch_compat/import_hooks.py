"""Calls back when torch's compiler has been imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from profiler_ext.isolation.guard import Guard

DYNAMO, INDUCTOR = "torch._dynamo", "torch._inductor.compile_fx"
"""They import all other modules with hooks: Dynamo's, and Inductor's."""
ARTIFACTS = "torch._inductor.output_code"
"""What was compiled ahead of time runs with this alone."""
PACKAGES = "torch.export.pt2_archive._package"
"""What AOTInductor packaged runs with this alone; Inductor imports it too."""
IMPORT_HOOK = "arrivals"
"""The hook that installs the others."""


def is_importing(module: str) -> bool:
    """Tell whether a module is being imported."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


class ImportWatcher(MetaPathFinder):
    """Finds modules as the other finders do, and calls back once a watched one is loaded."""

    def __init__(
        self, modules: Iterable[str], on_import: Callable[[str], object], guard: Guard
    ) -> None:
        self._pending = set(modules)
        self._on_import, self._guard = on_import, guard
        sys.meta_path.insert(0, self)

    def leave(self) -> None:
        """Stop watching."""
        self._pending.clear()
        with suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module with the finders after this one."""
        if name not in self._pending:
            return None
        return self._guard.run(IMPORT_HOOK, self._find_after, name, path, target)

    def _find_after(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec: ModuleSpec | None = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _NotifyingLoader(spec.loader, self._on_loaded)
                return spec
        return None

    def _on_loaded(self, name: str) -> None:
        if name in self._pending:
            self._pending.discard(name)
            self._guard.run(IMPORT_HOOK, self._on_import, name)


class _NotifyingLoader(Loader):
    """Loads a module with its own loader, and then calls back."""

    def __init__(self, loader: Any, on_import: Callable[[str], object]) -> None:
        self._loader, self._on_import = loader, on_import

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module with its own loader."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run the module with its own loader, and call back."""
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        if spec is not None:
            self._on_import(spec.name)
