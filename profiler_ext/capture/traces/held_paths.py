"""Owns under which path a model holds a module that its program reached in another way.

Dynamo names a module by how the program came to it: through a closure (``mlpf.__closure__``), a
bound method, a global. What a model holds has its path of ``named_modules()``, whichever way it
was called; what it does not hold has no place in its tree, and that work is its caller's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import torch

from profiler_ext.capture.traces.module_paths import dotted, relative, is_within
from profiler_ext.torch_compat import modules

HeldPaths = Mapping[str, str | None]
"""Paths as Dynamo spells them, and as their root holds the module; ``None`` where it does not."""

Named = tuple[tuple[int | None, str], ...]
"""The modules of a node from the root inwards: the identity of each, and Dynamo's path."""

_HIDDEN = re.compile(r"(^|\.)__\w+__(\.|$)")


def held_paths(
    stacks: Iterable[Named], roots: Mapping[str, torch.nn.Module], own_path: str | None = None
) -> HeldPaths:
    """Return the modules that are held elsewhere than where the program reached them, or nowhere.

    Args:
        stacks: the modules of the nodes of a graph.
        roots: variables that hold a module, ``L['self']``, with it.
        itself: that of the module whose own method was compiled, and calls all others.
    """
    trees = {root: _Tree(root, module) for root, module in roots.items()}
    held: dict[str, str | None] = {}
    for stack in filter(None, set(stacks)):
        outermost = dotted(stack[0][1])
        root = own_path or next((root for root in trees if is_within(outermost, root)), "")
        tree = trees.get(root)
        known = {path: tree.path(identity, path) for identity, path in stack if tree is not None}
        held |= {path: where for path, where in known.items() if where != path}
    return held


class _Tree:
    """The modules that a variable's module holds, and those that these hold."""

    def __init__(self, root: str, module: torch.nn.Module) -> None:
        self._root, self._module = root, module
        self._paths: dict[int, str] = {}
        todo = [(root, module)]
        while todo:
            path, holder = todo.pop()
            if id(holder) not in self._paths:
                self._paths[id(holder)] = path
                held = reversed([*modules.held_modules(holder)])
                todo += [(f"{path}.{name}", child) for name, child in held]

    def path(self, identity: int | None, path: str) -> str | None:
        """Return where a module is held that the program reached by a path.

        Args:
            identity: its ``id``, if it is known.
            path: the way that the program came to it, as Dynamo spells it.
        """
        reached = dotted(path)
        own = relative(reached, self._root) if is_within(reached, self._root) else None
        if identity is None or (own is not None and self._is_at(own, identity)):
            return path
        if identity in self._paths:
            return self._paths[identity]
        # One in a plain list or object of the model's is not among its modules, but has a name.
        return None if own is None or _HIDDEN.search(own) else path

    def _is_at(self, path: str, identity: int) -> bool:
        module: torch.nn.Module | None = self._module
        for name in filter(None, path.split(".")):
            module = dict(modules.held_modules(module)).get(name) if module is not None else None
        return id(module) == identity
