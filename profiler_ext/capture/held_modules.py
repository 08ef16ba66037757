"""Owns the path of a module from the outermost one that holds it, as modules hold one another."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import cached_property

import torch

from profiler_ext.capture.models import Models
from profiler_ext.capture.traces.module_paths import held_under, user_class
from profiler_ext.records import ModuleFrame, PythonLines, Settings
from profiler_ext.torch_compat.modules import held_modules, held_parameters


class HeldModules:
    """The modules of the process, each with the one that holds it.

    They are looked for once, when the first path is asked for: a process that trains has a million
    objects, and that takes a tenth of a second.
    """

    def __init__(self, models: Models | None = None) -> None:
        """Have nobody asked yet.

        Args:
            models: has each path begin at its model; where there is but one, all begin there.
        """
        self._models = models

    @classmethod
    def of_models(cls) -> HeldModules:
        """Return one whose paths begin at the numbers of their models, until they are named."""
        return cls(Models())

    def frames_of(
        self, modules: Sequence[torch.nn.Module | None]
    ) -> tuple[ModuleFrame | None, ...]:
        """Return the path of each module from the outermost that holds it; none of ``None``.

        Args:
            modules: whose paths are asked for.
        """
        return tuple(None if module is None else self._frame(module) for module in modules)

    def _frame(self, module: torch.nn.Module) -> ModuleFrame:
        model, names = self._path_from_root(module)
        path = ".".join(filter(None, reversed(names)))
        full_path = path if self._models is None else self._models.begin(path, model)
        return ModuleFrame(full_path, user_class(module))

    def named(
        self, settings: Settings, lines: PythonLines | None
    ) -> tuple[Settings, PythonLines | None]:
        """Return what was recorded, with the names of the models whose paths were asked for.

        Args:
            settings: the settings of a recording.
            lines: the lines that ran in it.
        """
        return (settings, lines) if self._models is None else self._models.named(settings, lines)

    def models_of(self, modules: Sequence[torch.nn.Module | None]) -> tuple[int | None, ...]:
        """Return the identity of the outermost module that holds each, or which it is itself.

        Args:
            modules: whose models are asked for.
        """
        return tuple(None if each is None else id(self._path_from_root(each)[0]) for each in modules)

    def holder_of(self, module: torch.nn.Module) -> torch.nn.Module | None:
        """Return the module of the user's that holds one, ``None`` of an outermost."""
        name = ""
        while not name and id(module) in self._holders:
            module, name = self._holders[id(module)]
        return module if name else None

    def holders_of(self, tensor: torch.Tensor) -> Sequence[tuple[torch.nn.Module, str]]:
        """Return the modules that hold a parameter, each with the name that it has there."""
        return self._tensors.get(id(tensor), ())

    @cached_property
    def _tensors(self) -> dict[int, list[tuple[torch.nn.Module, str]]]:
        holders: dict[int, list[tuple[torch.nn.Module, str]]] = {}
        for holder in _modules_alive():
            for name, tensor in held_parameters(holder):
                holders.setdefault(id(tensor), []).append((holder, name))
        return holders

    @cached_property
    def _holders(self) -> dict[int, tuple[torch.nn.Module, str]]:
        """The module that holds each module, and the attribute that it holds it under.

        A wrapper that torch made (``torch.compile``, DDP) stands for the module within it and adds
        no name; it counts only where no module of the user's holds what it wraps.
        """
        holders: dict[int, tuple[torch.nn.Module, str]] = {}
        for holder in sorted(_modules_alive(), key=lambda each: held_under(each) is not None):
            attribute = held_under(holder)
            for name, module in held_modules(holder):
                holders.setdefault(id(module), (holder, "" if name == attribute else name))
        return holders

    def _path_from_root(self, module: torch.nn.Module) -> tuple[torch.nn.Module, list[str]]:
        """Return the outermost module that holds one, and the names on the way to it."""
        names: list[str] = []
        seen: set[int] = set()
        while id(module) in self._holders and id(module) not in seen:
            seen.add(id(module))
            module, name = self._holders[id(module)]
            names.append(name)
        return module, names


def _modules_alive() -> list[torch.nn.Module]:
    # What `process.is_module` asks, without a call for each of a million.
    return [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
