"""``PROFILER_EXT=1``: enable capture as soon as the process has imported torch.

``profiler_ext_autostart.pth`` runs this at the start of every Python process; a process that never
imports torch pays nothing.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

from profiler_ext import renaming

T = TypeVar("T")
VARIABLE, SESSIONS = "PROFILER_EXT", "PROFILER_EXT_SESSIONS"


def on_torch_import(callback: Callable[[], object]) -> None:
    """Call a function now if torch is imported, else after its import; errors become warnings."""
    if "torch" in sys.modules:
        _attempt(callback)
    else:
        sys.meta_path.insert(0, _TorchFinder(callback))


def is_pending() -> bool:
    """Tell whether a callback waits for torch's import."""
    return any(isinstance(finder, _TorchFinder) for finder in sys.meta_path)


class _TorchFinder(MetaPathFinder):
    """Finds torch as usual and calls back after its import; looking up the spec imports nothing."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return _attempt(self._spec, path, target) if name == "torch" else None

    def _spec(self, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        spec = None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = spec or finder.find_spec("torch", path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _CallbackLoader(spec.loader, self._torch_loaded)
        return spec

    def _torch_loaded(self) -> None:
        callback, self._callback = self._callback, None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if callback is not None:
            callback()


class _CallbackLoader(Loader):
    """Loads torch by its own loader, then calls back."""

    def __init__(self, loader: Any, callback: Callable[[], object]) -> None:
        self._loader = loader
        self._callback = callback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _attempt(self._callback)


def _attempt(function: Callable[..., T], *arguments: Any) -> T | None:
    """Call what must not make ``import torch`` fail."""
    # Not a Guard (profiler_ext.isolation): every Python process comes here, and that one costs more
    # to import.
    try:
        return function(*arguments)
    except Exception as error:
        with suppress(Exception):  # where warnings are errors
            warnings.warn(f"profiler_ext is off in this process: {error}", stacklevel=2)
        return None


def is_requested() -> bool:
    """Tell whether the environment enables early capture in this process."""
    worker = any("compile_worker" in word for word in sys.orig_argv)
    return os.environ.get(VARIABLE, "0") not in ("", "0") and not worker


def at_start() -> None:
    """Start in a process that has imported nothing yet, and leave our name to the program."""
    start()
    for name in (__name__, renaming.__name__, renaming.NAME):
        sys.modules.pop(name, None)


def start() -> None:
    """Switch capture on now if torch is there, else when it has been imported."""
    if "torch" in sys.modules or not is_pending():
        on_torch_import(_enable)


def _enable() -> None:
    name = renaming.load_under_alias() if renaming.is_shadowed([]) else renaming.NAME
    # No recording was requested yet: whatever attaches CUPTI waits for one.
    import_module(f"{name}.profiling.switch").enable(learn=False)
    if folder := os.environ.get(SESSIONS):
        import_module(f"{name}.profiling.program_profilers").install(folder)
