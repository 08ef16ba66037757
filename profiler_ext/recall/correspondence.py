"""Owns how what was recorded with one graph is said of an equal graph of this process.

Two functions may share a cached artifact: the same file edited since, or another function
with an equal graph. Equal graphs correspond node by node, so a recorded stack stands for the
stacks of this process's nodes at the same positions, if those all agree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.records import FxNode, Lineage, Provenance

Value = TypeVar("Value")
Key = TypeVar("Key")


def bound(provenance: Provenance, dynamo: DynamoGraph | None) -> Provenance:
    """Return a record that knows which of its nodes stand where the Dynamo graph's nodes do.

    Args:
        provenance: the record.
        dynamo: the Dynamo graph of the same compile, if it is known.
    """
    if dynamo is None:
        return dataclasses.replace(
            provenance,
            dynamo_digest=None,
            dynamo_stacks=(),
            dynamo_modules=(),
            dynamo_annotations=(),
        )
    nodes = provenance.nodes
    return dataclasses.replace(
        provenance,
        dynamo_digest=dynamo.digest,
        dynamo_stacks=_positions(
            [p.stack for p in dynamo.places], [n.lineage.stack for n in nodes]
        ),
        dynamo_modules=_positions(
            [p.modules for p in dynamo.places], [n.lineage.modules for n in nodes]
        ),
        dynamo_annotations=tuple(place.annotation for place in dynamo.places),
    )


def _positions(values: Sequence[Value], among: Sequence[Value]) -> tuple[int | None, ...]:
    """Return for each value the index of the first that equals it, ``None`` where none does."""
    first: dict[Value, int] = {}
    for index, value in enumerate(among):
        first.setdefault(value, index)
    return tuple(first.get(value) for value in values)


def corresponding(
    recorded: Sequence[Value], at: Sequence[int | None], here: Sequence[Value]
) -> list[tuple[Value, Value]]:
    """Return the recorded values beside those that stand in their places in this process.

    Args:
        recorded: the values of the recorded nodes.
        at: for each node of the recorded graph the index of a recorded value.
        here: the values of the equal graph of this process.

    Returns:
        A pair for each place; empty where the graphs are not equally long.
    """
    if len(at) != len(here):
        return []
    pairs = zip(at, here, strict=True)
    return [(recorded[index], value) for index, value in pairs if index is not None]


def relabelled(provenance: Provenance, dynamo: DynamoGraph) -> tuple[FxNode, ...]:
    """Return the recorded nodes with the labels of this process's equal Dynamo graph.

    Labels are no part of a cache key. A node's labels are led by the Dynamo nodes that had the
    same ones on the same line, else by all that had them.

    Args:
        provenance: the record.
        dynamo: this process's Dynamo graph, equal to the recorded one.
    """
    before, here = provenance.dynamo_annotations, [p.annotation for p in dynamo.places]
    if len(before) != len(here) or list(before) == here:
        return provenance.nodes
    changes = unambiguous(zip(before, here, strict=True))
    lineages = [node.lineage for node in provenance.nodes]
    lines = [None if at is None else lineages[at].stack for at in provenance.dynamo_stacks]
    on_line = unambiguous(zip(zip(lines, before, strict=False), here, strict=False))

    def relabel(old: Lineage) -> Lineage:
        label = on_line.get((old.stack, old.annotation))
        labels = changes.get(old.annotation, old.annotation) if label is None else label
        return dataclasses.replace(old, annotation=labels)

    nodes = zip(provenance.nodes, lineages, strict=True)
    return tuple(dataclasses.replace(node, lineage=relabel(old)) for node, old in nodes)


def unambiguous(pairs: Iterable[tuple[Key, Value]]) -> Mapping[Key, Value]:
    """Return the pairs as a mapping, without the keys that lead to several values."""
    values_by_key: dict[Key, set[Value]] = {}
    for key, value in pairs:
        values_by_key.setdefault(key, set()).add(value)
    return {key: next(iter(values)) for key, values in values_by_key.items() if len(values) == 1}
