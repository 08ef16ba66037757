"""Owns the path of a module as the user sees it: ``layers.7.mlp``, without Dynamo's scope."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from profiler_ext.records import ModuleFrame
from profiler_ext.torch_compat import process
from profiler_ext.torch_compat.names import running_names

_VARIABLE = re.compile(r"^(?P<scope>[LG])\['(?P<name>[^']+)'\]")
_CALLED = re.compile(r"getattr\(([^()]+), '([^']+)'\)")
_ITEM = re.compile(r"\[['\"]?([^'\"\]]+)['\"]?\]")

WRAPPED_UNDER = {
    running_names.CHECKPOINT_WRAPPER.name: running_names.CHECKPOINT_MODULE.name,
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    running_names.FSDP_WRAPPER.name: running_names.FSDP_MODULE.name,
    running_names.OPTIMIZED_MODULE.name: running_names.ORIGINAL_MODULE.name,
}
"""Modules that torch puts around the user's, each with the attribute that holds it."""


def root_modules(
    stacks: set[str], local: Mapping[str, Any], outer: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the variables among ``stacks`` that hold a module themselves.

    Args:
        stacks: module paths as Dynamo spells them, ``L['self'].layers.0``.
        local: local variables of the compiled frame.
        outer: its global variables.

    Returns:
        Prefixes such as ``L['self']`` whose object is an ``nn.Module``.
    """
    variables = {match for path in stacks if (match := _VARIABLE.match(_dotted(path)))}
    scopes = {"L": local, "G": outer}
    return tuple(
        sorted(
            {
                match[0]
                for match in variables
                if process.is_module(scopes[match["scope"]].get(match["name"]))
            }
        )
    )


def module_frames(
    stack: tuple[tuple[str, str], ...], roots: tuple[str, ...], own: ModuleFrame | None = None
) -> tuple[ModuleFrame, ...]:
    """Return a node's modules by their path from the model that the user holds.

    Args:
        stack: ``(path, class name)`` from the root inwards, as Dynamo spells them.
        roots: variables that hold a module (:func:`root_modules`).
        own: the module whose own method was compiled; Dynamo leaves it out of every stack.

    Returns:
        The same modules without torch's wrappers; the path of the model itself is ``""``.
    """
    if not stack:
        return () if own is None or own.class_name in WRAPPED_UNDER else (own,)
    stack = tuple((_dotted(path), name) for path, name in stack)
    root = next((r for r in roots if _within(stack[0][0], r)), stack[0][0])
    around = () if own is None else ((root, own.class_name),)
    return tuple(
        ModuleFrame(_relative(path, root), name) for path, name in _unwrapped(stack, around)
    )


def _dotted(path: str) -> str:
    """Dynamo may write an attribute that is no identifier as a call: ``getattr(L['m'], '0')``."""
    while (shorter := _CALLED.sub(r"\1.\2", path)) != path:
        path = shorter
    return path


def _unwrapped(
    stack: tuple[tuple[str, str], ...], around: tuple[tuple[str, str], ...]
) -> list[tuple[str, str]]:
    """Leave out the modules that torch put around the user's, and their names in the paths."""
    wrappers = [(path, WRAPPED_UNDER[n]) for path, n in (*around, *stack) if n in WRAPPED_UNDER]
    shown = []
    for path, name in stack:
        for wrapper, attribute in reversed(wrappers):
            if _within(path, f"{wrapper}.{attribute}"):
                path = wrapper + path[len(f"{wrapper}.{attribute}") :]
        if name not in WRAPPED_UNDER:
            shown.append((path, name))
    return shown


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith((root + ".", root + "["))


def _relative(path: str, root: str) -> str:
    rest = path[len(root) :] if _within(path, root) else _VARIABLE.sub("", path)
    return _ITEM.sub(r".\1", rest).strip(".")
