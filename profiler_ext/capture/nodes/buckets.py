"""Owns what a bucket is made of: one collective that a pass made of several.

Bucketing (``torch/_inductor/fx_passes/bucketing.py``) copies the metadata of the first of the
collectives onto all that it makes; what FX reports as replaced tells which node serves which.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

import torch.fx

from profiler_ext.capture.nodes.fx_nodes import Surroundings, describe_node
from profiler_ext.records import CallSite, FxNode
from profiler_ext.torch_compat import fx

_WHOLE = 1000
"""Into how many parts the weight of a bucket's node is cut."""


def open_buckets(
    sites: Iterable[CallSite], nodes: Iterable[torch.fx.Node], around: Surroundings
) -> tuple[tuple[CallSite, ...], tuple[FxNode, ...]]:
    """Lead the call sites of buckets to each collective that went into them.

    Args:
        sites: the call sites of a graph.
        nodes: its nodes.
        around: what the nodes' records need.

    Returns:
        The sites, a bucket's node parted by the sizes of its collectives; and the records of
        these parts, named ``bucket/collective``.
    """
    buckets = {node.name: node for node in nodes if len(around.members(node)) > 1}
    opened = tuple(_opened(site, buckets, around) for site in sites)
    used = {name for site in opened for name in site.nodes}
    parts = [part for node in buckets.values() for part in _parts(node, around)]
    return opened, tuple(part for part in parts if part.name in used)


def _opened(site: CallSite, buckets: Mapping[str, torch.fx.Node], around: Surroundings) -> CallSite:
    if not set(site.nodes) & set(buckets):
        return site
    pairs: list[tuple[str, int]] = []
    for name, weight in zip(site.nodes, site.weights, strict=True):
        cut = _cut(buckets[name], around) if name in buckets else {name: _WHOLE}
        pairs += [(part, weight * size) for part, size in cut.items()]
    names, weights = zip(*pairs, strict=True)
    return dataclasses.replace(site, nodes=names, weights=weights)


def _cut(bucket: torch.fx.Node, around: Surroundings) -> dict[str, int]:
    """Return the parts of a bucket's node with the thousandths that each has of its size."""
    members = around.members(bucket)
    sizes = [sum(_elements(value) for value in fx.tensors(meta)) or 1 for _, meta in members]
    return {
        f"{bucket.name}/{name}": max(1, _WHOLE * size // sum(sizes))
        for (name, _), size in zip(members, sizes, strict=True)
    }


def _elements(value: torch.Tensor) -> int:
    return math.prod(size if isinstance(size, int) else 1 for size in value.shape)


def _parts(bucket: torch.fx.Node, around: Surroundings) -> list[FxNode]:
    return [
        dataclasses.replace(describe_node(bucket, alone), name=f"{bucket.name}/{member[0]}")
        for member in around.members(bucket)
        for alone in [
            dataclasses.replace(around, replaced={bucket.graph: {bucket.name: (member,)}})
        ]
    ]
