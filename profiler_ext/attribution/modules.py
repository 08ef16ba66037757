"""Owns which module a node belongs to, by its path from the model that the user holds."""

from __future__ import annotations

from profiler_ext.records import FxNode, ModuleFrame


def innermost_module(node: FxNode, called: ModuleFrame | None) -> ModuleFrame | None:
    """Return the innermost module of a node.

    Args:
        node: the node; its modules' paths begin at the module that was compiled.
        called: that module, where it was compiled by itself and its own path is known.
    """
    if called is None:
        return node.modules[-1] if node.modules else None
    if not node.modules:
        return called
    inner = node.modules[-1]
    path = ".".join(part for part in (called.path, inner.path) if part)
    return ModuleFrame(path, inner.class_name)
