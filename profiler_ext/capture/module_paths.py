"""Owns the path of a module as the user sees it: ``layers.7.mlp``, without Dynamo's scope."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from profiler_ext.records import ModuleFrame

_VARIABLE = re.compile(r"^(?P<scope>[LG])\['(?P<name>[^']+)'\]")
_ITEM = re.compile(r"\[['\"]?([^'\"\]]+)['\"]?\]")


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
    variables = {match for path in stacks if (match := _VARIABLE.match(path))}
    scopes = {"L": local, "G": outer}
    return tuple(
        sorted(
            {
                match[0]
                for match in variables
                if isinstance(scopes[match["scope"]].get(match["name"]), torch.nn.Module)
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
        The same modules; the path of the model itself is ``""``.
    """
    if not stack:
        return () if own is None else (own,)
    root = next((r for r in roots if _within(stack[0][0], r)), stack[0][0])
    return tuple(ModuleFrame(_relative(path, root), name) for path, name in stack)


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith((root + ".", root + "["))


def _relative(path: str, root: str) -> str:
    rest = path[len(root) :] if _within(path, root) else _VARIABLE.sub("", path)
    return _ITEM.sub(r".\1", rest).strip(".")
