"""Owns what a module's path means as a name: the module and all below it, or several alike."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from profiler_ext.exporters.module_tree import folded_paths
from profiler_ext.records import Analysis


@dataclass(frozen=True, slots=True)
class Folds:
    """Modules of numbered layers as one: ``layers.*.mlp``.

    Attributes:
        paths: path of a module to what it is told as.
        members: how many modules are told as that.
    """

    paths: Mapping[str, str]
    members: Mapping[str, int]

    def of(self, path: str | None) -> tuple[str | None, int]:
        """Return what a module is told as, and how many are."""
        if path is None:
            return None, 1
        folded = self.paths.get(path, path)
        return folded, self.members.get(folded, 1)


def folded_modules(analyses: Sequence[Analysis]) -> Folds:
    """Return which modules of a session are told as one.

    Args:
        analyses: one for each rank.
    """
    places = [place for analysis in analyses for place in analysis.places]
    classes = {p.module: p.module_class for p in places if p.module is not None}
    paths = folded_paths(dict.fromkeys(path for each in classes for path in parents(each)), classes)
    return Folds(paths, Counter(paths[path] for path in classes))


def parents(path: str) -> list[str]:
    """Return the model's path, that of each module that one is in, and its own."""
    names = path.split(".") if path else []
    return ["", *(".".join(names[: at + 1]) for at in range(len(names)))]


def depth_of(path: str) -> int:
    """Return how many names a path has; the model itself has none."""
    return len(path.split(".")) if path else 0


def is_below(path: str, module: str) -> bool:
    """Tell whether a module is another, or one within it.

    Args:
        path: its path.
        module: the path of the other, where ``*`` stands for any name or part of one; the model
            itself, whose path is empty, holds all.
    """
    if "*" in module:
        return _pattern(module).match(path) is not None
    return path == module or not module or path.startswith(module + ".")


@cache
def _pattern(module: str) -> re.Pattern[str]:
    """Return what paths of and below modules are like, of which some names are ``*``."""
    names = (re.escape(name).replace(r"\*", "[^.]*") for name in module.split("."))
    return re.compile(rf"{re.escape('.').join(names)}(\.|$)")
