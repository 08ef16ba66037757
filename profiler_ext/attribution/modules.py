"""Owns which module of the model a node belongs to."""

from __future__ import annotations

from profiler_ext.records import FxNode, ModuleFrame


def innermost_module(node: FxNode) -> ModuleFrame | None:
    """Return the innermost module on the way to the node; ``None`` outside of any."""
    return node.modules[-1] if node.modules else None
