"""Owns what a node of compiled autograd's graph takes from what it is a copy of."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from profiler_ext.records import FxNode, LineEvidence

Sourced = tuple[FxNode, LineEvidence]
"""A node, and the truth that its line comes from."""

Origins = Mapping[str, Sourced]
"""The nodes of compiled autograd's graph, each with the backward node that it copies."""

_TAKEN = (
    "seq_nr",
    "stack",
    "modules",
    "source_fns",
    "partitioner_tag",
    "autograd_backward",
    "is_gradient_acc",
    "recompute",
    "annotation",
    "joint_name",
    "joint",
    "copied_call",
    "forward_node",
    "forward_evidence",
)


def led(node: FxNode, origins: Origins) -> FxNode:
    """Return a node with all that is known of what it was copied from."""
    found = _origin(node, origins)
    if found is None:
        return node
    origin = found[0]
    taken = {name: getattr(origin, name) for name in _TAKEN}
    op = origin.original_aten or node.original_aten
    return dataclasses.replace(node, **taken, original_aten=op)


def all_led(nodes: Iterable[Sourced], origins: Origins) -> tuple[Sourced, ...]:
    """Return nodes with what this process knows of their origins, and how it knows it.

    A record of other source has other names, which lead nowhere here; and of which call a node
    is a copy, a record of another process does not tell.
    """
    return tuple(_led(node, evidence, origins) for node, evidence in nodes)


def _led(node: FxNode, evidence: LineEvidence, origins: Origins) -> Sourced:
    found = None if evidence is LineEvidence.STALE else _origin(node, origins)
    if found is None:
        return dataclasses.replace(node, copied_call=None), evidence
    return led(node, origins), found[1]


def _origin(node: FxNode, origins: Origins) -> Sourced | None:
    return None if node.copied_from is None else origins.get(node.copied_from)
