"""Owns how the call sites of buckets are led to each of the collectives put together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

import torch.fx

from profiler_ext.capture.lineage.bucket import bucket_members
from profiler_ext.capture.lineage.stage import Compilation
from profiler_ext.capture.nodes.fx_nodes import describe_nodes
from profiler_ext.records import CallSite, FxNode, TensorSpec

_FULL_WEIGHT = 1000
"""Into how many parts the weight of a bucket's node is cut."""


def split_buckets(
    sites: Iterable[CallSite], nodes: Iterable[torch.fx.Node], compilation: Compilation
) -> tuple[tuple[CallSite, ...], tuple[FxNode, ...]]:
    """Lead the call sites of buckets to each collective that went into them.

    Args:
        sites: the call sites of a graph.
        nodes: its nodes.
        compilation: what is known of its compile.

    Returns:
        The sites, a bucket's node parted by the sizes of its collectives; and the records of
        these parts, named ``bucket/collective``.
    """
    buckets = {node.name: node for node in nodes if len(bucket_members(node, compilation)) > 1}
    split = tuple(_split_site(site, buckets, compilation) for site in sites)
    used = {name for site in split for name in site.nodes}
    parts = [part for node in buckets.values() for part in _parts(node, compilation)]
    return split, tuple(part for part in parts if part.name in used)


def _split_site(
    site: CallSite, buckets: Mapping[str, torch.fx.Node], compilation: Compilation
) -> CallSite:
    if not set(site.nodes) & set(buckets):
        return site
    pairs: list[tuple[str, int]] = []
    for name, weight in zip(site.nodes, site.weights, strict=True):
        cut = _cut(buckets[name], compilation) if name in buckets else {name: _FULL_WEIGHT}
        pairs += [(part, weight * size) for part, size in cut.items()]
    names, weights = zip(*pairs, strict=True)
    return dataclasses.replace(site, nodes=names, weights=weights)


def _cut(bucket: torch.fx.Node, compilation: Compilation) -> dict[str, int]:
    """Return the parts of a bucket's node with the thousandths that each has of its size."""
    served = bucket_members(bucket, compilation)
    sizes = [sum(map(_elements, each.outputs)) or 1 for each in served]
    return {
        f"{bucket.name}/{each.name}": max(1, _FULL_WEIGHT * size // sum(sizes))
        for each, size in zip(served, sizes, strict=True)
    }


def _elements(value: TensorSpec) -> int:
    return math.prod(size if isinstance(size, int) else 1 for size in value.size)


def _parts(bucket: torch.fx.Node, compilation: Compilation) -> list[FxNode]:
    parts = []
    for member in bucket_members(bucket, compilation):
        replaced = {bucket.graph: {bucket.name: (member,)}}
        (alone,) = describe_nodes([bucket], dataclasses.replace(compilation, replaced=replaced))
        parts.append(dataclasses.replace(alone, name=f"{bucket.name}/{member.name}"))
    return parts
