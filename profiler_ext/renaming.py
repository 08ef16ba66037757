"""Loads this package under another name where the program has its own module ``profiler_ext``.

The source is the same; only names in its import statements are rewritten.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

NAME = "profiler_ext"
ALIAS = "_profiler_ext_of_run"
_FOLDER = Path(__file__).parent


def is_shadowed(folders: Sequence[str]) -> bool:
    """Tell whether another module has our name, for a program with these folders first."""
    here = sys.modules.get(NAME)
    if here is not None and not _is_ours(getattr(here, "__spec__", None)):
        return True
    spec = PathFinder.find_spec(NAME, [*folders, *sys.path])
    return spec is not None and not _is_ours(spec)


def load_under_alias() -> str:
    """Leave the name to the program; return the name under which this package is imported now."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for name in [each for each in sys.modules if each.split(".")[0] == NAME]:
        if _is_ours(sys.modules[name].__spec__):
            del sys.modules[name]
    return ALIAS


def _is_ours(spec: ModuleSpec | None) -> bool:
    """Tell whether a spec lies in this package, also by way of a link, or is a part of it."""
    if spec is None:
        return False
    if spec.origin is None:
        return all(_is_namespace_part(Path(each)) for each in spec.submodule_search_locations or ())
    origin = Path(spec.origin)
    return _FOLDER in origin.parents or _FOLDER in origin.resolve().parents


def _is_namespace_part(folder: Path) -> bool:
    return {each.name for each in folder.iterdir()} <= {"exporters", "__pycache__"}


class _Finder(MetaPathFinder):
    """Finds this package and its modules by the other name."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.split(".")[0] != ALIAS:
            return None
        places = path if path is not None else [str(_FOLDER.parent)]
        original = PathFinder.find_spec(NAME if name == ALIAS else name, places, target)
        if original is None or original.origin is None:
            return original
        spec = ModuleSpec(
            name,
            _Loader(name, original.origin),
            origin=original.origin,
            is_package=original.submodule_search_locations is not None,
        )
        spec.submodule_search_locations = original.submodule_search_locations
        spec.has_location = True
        return spec


class _Loader(SourceFileLoader):
    """Compiles a module under the other name; Python's cache holds the original."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path), path)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module
                and (node.module.split(".")[0] == NAME)
            ):
                node.module = ALIAS + node.module[len(NAME) :]
        return compile(tree, path, "exec", dont_inherit=True)
