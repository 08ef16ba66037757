"""The path of each module from the outermost module that holds it, under its model's name."""

from __future__ import annotations

import dataclasses
import re
import sys
import weakref
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import torch
import torch.fx

from profiler_ext.capture.traces.module_paths import (
    held_modules,
    held_parameters,
    held_under,
    join_path,
    user_class,
    without_wrappers,
)
from profiler_ext.records.lineage import ModuleFrame, PartModules
from profiler_ext.records.recording import PythonLines, Settings
from profiler_ext.torch_compat import process
from profiler_ext.torch_compat.living import living

_NUMBERED = re.compile(r"model (\d+)(?:\.|$)")


# A model is an outermost module. Its name is its class; among several of one class, the script's
# variable that holds it, or a number. Until the recording is complete a path begins at the number
# of its model, then at the name, or at the model itself if there is only one.
class Models:
    """The models of a recording, numbered in the order in which they were found."""

    def __init__(self) -> None:
        self._models: list[torch.nn.Module] = []

    def begin(self, path: str, model: torch.nn.Module) -> str:
        """Return a path that begins at the number of its model."""
        known = [at for at, each in enumerate(self._models) if each is model]
        if not known:
            self._models.append(model)
        return join_path(f"model {known[0] if known else len(self._models) - 1}", path)

    def named(
        self, settings: Settings, lines: PythonLines | None
    ) -> tuple[Settings, PythonLines | None]:
        """Return what was recorded, with paths that begin at the models' names."""
        names = _names(self._models)

        def named(frame: ModuleFrame | None) -> ModuleFrame | None:
            if frame is None:
                return None
            path = frame.path
            match = _NUMBERED.match(path)
            named = path if match is None else join_path(names[int(match[1])], path[match.end() :])
            return dataclasses.replace(frame, path=named)

        def of_part(part: PartModules) -> PartModules:
            modules = tuple((path, named(frame)) for path, frame in part.modules)
            return PartModules(modules, named(part.own))

        called = ((number, named(frame)) for number, frame in settings.called_modules)
        settings = dataclasses.replace(
            settings,
            called_modules=tuple((n, frame) for n, frame in called if frame is not None),
            models=tuple(filter(None, names)),
            called_parts=tuple((n, of_part(part)) for n, part in settings.called_parts),
        )
        if lines is not None:
            lines = dataclasses.replace(lines, modules=tuple(map(named, lines.modules)))
        return settings, lines


def _names(models: list[torch.nn.Module]) -> list[str]:
    # A graph module that a backend runs eagerly is no model of the program.
    inner = map(without_wrappers, models)
    programs = [each for each in inner if not isinstance(each, torch.fx.GraphModule)]
    if len(programs) < 2:
        return [""] * len(models)
    classes = [user_class(model) for model in models]
    repeated = {each for each, times in Counter(classes).items() if times > 1}
    variables = _variables(models)
    labels = [
        f"{each} {variable or at + 1}" if each in repeated else each
        for at, (each, variable) in enumerate(zip(classes, variables, strict=True))
    ]
    return [each.replace(".", "_") for each in labels]


def _variables(models: list[torch.nn.Module]) -> list[str | None]:
    """Return the script's first variable that holds each model or its wrapper."""
    script = vars(sys.modules["__main__"]) if "__main__" in sys.modules else {}
    held = [(n, without_wrappers(v)) for n, v in list(script.items()) if process.is_module(v)]
    inner = map(without_wrappers, models)
    return [next((name for name, value in held if value is each), None) for each in inner]


class HeldModules:
    """The modules of the process, each with the one that holds it; found on first use."""

    def __init__(self, models: Models | None = None) -> None:
        self._models = models

    @classmethod
    def of_models(cls) -> HeldModules:
        """Return one whose paths begin at their models' numbers until they are named."""
        return cls(Models())

    def frames_of(
        self, modules: Sequence[torch.nn.Module | None]
    ) -> tuple[ModuleFrame | None, ...]:
        """Return each module's path from the outermost module that holds it."""
        return tuple(None if module is None else self._frame(module) for module in modules)

    def _frame(self, module: torch.nn.Module) -> ModuleFrame:
        model, names = self._path_from_root(module)
        path = ".".join(filter(None, reversed(names)))
        full_path = path if self._models is None else self._models.begin(path, model)
        return ModuleFrame(full_path, user_class(module))

    @staticmethod
    def modules() -> list[torch.nn.Module]:
        """Return all modules of the process."""
        return _modules_alive()

    def named(
        self, settings: Settings, lines: PythonLines | None
    ) -> tuple[Settings, PythonLines | None]:
        """Return what was recorded, with paths that begin at the models' names."""
        return (settings, lines) if self._models is None else self._models.named(settings, lines)

    def models_of(self, modules: Sequence[torch.nn.Module | None]) -> tuple[int | None, ...]:
        """Return the identity of the outermost module around each, or of itself."""
        return tuple(
            None if each is None else id(self._path_from_root(each)[0]) for each in modules
        )

    def holder_of(self, module: torch.nn.Module) -> torch.nn.Module | None:
        """Return the user module that holds one; ``None`` for an outermost, or if several do."""
        name = ""
        while not name and id(module) in self._holders and not self.is_shared(module):
            module, name = self._holders[id(module)]
        return module if name else None

    def is_shared(self, module: torch.nn.Module) -> bool:
        """Tell whether several user modules hold a module."""
        return id(module) in self._shared

    def holders_of(self, tensor: torch.Tensor) -> Sequence[tuple[torch.nn.Module, str]]:
        """Return the modules that hold a parameter, and its name in each."""
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
        """The module that holds each module, and under which attribute."""
        # A wrapper of torch's (``torch.compile``, DDP) adds no name, and counts only if no user
        # module holds what it wraps.
        holders: dict[int, tuple[torch.nn.Module, str]] = {}
        for holder in sorted(_modules_alive(), key=lambda each: held_under(each) is not None):
            attribute = held_under(holder)
            for name, module in held_modules(holder):
                holders.setdefault(id(module), (holder, "" if name == attribute else name))
        return holders

    @cached_property
    def _shared(self) -> frozenset[int]:
        holders: dict[int, set[int]] = {}
        for holder in _modules_alive():
            if held_under(holder) is None and not isinstance(holder, torch.fx.GraphModule):
                for _, module in held_modules(holder):
                    holders.setdefault(id(module), set()).add(id(holder))
        return frozenset(module for module, own in holders.items() if len(own) > 1)

    def _path_from_root(self, module: torch.nn.Module) -> tuple[torch.nn.Module, list[str]]:
        """Return the outermost module around one, and the names on the way, innermost first."""
        names: list[str] = []
        seen: set[int] = set()
        while id(module) in self._holders and id(module) not in seen:
            seen.add(id(module))
            module, name = self._holders[id(module)]
            names.append(name)
        return module, names


_ACTIVE: dict[int, weakref.ref[torch.nn.Module]] = {}
"""Modules whose methods ran, by identity: their classes may compare and hash as they like."""


def note_active(module: torch.nn.Module) -> None:
    """Note a module whose method runs: ``gc.freeze()`` hides modules from the collector.

    Serving engines freeze their heap once the model is loaded.
    """
    known = _ACTIVE.get(id(module))
    if known is None or known() is not module:
        at = id(module)
        _ACTIVE[at] = weakref.ref(module, lambda _: _ACTIVE.pop(at, None))


def _modules_alive() -> list[torch.nn.Module]:
    alive = {id(each): each for each in living(torch.nn.Module)}
    todo = [module for known in tuple(_ACTIVE.values()) if (module := known()) is not None]
    visited: set[int] = set()
    while todo:
        module = todo.pop()
        if id(module) not in visited:
            visited.add(id(module))
            alive.setdefault(id(module), module)
            todo += (child for _, child in held_modules(module))
    return [*alive.values()]
