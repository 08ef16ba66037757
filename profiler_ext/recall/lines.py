"""The source lines that a graph's recorded nodes have in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, TypeVar

from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.lineage import Frame, Lineage, ModuleFrame
from profiler_ext.records.provenance import FxNode, Provenance
from profiler_ext.source_paths import expand, line_is_unchanged

# The sources of a line, best first: the compile itself; on an FX graph cache hit the fresh graph,
# joined by node name; on an AOTAutograd hit this process's Dynamo graph, joined by source function
# or position, if both graphs have the same digest; else the recorded line, if its text is still in
# the file. Two functions may share a cached artifact (an edited file, an equal graph), so where
# this process's stacks are known, a recorded stack counts only if it is one of them.
Value = TypeVar("Value")
Key = TypeVar("Key")


def bound(provenance: Provenance, dynamo: DynamoGraph | None) -> Provenance:
    """Return a record with the positions of its nodes in the Dynamo graph."""
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
    """Return for each value the index of the first that equals it, if any."""
    first: dict[Value, int] = {}
    for index, value in enumerate(among):
        first.setdefault(value, index)
    return tuple(first.get(value) for value in values)


def corresponding(
    recorded: Sequence[Value], at: Sequence[int | None], here: Sequence[Value]
) -> list[tuple[Value, Value]]:
    """Pair the recorded values with those at the same positions in this process.

    ``at`` has the index of a recorded value for each node. Empty if the graphs differ in length.
    """
    if len(at) != len(here):
        return []
    pairs = zip(at, here, strict=True)
    return [(recorded[index], value) for index, value in pairs if index is not None]


def relabelled(provenance: Provenance, dynamo: DynamoGraph) -> tuple[FxNode, ...]:
    """Return the recorded nodes with the labels of this process's equal Dynamo graph."""
    # Labels are not in cache keys. They are matched by the Dynamo nodes with the same labels on the
    # same line, else by all nodes with them.
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
    """Return the pairs as a mapping, without the keys with several values."""
    values_by_key: dict[Key, set[Value]] = {}
    for key, value in pairs:
        values_by_key.setdefault(key, set()).add(value)
    return {key: next(iter(values)) for key, values in values_by_key.items() if len(values) == 1}


_Stack = tuple[Frame, ...]
_Modules = tuple[ModuleFrame, ...]
_Value = TypeVar("_Value")


class _ThisProcess:
    """Maps recorded stacks and modules to those of this process, by corresponding nodes."""

    def __init__(
        self,
        stacks: Iterable[tuple[_Stack, _Stack]],
        modules: Iterable[tuple[_Modules, _Modules]],
        known: Set[_Stack],
    ) -> None:
        pairs = tuple(modules)
        self.stacks, self.known = unambiguous(stacks), known
        self._modules = unambiguous(pairs)
        self._are_other_modules = any(recorded != here for recorded, here in pairs)

    def modules_of(self, recorded: Lineage) -> _Modules:
        """Return a recorded node's modules in this process."""
        # Unmatched modules are kept if all others are the same. An equal graph of other layers, as
        # in DDP's buckets, has others.
        unknown = () if self._are_other_modules else recorded.modules
        return self._modules.get(recorded.modules, unknown)


def compiled_here(nodes: tuple[FxNode, ...]) -> tuple[FxNode, ...]:
    """Return the nodes of a graph that this process compiled."""
    return tuple(known_by(LineEvidence.COMPILED, node) for node in nodes)


def from_fresh_graph(recorded: tuple[FxNode, ...], fresh: tuple[FxNode, ...]) -> tuple[FxNode, ...]:
    """Return the recorded nodes with the metadata of the graph that entered Inductor now."""
    # The cache key covers the graph's code, so equal names are equal nodes. A pass's node takes the
    # metadata of the last node it replaced, except the op, as at its compile.
    by_name = {node.name: node for node in fresh}
    return _joined([(node, _fresh_node(node, by_name)) for node in recorded], fresh)


def from_region(recorded: tuple[FxNode, ...], fresh: tuple[FxNode, ...]) -> tuple[FxNode, ...]:
    """Return the recorded nodes of a region with the metadata of the outer graph.

    The cache key covers the region's code, with its nodes' names in that graph.
    """
    by_name = {node.name: node for node in fresh}
    pairs: list[tuple[FxNode, FxNode | None]] = []
    for node in recorded:
        other = by_name.get(node.lineage.copied_from or "")
        # A pass's node represents one of the joint graph, but is none of its nodes.
        if other is not None and node.lineage.joint_name is None:
            other = with_lineage(other, joint_name=None)
        pairs.append((node, other))
    return _joined(pairs, fresh)


def _joined(
    pairs: Sequence[tuple[FxNode, FxNode | None]], fresh: tuple[FxNode, ...]
) -> tuple[FxNode, ...]:
    """Return recorded nodes, each with its fresh node's metadata, or matched through the others."""
    joined = [(node, other) for node, other in pairs if other is not None]
    same = ((node, other) for node, other in joined if not node.replaced)
    here = _ThisProcess(
        _pairs(joined, lambda lineage: lineage.stack),
        _pairs(same, lambda lineage: lineage.modules),
        {node.lineage.stack for node in fresh},
    )
    evidence = LineEvidence.FRESH_GRAPH
    return tuple(
        _to_this_process(node, here, evidence) if other is None else refreshed(node, other)
        for node, other in pairs
    )


def _pairs(
    joined: Iterable[tuple[FxNode, FxNode]], of: Callable[[Lineage], _Value]
) -> Iterator[tuple[_Value, _Value]]:
    pairs = ((of(node.lineage), of(other.lineage)) for node, other in joined)
    return (pair for pair in pairs if pair[0])


def refreshed(node: FxNode, fresh: FxNode) -> FxNode:
    """Return a recorded node with the metadata of its fresh node, or the one it represents."""
    lineage = node.lineage.refreshed(fresh.lineage, is_made=node.entry_name is None)
    return dataclasses.replace(node, lineage=lineage.known_by(LineEvidence.FRESH_GRAPH))


def from_dynamo(provenance: Provenance, dynamo: DynamoGraph) -> tuple[FxNode, ...]:
    """Return the recorded nodes with the lines of this process's equal Dynamo graph."""
    if dynamo.copy_sources:
        return from_record(provenance.nodes)
    nodes, places = provenance.nodes, dynamo.places
    stacks, modules = [n.lineage.stack for n in nodes], [n.lineage.modules for n in nodes]
    here = _ThisProcess(
        corresponding(stacks, provenance.dynamo_stacks, [place.stack for place in places]),
        corresponding(modules, provenance.dynamo_modules, [place.modules for place in places]),
        {place.stack for place in places},
    )
    labelled = relabelled(provenance, dynamo)
    return tuple(_from_source(node, dynamo, here) for node in labelled)


def from_record(
    nodes: Iterable[FxNode],
    evidence: LineEvidence = LineEvidence.RECORDED,
    source_root: str | None = None,
) -> tuple[FxNode, ...]:
    """Return the recorded nodes; a line counts only if its text is unchanged in the file.

    ``source_root`` is the script's folder and the working folder at the compile; by default this
    process's.
    """
    return tuple(_recorded(node, evidence, source_root) for node in nodes)


def stale(nodes: tuple[FxNode, ...]) -> tuple[FxNode, ...]:
    """Return the recorded nodes of a graph that was compiled from other source."""
    return tuple(with_lineage(node, evidence=LineEvidence.STALE) for node in nodes)


def _fresh_node(node: FxNode, fresh: Mapping[str, FxNode]) -> FxNode | None:
    names = (*((node.entry_name,) if node.entry_name else ()), *reversed(node.replaced))
    candidates = [fresh[name] for name in names if name in fresh]
    # A product merged with an addition counts as the product, as when it was compiled.
    own_op = node.lineage.original_aten
    return min(
        candidates,
        key=lambda other: (other.lineage.original_aten != own_op, other.lineage.is_gradient_acc),
        default=None,
    )


def _from_source(node: FxNode, dynamo: DynamoGraph, here: _ThisProcess) -> FxNode:
    own = node.lineage
    source = dynamo.sources.get(own.source_fns) if own.source_fns else None
    if source is None:
        return _to_this_process(node, here, LineEvidence.FRESH_DYNAMO)
    # A nested region is traced on one module; the record has each call's.
    modules = own.modules if "/" in node.name else source.modules
    return with_lineage(
        node, stack=source.stack, modules=modules, evidence=LineEvidence.FRESH_DYNAMO
    )


def _to_this_process(node: FxNode, here: _ThisProcess, evidence: LineEvidence) -> FxNode:
    """Map a recorded stack to this process's; one that it does not have is stale."""
    moved = with_lineage(node, modules=here.modules_of(node.lineage))
    if stack := here.stacks.get(node.lineage.stack):
        return with_lineage(moved, stack=stack, evidence=evidence)
    is_here = node.lineage.stack in here.known
    return _recorded(moved) if is_here else known_by(LineEvidence.STALE, moved)


def _recorded(
    node: FxNode, evidence: LineEvidence = LineEvidence.RECORDED, source_root: str | None = None
) -> FxNode:
    stack = node.lineage.stack
    are_there = all(line_is_unchanged(f.file, f.line, f.code, source_root) for f in stack)
    return known_by(evidence if are_there else LineEvidence.STALE, node)


def expanded(node: FxNode, source_root: str | None = None) -> FxNode:
    """Return a node with the folders of a source root, or this process's, in its stack."""
    frames = node.lineage.stack
    stack = tuple(dataclasses.replace(f, file=expand(f.file, source_root)) for f in frames)
    return with_lineage(node, stack=stack)


def with_lineage(node: FxNode, **changes: Any) -> FxNode:
    """Return a node with changes to its lineage."""
    return dataclasses.replace(node, lineage=dataclasses.replace(node.lineage, **changes))


def known_by(evidence: LineEvidence, node: FxNode) -> FxNode:
    """Return a node with the evidence of its line, if it has a line."""
    return dataclasses.replace(node, lineage=node.lineage.known_by(evidence))


def as_recorded(nodes: Iterable[FxNode]) -> tuple[FxNode, ...]:
    """Return nodes without evidence, as a record has them."""
    return tuple(with_lineage(node, evidence=None) for node in nodes)
