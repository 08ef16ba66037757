"""Stand-ins for what an engine's Python insists on and this machine lacks.

An engine's compilation is Python, but its imports reach compiled operators and packages for other
work. Imported by :func:`load`, each name that an import fails for is stood in for, and no other:
what the engine can do without stays absent.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from unittest.mock import MagicMock

import torch

__all__ = ["call", "define_named_in", "is_defined", "load", "skip_init", "stand_in"]

T = TypeVar("T")

_MISSING = (
    re.compile(r"'_OpNamespace' '(?P<space>\w+)' object has no attribute '(?P<name>\w+)'"),
    re.compile(
        r"underlying op of '(?P<space>\w+)\.(?P<name>\w+)' has no overload name '(?P<over>\w+)'"
    ),
    re.compile(r"operator (?P<space>\w+)::(?P<name>\w+)(?:\.(?P<over>\w+))? does not exist"),
)
_NAMED = re.compile(r"torch\.ops\.(_\w*C\w*)\.(\w+)")


class _AnyClass(type):
    """The class of classes that have every attribute."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)

    def __getitem__(cls, _: Any) -> type:
        return cls


class _Base:
    def __init_subclass__(cls, **options: Any) -> None:
        """Take any option."""


class _StandIn(ModuleType):
    """A module whose names are classes that can be subclassed, or mocks that can be called."""

    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _AnyClass(name, (_Base,), {}) if name[0].isupper() else MagicMock(name=name)
        setattr(self, name, made)
        return made


class _Finder:
    """Finds stand-ins for packages, and for modules of packages, by name."""

    def __init__(self) -> None:
        self.packages: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        is_ours = any(f"{name}.".startswith(f"{package}.") for package in self.packages)
        return ModuleSpec(name, self, is_package=True) if is_ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: it has every name."""


_finder = _Finder()


def skip_init(package: str) -> None:
    """Make a package importable without what its ``__init__`` imports.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"no module {package}", name=package)
    bare = ModuleType(package)
    bare.__path__ = spec.submodule_search_locations or []
    bare.__spec__ = spec
    sys.modules.setdefault(package, bare)


def stand_in(*packages: str) -> None:
    """Stand in for packages, installed or not."""
    _finder.packages.update(packages)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def load(*modules: str) -> tuple[str, ...]:
    """Import modules, with stand-ins for what fails; return the names that were stood in for.

    Raises:
        ImportError: an import fails for another reason.
    """
    return tuple(chain.from_iterable(call(partial(import_module, each))[1] for each in modules))


def call(attempt: Callable[[], T]) -> tuple[T, tuple[str, ...]]:
    """Call what imports, again for each name that is then stood in for; return these too."""
    stand_in()
    stood_in: list[str] = []
    with _fakes_define_operators(stood_in):
        while True:
            try:
                return attempt(), tuple(stood_in)
            except ModuleNotFoundError as error:
                package = _to_stand_in_for(error.name or "")
                if not package or package in _finder.packages:
                    raise
                _finder.packages.add(package)
                stood_in.append(package)
            except (AttributeError, RuntimeError, ImportError) as error:
                operator = missing_operator(str(error))
                if operator is None or operator in stood_in:
                    raise
                define(operator, lambda: None)
                stood_in.append(operator)


def _to_stand_in_for(module: str) -> str:
    """Return the package of a module that is missing, or the module where its package is there."""
    package = module.partition(".")[0]
    is_there = PathFinder.find_spec(package) is not None and package not in _finder.packages
    return module if is_there else package


def missing_operator(message: str) -> str | None:
    """Return the operator that torch's message says is missing, as in a schema."""
    for pattern in _MISSING:
        if found := pattern.search(message):
            over = found.groupdict().get("over")
            return f"{found['space']}::{found['name']}" + (f".{over}" if over else "")
    return None


def define_named_in(package: str) -> tuple[str, ...]:
    """Define the compiled operators that the sources of an imported package name.

    What matches patterns compares with operators that need not be called.
    """
    folders = map(Path, sys.modules[package].__path__)
    texts = (path.read_text() for each in folders for path in sorted(each.rglob("*.py")))
    named = {"{}::{}".format(*found) for text in texts for found in _NAMED.findall(text)}
    missing = [operator for operator in sorted(named) if not is_defined(operator)]
    for operator in missing:
        define(operator, lambda: None)
    return tuple(missing)


def is_defined(operator: str) -> bool:
    """Tell whether an operator, with its overload, is known to torch."""
    space, _, name = operator.partition("::")
    packet, _, overload = name.partition(".")
    try:
        getattr(getattr(getattr(torch.ops, space), packet), overload or "default")
    except (AttributeError, RuntimeError):
        return False
    return True


def define(operator: str, like: Callable[..., Any]) -> None:
    """Define an operator with the schema of a function, or with none if that has no types."""
    try:
        schema = torch.library.infer_schema(like, mutates_args="unknown")
    except (ValueError, TypeError, NameError):
        schema = "() -> ()"
    torch.library.define(operator, schema)


@contextmanager
def _fakes_define_operators(defined: list[str]) -> Iterator[None]:
    """Define each operator that a fake is registered for, where no library here defines it."""
    original = torch.library.register_fake

    def register_fake(op: Any, func: Any = None, /, **options: Any) -> Any:
        if func is None:
            return lambda function: register_fake(op, function, **options)
        if isinstance(op, str) and not is_defined(op):
            define(op, func)
            defined.append(op)
        return original(op, func, **options)

    torch.library.register_fake = register_fake
    try:
        yield
    finally:
        torch.library.register_fake = original
