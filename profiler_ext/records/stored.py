"""Owns the stored form of records: in a file a node and its lineage are one object.

So files of before lineage had a record of its own are read as they are; what they do not say is
absent. Older files have the evidence of lines in a list of the graph, ``line_evidence``, one for
each node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import msgspec

from profiler_ext.records.known_types import known
from profiler_ext.records.lineage import Lineage

_LINEAGE = frozenset(field.name for field in fields(Lineage))
Record = TypeVar("Record")


def flat(record: object) -> Any:
    """Return a provenance, or what holds graph instances, in plain objects as a file has them."""
    return _with_nodes(msgspec.to_builtins(record), _flat)


def nested(plain: Any, kind: type[Record]) -> Record:
    """Return the record of which plain objects tell.

    Args:
        told: what :func:`flat` gave.
        kind: the record's type.

    Raises:
        msgspec.ValidationError: They tell of something else.
    """
    return msgspec.convert(_with_nodes(plain, _nested), known(kind))


def _with_nodes(plain: Any, change: Callable[[Any], Any]) -> Any:
    """Return the same with each node of it changed; what has another shape is left as it is."""
    if not isinstance(plain, dict):
        return plain
    plain = _with_evidence(plain) if "line_evidence" in plain else plain
    changed = dict(plain)
    for name, entry in plain.items():
        if name == "nodes" and isinstance(entry, list | tuple):
            changed[name] = [change(node) for node in entry]
        elif name == "graphs" and isinstance(entry, list | tuple):
            changed[name] = [_with_nodes(graph, change) for graph in entry]
        elif name == "provenance":
            changed[name] = _with_nodes(entry, change)
    return changed


def _with_evidence(graph: dict[str, Any]) -> dict[str, Any]:
    """Return the same with the evidence of an older file on its nodes."""
    evidence, nodes = graph["line_evidence"], graph.get("nodes", ())
    if not isinstance(evidence, list | tuple) or not isinstance(nodes, list | tuple):
        raise msgspec.ValidationError("found no list of evidences and nodes, expected one of each")
    if len(evidence) > len(nodes):
        raise msgspec.ValidationError(
            f"{len(evidence)} evidences of {len(nodes)} nodes, expected one each"
        )
    known = [_known_by(each, node) for each, node in zip(evidence, nodes, strict=False)]
    own = {name: entry for name, entry in graph.items() if name != "line_evidence"}
    return own | {"nodes": [*known, *nodes[len(known) :]]}


def _known_by(evidence: Any, node: Any) -> Any:
    return node | {"evidence": evidence} if isinstance(node, dict) else node


def _flat(node: dict[str, Any]) -> dict[str, Any]:
    lineage: dict[str, Any] = node["lineage"]
    return {name: entry for name, entry in node.items() if name != "lineage"} | lineage


def _nested(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    lineage = {name: entry for name, entry in node.items() if name in _LINEAGE}
    own = {name: entry for name, entry in node.items() if name not in _LINEAGE}
    return own | {"lineage": lineage}
