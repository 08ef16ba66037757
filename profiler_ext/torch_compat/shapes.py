"""The shape of torch's names in this process: which exist, and their parameters.

A dotted name is an attribute of a module: ``CompiledFxGraph.post_compile``. Instance attributes
count if their class declares or a method assigns them. ``'seq_nr'`` in quotes is a string in the
module's code, such as a dictionary key, ``runtime_wrapper()`` a function inside one of its
functions, ``Made().kind`` what the body of a local class assigns.
"""

from __future__ import annotations

import dis
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType
from typing import Any

Shape = tuple[str, ...] | None
"""The parameters of a function, in order; ``None`` for anything else."""

ShapeOf = Callable[[str, str], Shape]
"""Gives the shape of a module's name; raises ``LookupError`` if it is missing."""


def owner_of(module: str, path: str) -> Any:
    """Return the module or class that holds a dotted name's last part."""
    owner: Any = sys.modules.get(module)
    if owner is None:
        owner = _removed_module(module) or _loaded(module)
    if "." in path:
        for name in path.split(".")[:-1]:
            owner = getattr(owner, name)
    return owner


def _removed_module(module: str) -> ModuleType | None:
    """Return a module that was removed from ``sys.modules``, from its package."""
    # Importing it again would replace it, and lose what torch has of it.
    package, _, name = module.rpartition(".")
    holder = sys.modules.get(package) or (_removed_module(package) if package else None)
    held_module = vars(holder).get(name) if holder is not None else None
    return held_module if isinstance(held_module, ModuleType) else None


def _loaded(module: str) -> ModuleType:
    """Import a module; AOTAutograd and Dynamo import each other, and Dynamo must be first."""
    if module not in sys.modules and module.startswith("torch._functorch."):
        importlib.import_module("torch._dynamo")
    return importlib.import_module(module)


def live_shape(module: str, path: str) -> Shape:
    """Return the shape that a name has in this process."""
    if path.startswith("'"):
        if path.strip("'") not in _texts(module):
            raise LookupError(f"no code of {module} has {path}")
        return None
    if "()" in path:
        return _inner_shape(module, *path.split("()"))
    name = path.rpartition(".")[2]
    try:
        owner = owner_of(module, path)
    except (ImportError, AttributeError) as error:
        raise LookupError(f"{module}.{path} is not there") from error
    attribute = inspect.getattr_static(owner, name, None)
    function = (
        attribute.__func__ if isinstance(attribute, classmethod | staticmethod) else attribute
    )
    if inspect.isfunction(inspect.unwrap(function)):
        return tuple(inspect.signature(function).parameters)
    if attribute is None and not hasattr(owner, name) and not _is_declared(owner, name):
        raise LookupError(f"{module}.{path} is not there")
    return None


def _is_declared(owner: Any, name: str) -> bool:
    """Whether a class declares an attribute of its instances, or assigns it."""
    classes = owner.__mro__ if isinstance(owner, type) else ()
    return any(
        name in inspect.get_annotations(kind) or _is_assigned(kind, name) for kind in classes
    )


def _is_assigned(kind: type, name: str) -> bool:
    methods = (inspect.unwrap(m) for m in vars(kind).values() if inspect.isfunction(m))
    codes = (method.__code__ for method in methods if inspect.isfunction(method))
    return any(_stores(code, "STORE_ATTR", name) for code in codes)


def _inner_shape(module: str, name: str, member: str) -> Shape:
    for code in _codes(module):
        if code.co_name == name and (not member or _stores(code, "STORE_NAME", member[1:])):
            return None if member else _arguments(code)
    raise LookupError(f"no code of {module} is called {name}{member}")


def _arguments(code: CodeType) -> tuple[str, ...]:
    first, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    stars = list(code.co_varnames[last:])
    one = [stars.pop(0)] if code.co_flags & inspect.CO_VARARGS else []
    two = [stars.pop(0)] if code.co_flags & inspect.CO_VARKEYWORDS else []
    return (*code.co_varnames[:first], *one, *code.co_varnames[first:last], *two)


def _stores(code: CodeType, operation: str, name: str) -> bool:
    if name not in code.co_names:
        return False
    steps = dis.get_instructions(code)
    return any(step.opname == operation and step.argval == name for step in steps)


@functools.cache
def _texts(module: str) -> frozenset[str]:
    return frozenset(text for code in _codes(module) for text in _flat(code.co_consts))


def _flat(constants: Any) -> Iterator[str]:
    for each in constants:
        if isinstance(each, str):
            yield each
        elif isinstance(each, tuple | frozenset):
            yield from _flat(each)


@functools.cache
def _codes(module: str) -> tuple[CodeType, ...]:
    """All code of a module, nested functions included."""
    try:
        spec = _loaded(module).__spec__
    except ImportError as error:
        raise LookupError(f"{module} is not there") from error
    get_code: Any = getattr(spec.loader, "get_code", None) if spec else None
    code = get_code(spec.name) if get_code is not None and spec is not None else None
    outermost = code if isinstance(code, CodeType) else None
    return () if outermost is None else tuple(_nested_codes(outermost))


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_codes(constant)
