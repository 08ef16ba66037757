"""The reading of shapes from torch's source, in a wheel or a site-packages folder.

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
        if path.startswith("'"):
            return self._text_shape(module, path)
        if "()" in path:
            return self._inner_shape(module, *path.split("()"))
        if (module, "." in path) == ("torch._C", False) and self._is_bound_in_c(path):
            return None
        start = (module, self.module(module))
        place, found = functools.reduce(self._member, path.split("."), start)
        return _parameters(found) if _is_function(found) and not self._is_stub(place) else None

    def _is_bound_in_c(self, name: str) -> bool:
        """Tell whether C++ binds a name that the stubs leave out."""
        library = self._root / "torch" / "lib" / "libtorch_python.so"
        is_declared = name in map(_name, _statements(self.module("torch._C")))
        return not is_declared and library.is_file() and _binds(library, name)

    def _text_shape(self, module: str, path: str) -> Shape:
        texts = (n.value for n in ast.walk(self.module(module)) if isinstance(n, ast.Constant))
        if path.strip("'") not in {*texts, *_keywords(self.module(module))}:
            raise LookupError(f"no code of {module} has {path}")
        return None

    def _inner_shape(self, module: str, name: str, member: str) -> Shape:
        for node in ast.walk(self.module(module)):
            if isinstance(node, ast.FunctionDef) and node.name == name and not member:
                return _parameters(node)
            is_class = isinstance(node, ast.ClassDef) and node.name == name
            if is_class and any(member[1:] in _bound(each) for each in _statements(node)):
                return None
        raise LookupError(f"no code of {module} is called {name}{member}")

    def version(self) -> str:
        """Return torch's version without what its build adds: ``2.14.1``."""
        (found,) = [
            n for n in _statements(self.module("torch.version")) if "__version__" in _bound(n)
        ]
        return ast.literal_eval(found.value).partition("+")[0]

    def _module(self, name: str) -> ast.Module:
        return ast.parse(self._file(name).read_text(encoding="utf-8"))

    def _file(self, name: str) -> Path | zipfile.Path:
        place = name.replace(".", "/")
        for tail in (".py", "/__init__.py", ".pyi", "/__init__.pyi"):
            file = self._root / (place + tail)
            if file.is_file():
                return file
        raise LookupError(f"{name} is not there")

    def _absolute(self, node: ast.ImportFrom, module: str) -> str:
        is_package = self._file(module).name.startswith("__init__.")
        inside = [*module.split("."), "__init__"] if is_package else module.split(".")
        package = inside[: -node.level] if node.level else []
        return ".".join([*package, *([node.module] if node.module else [])])

    def _is_stub(self, module: str) -> bool:
        """Whether a module is written in C: its functions tell no parameters."""
        return self._file(module).name.endswith(".pyi")

    def _member(self, holder: tuple[str, ast.AST], name: str) -> tuple[str, ast.AST]:
        """Find a name in a module or a class, in what it is imported from, or in a base."""
        module, body = holder
        own = [node for node in _statements(body) if name in _bound(node)]
        if not own and isinstance(body, ast.ClassDef) and name in _assigned(body):
            return module, body
        if not own and isinstance(body, ast.ClassDef):
            return self._inherited(holder, name)
        if not own:
            raise LookupError(f"{module} has no {name}")
        # A name that a condition binds either to a function or to a value is known to be there.
        found = next((node for node in own if isinstance(node, ast.Assign)), own[-1])
        if not isinstance(found, ast.ImportFrom):
            return module, found
        source = self._absolute(found, module)
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


def _assigned(kind: ast.ClassDef) -> set[str]:
    """The attributes that a class's methods assign."""
    every = (node for method in kind.body for node in ast.walk(method))
    stored = (node for node in every if isinstance(node, ast.Attribute))
    return {node.attr for node in stored if isinstance(node.ctx, ast.Store)}


def _keywords(tree: ast.Module) -> set[str]:
    """The names of keyword arguments, which are texts of a module's code as well."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {keyword.arg for call in calls for keyword in call.keywords if keyword.arg}


def _is_function(node: ast.AST) -> bool:
    """Whether it is called with its parameters: a property is not."""
    if not isinstance(node, ast.FunctionDef):
        return False
    decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
    return decorators.isdisjoint({"property", "cached_property"})


def _name(node: ast.stmt) -> str:
    return getattr(node, "name", "")


@functools.cache
def _binds(library: Path | zipfile.Path, name: str) -> bool:
    return f"\0{name}\0".encode() in library.read_bytes()


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _parameters(function: ast.FunctionDef) -> Shape:
    given = function.args
    stars = [[given.vararg] if given.vararg else [], [given.kwarg] if given.kwarg else []]
    every = [*given.posonlyargs, *given.args, *stars[0], *given.kwonlyargs, *stars[1]]
    return tuple(argument.arg for argument in every)
