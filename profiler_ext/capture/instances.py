"""Owns graph instances: compiled graphs as they live in this process, with its own lines.

Which truth a line comes from, best first: the compile itself; on an FX graph cache hit the
fresh graph, joined by node name; on an AOTAutograd hit this process's Dynamo graph, joined by
source function, only where both graphs have the same digest; the recorded line, where its
text still stands in the file.
"""

from __future__ import annotations

import dataclasses
import linecache
from collections.abc import Mapping
from pathlib import Path

from profiler_ext.capture.dynamo_graphs import DynamoGraph
from profiler_ext.paths import expand
from profiler_ext.records import Frame, FxNode, LineEvidence

Sourced = tuple[FxNode, LineEvidence]


def compiled_here(nodes: tuple[FxNode, ...]) -> tuple[Sourced, ...]:
    """Return the nodes of a graph that this process compiled."""
    return tuple((node, _or_absent(node, LineEvidence.COMPILED)) for node in nodes)


def from_fresh_graph(
    recorded: tuple[FxNode, ...], fresh: tuple[FxNode, ...]
) -> tuple[Sourced, ...]:
    """Return the recorded nodes with the metadata of the graph that entered Inductor just now.

    The cache key covers the graph's code, so equal names are equal nodes. A node that a
    pass made takes the metadata of the last node it replaced.
    """
    by_name = {node.name: node for node in fresh}
    return tuple(_refreshed(node, by_name) for node in recorded)


def from_dynamo(nodes: tuple[FxNode, ...], dynamo: DynamoGraph) -> tuple[Sourced, ...]:
    """Return the recorded nodes with the lines of this process's equal Dynamo graph."""
    return tuple(_from_source(node, dynamo) for node in nodes)


def from_record(nodes: tuple[FxNode, ...]) -> tuple[Sourced, ...]:
    """Return the recorded nodes; a line counts only where its text still stands."""
    return tuple(_recorded(node) for node in nodes)


def stale(nodes: tuple[FxNode, ...]) -> tuple[Sourced, ...]:
    """Return the recorded nodes of a graph that other source was compiled to."""
    return tuple((node, LineEvidence.STALE) for node in nodes)


def _refreshed(node: FxNode, fresh: Mapping[str, FxNode]) -> Sourced:
    names = (*((node.entry_name,) if node.entry_name else ()), *reversed(node.replaced))
    found = next((fresh[name] for name in names if name in fresh), None)
    if found is None:
        return _recorded(node)
    kept = dataclasses.replace(
        found,
        name=node.name,
        target=node.target,
        inputs=node.inputs,
        entry_name=node.entry_name,
        replaced=node.replaced,
        outputs=node.outputs,
    )
    return kept, _or_absent(kept, LineEvidence.FRESH_GRAPH)


def _from_source(node: FxNode, dynamo: DynamoGraph) -> Sourced:
    source = dynamo.sources.get(node.source_fns) if node.source_fns else None
    if source is None:
        return _recorded(node)
    # A nested region is traced on one module; the record knows which one each call was on.
    modules = node.modules if "/" in node.name else source.modules
    fresh = dataclasses.replace(node, stack=source.stack, modules=modules)
    return fresh, LineEvidence.FRESH_DYNAMO


def _recorded(node: FxNode) -> Sourced:
    if not node.stack:
        return node, LineEvidence.ABSENT
    stands = all(_stands(frame) for frame in node.stack)
    return node, LineEvidence.RECORDED if stands else LineEvidence.STALE


def _stands(frame: Frame) -> bool:
    """Whether the recorded text is still the line's text in the file."""
    file = expand(frame.file)
    if frame.code is None or not Path(file).is_file():
        return False
    linecache.checkcache(file)
    return linecache.getline(file, frame.line).strip() == frame.code


def expanded(node: FxNode) -> FxNode:
    """Return a node with this process's folders in its stack."""
    stack = tuple(dataclasses.replace(f, file=expand(f.file)) for f in node.stack)
    return dataclasses.replace(node, stack=stack)


def _or_absent(node: FxNode, evidence: LineEvidence) -> LineEvidence:
    return evidence if node.stack else LineEvidence.ABSENT
