"""Owns the shape of torch's names in this process: which are there, and what they take."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

Shape = tuple[str, ...] | None
"""The parameters of a function, in order; ``None`` for what is no function."""

ShapeOf = Callable[[str, str], Shape]
"""Gives the shape of a module's dotted name; a ``LookupError`` says that it is not there."""


def owner_of(module: str, path: str) -> Any:
    """Return the module or class that holds a dotted name's last part."""
    owner: Any = importlib.import_module(module)
    for name in path.split(".")[:-1]:
        owner = getattr(owner, name)
    return owner


def live_shape(module: str, path: str) -> Shape:
    """Return the shape that a name has in this process.

    Args:
        module: module that holds the name.
        path: dotted name in it, ``CompiledFxGraph.post_compile``.

    Raises:
        LookupError: It is not there.
    """
    name = path.rpartition(".")[2]
    try:
        owner = owner_of(module, path)
    except (ImportError, AttributeError) as error:
        raise LookupError(f"{module}.{path} is not there") from error
    found = inspect.getattr_static(owner, name, None)
    function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
    if inspect.isfunction(inspect.unwrap(function)):
        return tuple(inspect.signature(function).parameters)
    if found is None and not hasattr(owner, name) and not _is_declared(owner, name):
        raise LookupError(f"{module}.{path} is not there")
    return None


def _is_declared(owner: Any, name: str) -> bool:
    """Whether a class declares an attribute that only its instances have."""
    classes = owner.__mro__ if isinstance(owner, type) else ()
    return any(name in inspect.get_annotations(kind) for kind in classes)
