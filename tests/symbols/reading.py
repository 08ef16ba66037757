"""Owns the reading of shapes from torch's source, in a wheel or a site-packages folder.

Nothing is imported: a wheel of a torch that this machine cannot run is read as well.
"""

from __future__ import annotations

import ast
import functools
import zipfile
from collections.abc import Iterator
from pathlib import Path

from profiler_ext.torch_compat.shapes import Shape


class Sources:
    """The parsed modules of one torch."""

    def __init__(self, place: Path):
        self._root = zipfile.Path(place) if place.is_file() else place
        self.module = functools.cache(self._module)

    def shape(self, module: str, path: str) -> Shape:
        """Return what a name is, as ``live_shape`` does in a process that has it."""
        found = functools.reduce(self._member, path.split("."), (module, self.module(module)))[1]
        return _parameters(found) if isinstance(found, ast.FunctionDef) else None

    def version(self) -> str:
        """Return torch's version without what its build adds: ``2.14.1``."""
        (found,) = [
            n for n in _statements(self.module("torch.version")) if "__version__" in _bound(n)
        ]
        return ast.literal_eval(found.value).partition("+")[0]

    def _module(self, name: str) -> ast.Module:
        place = name.replace(".", "/")
        for tail in (".py", "/__init__.py", ".pyi", "/__init__.pyi"):
            file = self._root / (place + tail)
            if file.is_file():
                return ast.parse(file.read_text(encoding="utf-8"))
        raise LookupError(f"{name} is not there")

    def _member(self, holder: tuple[str, ast.AST], name: str) -> tuple[str, ast.AST]:
        """Find a name in a module or a class, in what it is imported from, or in a base."""
        module, body = holder
        own = [node for node in _statements(body) if name in _bound(node)]
        if not own and isinstance(body, ast.ClassDef):
            return self._inherited(holder, name)
        if not own:
            raise LookupError(f"{module} has no {name}")
        # A name that a condition binds either to a function or to a value is known to be there.
        found = next((node for node in own if isinstance(node, ast.Assign)), own[-1])
        if not isinstance(found, ast.ImportFrom):
            return module, found
        source = _absolute(found, module)
        original = next(a.name for a in found.names if (a.asname or a.name) == name)
        return self._member((source, self.module(source)), original)

    def _inherited(self, holder: tuple[str, ast.AST], name: str) -> tuple[str, ast.AST]:
        module, kind = holder
        for base in kind.bases:
            try:
                found = self._member((module, self.module(module)), ast.unparse(base))
                return self._member(found, name)
            except LookupError:
                continue
        raise LookupError(f"{module}.{kind.name} has no {name}")


def _statements(body: ast.AST) -> Iterator[ast.stmt]:
    """Yield statements in order, those under ``if``, ``try`` and ``with`` too."""
    for node in ast.iter_child_nodes(body):
        if isinstance(node, ast.If | ast.Try | ast.ExceptHandler | ast.With):
            yield from _statements(node)
        elif isinstance(node, ast.stmt):
            yield node


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _absolute(node: ast.ImportFrom, module: str) -> str:
    package = module.split(".")[: -node.level] if node.level else []
    return ".".join([*package, *([node.module] if node.module else [])])


def _parameters(function: ast.FunctionDef) -> Shape:
    given = function.args
    stars = [[given.vararg] if given.vararg else [], [given.kwarg] if given.kwarg else []]
    every = [*given.posonlyargs, *given.args, *stars[0], *given.kwonlyargs, *stars[1]]
    return tuple(argument.arg for argument in every)
