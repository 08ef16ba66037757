"""How a test writes an FX node in one call: what it is, and where it comes from."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from profiler_ext.records.lineage import Lineage
from profiler_ext.records.provenance import FxNode

_LINEAGE = {field.name for field in fields(Lineage)}


def fx_node(name: str, target: str, **reported: Any) -> FxNode:
    """Return a node of which so much is said, of itself and of its lineage."""
    return changed(FxNode(name, target), **reported)


def changed(node: FxNode, **reported: Any) -> FxNode:
    """Return a node of which something else is said."""
    lineage = {key: value for key, value in reported.items() if key in _LINEAGE}
    own = {key: value for key, value in reported.items() if key not in _LINEAGE}
    return replace(node, lineage=replace(node.lineage, **lineage), **own)
