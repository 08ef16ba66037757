"""Owns the names of a program's models, where it has several: a GAN's two nets, a net and its loss.

A model is an outermost module. Its name is its class, and of several of one class the variable of
the script that holds it, or else its number. While a recording is put together a path begins at the
number of its model; then it begins at the name, or where all are of one model at the model itself.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections import Counter

import torch
import torch.fx

from profiler_ext.capture.traces.module_paths import join_path, user_class, without_wrappers
from profiler_ext.records import ModuleFrame, PartModules, PythonLines, Settings
from profiler_ext.torch_compat import process

_NUMBERED = re.compile(r"model (\d+)(?:\.|$)")


class Models:
    """The models of a recording, each with a number, in the order in which they were met."""

    def __init__(self) -> None:
        """Start with none."""
        self._models: list[torch.nn.Module] = []

    def begin(self, path: str, model: torch.nn.Module) -> str:
        """Return a path that begins at the number of its model.

        Args:
            path: the path from the model on.
            model: the model.
        """
        known = [at for at, each in enumerate(self._models) if each is model]
        if not known:
            self._models.append(model)
        return join_path(f"model {known[0] if known else len(self._models) - 1}", path)

    def named(
        self, settings: Settings, lines: PythonLines | None
    ) -> tuple[Settings, PythonLines | None]:
        """Return what was recorded, with paths that begin at the names of their models.

        Args:
            settings: the settings of a recording.
            lines: the lines that ran in it.
        """
        names = _names(self._models)

        def named(frame: ModuleFrame | None) -> ModuleFrame | None:
            if frame is None:
                return None
            return dataclasses.replace(frame, path=_named(frame.path, names))

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


def _named(path: str, names: list[str]) -> str:
    match = _NUMBERED.match(path)
    return path if match is None else join_path(names[int(match[1])], path[match.end() :])


def _names(models: list[torch.nn.Module]) -> list[str]:
    # A graph that a backend runs eagerly is a module of torch's, and no model beside the program's.
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
    """Return the first variable of the script that holds each model, or what wraps it."""
    script = vars(sys.modules["__main__"]) if "__main__" in sys.modules else {}
    held = [(n, without_wrappers(v)) for n, v in list(script.items()) if process.is_module(v)]
    inner = map(without_wrappers, models)
    return [next((name for name, value in held if value is each), None) for each in inner]
