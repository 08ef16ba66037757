"""Owns the path of a module as the user sees it: ``layers.7.mlp``, without Dynamo's scope."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from profiler_ext.records import ModuleFrame
from profiler_ext.torch_compat import process
from profiler_ext.torch_compat.class_names import user_name, without_prefix
from profiler_ext.torch_compat.names import running_names

_VARIABLE = re.compile(r"^(?P<scope>[LG])\['(?P<name>[^']+)'\]")
_CALLED = re.compile(r"getattr\(([^()]+), '([^']+)'\)")
_HELD = re.compile(r"(?:\.__dict__\['_modules'\]|\._modules)\['([^']+)'\]")
_ITEM = re.compile(r"\[['\"]?([^'\"\]]+)['\"]?\]")

_WRAPPED_UNDER = {
    running_names.CHECKPOINT_WRAPPER.name: running_names.CHECKPOINT_MODULE.name,
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    running_names.FSDP_WRAPPER.name: running_names.FSDP_MODULE.name,
    running_names.OPTIMIZED_MODULE.name: running_names.ORIGINAL_MODULE.name,
}
"""Modules that torch puts around the user's, each with the attribute that holds it."""


def wrapped_under(class_name: str) -> str | None:
    """Return the attribute under which a wrapper of torch's holds the user's module.

    Source: ``torch/distributed/fsdp/_fully_shard/_fsdp_init.py``, ``_apply_to_module``: a sharded
    ``OptimizedModule`` is an ``FSDPOptimizedModule``.

    Args:
        class_name: the class of any module; of one that is no wrapper the answer is ``None``.
    """
    return _WRAPPED_UNDER.get(class_name) or _WRAPPED_UNDER.get(without_prefix(class_name))


def held_under(module: Any) -> str | None:
    """Return the attribute under which a module holds the user's, where it is such a wrapper."""
    return wrapped_under(type(module).__name__)


def user_class(module: Any) -> str:
    """Return how the user calls the class of a module, or of what a wrapper of torch's holds.

    Args:
        module: a module of the user's, or a wrapper.
    """
    return user_name(type(without_wrappers(module)))


def without_wrappers(module: Any) -> Any:
    """Return a module, or what wrappers of torch's hold that it is one of.

    Args:
        module: a module of the user's, or a wrapper.
    """
    while (under := held_under(module)) is not None:
        held = process.own_attributes(module)
        inner = held.get(under, (held.get("_modules") or {}).get(under))
        if not process.is_module(inner):
            break
        module = inner
    return module


def root_modules(
    stacks: set[str], local: Mapping[str, Any], outer: Mapping[str, Any]
) -> dict[str, torch.nn.Module]:
    """Return the variables among ``stacks`` that hold a module themselves, in order of their names.

    Args:
        stacks: module paths as Dynamo spells them, ``L['self'].layers.0``.
        local: local variables of the compiled frame.
        outer: its global variables.

    Returns:
        Prefixes such as ``L['self']`` whose object is an ``nn.Module``, with it.
    """
    variables = {match[0]: match for path in stacks if (match := _VARIABLE.match(dotted(path)))}
    scopes = {"L": local, "G": outer}
    held = {each: scopes[m["scope"]].get(m["name"]) for each, m in sorted(variables.items())}
    return {each: module for each, module in held.items() if process.is_module(module)}


def module_frames(
    stack: tuple[tuple[str, str], ...],
    roots: tuple[str, ...],
    own: ModuleFrame | None = None,
    held: Mapping[str, str | None] | None = None,
) -> tuple[ModuleFrame, ...]:
    """Return a node's modules by their path from the model that the user holds.

    Args:
        stack: ``(path, class name)`` from the root inwards, as Dynamo spells them.
        roots: variables that hold a module (:func:`root_modules`); that of the module whose own
            method was compiled is the first.
        own: the module whose own method was compiled; Dynamo leaves it out of every stack.
        held: paths under which a module is held elsewhere, or nowhere (:mod:`held_paths`).

    Returns:
        The same modules without torch's wrappers; the path of the model itself is ``""``, and
        where there are several, all but the one whose own method was compiled begin at their
        variable: ``G['critic'].up``.
    """
    where = ((path if held is None else held.get(path, path), name) for path, name in stack)
    stack = tuple((path, name) for path, name in where if path is not None)
    if not stack:
        return () if own is None or wrapped_under(own.class_name) else (own,)
    stack = tuple((dotted(path), name) for path, name in stack)
    root = next((r for r in roots if is_within(stack[0][0], r)), stack[0][0])
    outer = () if own is None else ((root, own.class_name),)
    model = name_of_root(root, roots, own)
    return tuple(
        ModuleFrame(join_path(model, relative(path, root)), name)
        for path, name in _unwrapped(stack, outer)
    )


def name_of_root(root: str, roots: tuple[str, ...], own: ModuleFrame | None) -> str:
    """Return where the paths of a model begin in the record of a graph.

    Args:
        root: the variable that holds it.
        roots: all such variables, as :func:`module_frames` has them.
        own: the module whose own method was compiled.
    """
    is_own = own is not None and root == roots[0]
    return "" if is_own or len(roots) < 2 else root


def variable(root: str) -> tuple[str, str]:
    """Return the scope and the name of a variable: ``L`` and ``net`` of ``L['net']``."""
    match = _VARIABLE.match(root)
    return ("", "") if match is None else (match["scope"], match["name"])


def join_path(model: str, path: str) -> str:
    """Return a path that begins at a model, given the one from there on.

    Args:
        model: where it begins, ``""`` where that has no name.
        path: the path from the model on.
    """
    return f"{model}.{path}".strip(".")


def dotted(path: str) -> str:
    """Return a path with dots: Dynamo may write ``getattr(L['m'], '0')``, or an item."""
    path = _HELD.sub(r".\1", path)
    while (shorter := _CALLED.sub(r"\1.\2", path)) != path:
        path = shorter
    return path


def _unwrapped(
    stack: tuple[tuple[str, str], ...], outer: tuple[tuple[str, str], ...]
) -> list[tuple[str, str]]:
    """Leave out the modules that torch put around the user's, and their names in the paths."""
    wrappers = [(path, under) for path, n in (*outer, *stack) if (under := wrapped_under(n))]
    shown = []
    for path, name in stack:
        for wrapper, attribute in reversed(wrappers):
            if is_within(path, f"{wrapper}.{attribute}"):
                path = wrapper + path[len(f"{wrapper}.{attribute}") :]
        if wrapped_under(name) is None:
            shown.append((path, name))
    return shown


def is_within(path: str, root: str) -> bool:
    """Tell whether a path is that of a root, or of something that the root holds.

    Args:
        path: as :func:`dotted` yields it.
        root: a variable that holds a module.
    """
    return path == root or path.startswith((root + ".", root + "["))


def relative(path: str, root: str) -> str:
    """Return a path from a root, ``""`` of the root itself; of one elsewhere from its variable.

    Args:
        path: as :func:`dotted` yields it.
        root: a variable that holds a module.
    """
    rest = path[len(root) :] if is_within(path, root) else _VARIABLE.sub("", path)
    return _ITEM.sub(r".\1", rest).strip(".")
