"""Owns ``PROFILER_EXT=1``: capture is switched on as soon as a process has imported torch.

An installed copy is asked for it at the start of every Python process
(``profiler_ext_autostart.pth``); a process that never imports torch pays nothing.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, TypeVar

from profiler_ext import renaming

VARIABLE = "PROFILER_EXT"
T = TypeVar("T")


def is_asked_for() -> bool:
    """Tell whether the environment asks for early capture in this process."""
    worker = any("compile_worker" in word for word in sys.orig_argv)
    return os.environ.get(VARIABLE, "0") not in ("", "0") and not worker


def at_start() -> None:
    """Begin in a process that has imported nothing yet, and leave our name to the program."""
    start()
    for name in (__name__, renaming.__name__, renaming.NAME):
        sys.modules.pop(name, None)


def start() -> None:
    """Switch capture on now if torch is there, else when it has been imported."""
    if "torch" in sys.modules:
        _attempt(_enable)
    elif not any(isinstance(finder, _TorchFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TorchFinder())


class _TorchFinder(MetaPathFinder):
    """Finds torch as ever, and hears when it is there."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return _attempt(self._spec, path, target) if name == "torch" else None

    def _spec(self, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec("torch", path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenEnable(spec.loader)
        return spec


class _ThenEnable(Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _attempt(_enable)


def _attempt(function: Callable[..., T], *arguments: Any) -> T | None:
    """Do what ``import torch`` must not feel a failure of: a torch that does not fit, say.

    This is no :class:`profiler_ext.isolation.guard.Guard`: every process of Python comes here,
    and that one costs more to import.
    """
    try:
        return function(*arguments)
    except Exception as error:
        with suppress(Exception):  # where warnings are errors
            warnings.warn(f"profiler_ext is off in this process: {error}", stacklevel=2)
        return None


def _enable() -> None:
    name = renaming.load_under_other_name() if renaming.is_taken([]) else renaming.NAME
    import_module(f"{name}.profiling.switch").enable()
