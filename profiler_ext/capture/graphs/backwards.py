"""The backward graphs that compiled autograd copies, and where each copied node comes from.

Source: ``torch/_dynamo/compiled_autograd.py``: nodes are named ``aot<number>_<name>``.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch.fx

from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.graphs.fx_nodes import describe_nodes
from profiler_ext.capture.graphs.registry import Registry
from profiler_ext.capture.lineage.order import COPIES, find_lineages
from profiler_ext.capture.lineage.stage import Compilation, JointGraph, fingerprint_of
from profiler_ext.isolation.guard import Guard
from profiler_ext.isolation.hook_protocols import TryRun
from profiler_ext.recall.dynamo_graph import CopySources, DynamoGraph
from profiler_ext.recall.lines import known_by, with_lineage
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.provenance import FxNode, GraphInstance
from profiler_ext.source_paths import shorten
from profiler_ext.torch_compat import compiled_autograd, fx, process
from profiler_ext.torch_compat.names import fx_names


@dataclass(frozen=True, slots=True)
class _Backward:
    """A backward half, with what was known of its forward's compile."""

    info: weakref.ref[Any]
    compile_id: str | None
    joint: JointGraph | None
    dynamo: DynamoGraph | None
    registered: int


class Backwards:
    """The backward halves of this process, by their number in AOTAutograd.

    Compiled autograd copies each half as AOTAutograd left it, before any Inductor pass. The copies
    are described from that graph; if torch wiped its metadata (on a cache hit), from the record of
    the compiled backward. The rules ``COPIES`` assign them to the nodes.
    """

    def __init__(self, compiles: Compiles, registry: Registry, guard: Guard) -> None:
        self._compiles = compiles
        self._guard = guard
        self._registry = registry
        self._made: dict[int, _Backward] = {}

    def note(self, aot_id: int, info: object) -> None:
        """Keep a backward half while its forward is being compiled."""
        gm, reference = compiled_autograd.traced_graph(info), weakref.ref(info)
        fingerprint = fingerprint_of(gm.graph) if gm else frozenset()
        self._compiles.keep_half(reference)
        # Drop the halves that torch has freed: no graph can copy them.
        self._made = {n: made for n, made in self._made.items() if made.info() is not None}
        self._made[aot_id] = _Backward(
            info=reference,
            compile_id=process.current_compile_id(),
            joint=self._compiles.joint_of(fingerprint),
            dynamo=self._compiles.dynamo,
            registered=self._registry.count,
        )

    def with_copy_sources(self, dynamo: DynamoGraph, gm: torch.fx.GraphModule) -> DynamoGraph:
        """Return a Dynamo graph with the origins of copied nodes, if compiled autograd made it.

        Raises:
            LookupError: A hook failed in the compile of a forward whose backward is copied.
        """
        if not process.in_compiled_autograd():
            return dynamo
        return replace(dynamo, copy_sources=self._copy_sources(gm))

    def _copy_sources(self, gm: torch.fx.GraphModule) -> CopySources:
        copies = (compiled_autograd.copied_node(node.name) for node in gm.graph.nodes)
        backwards = {aot_id: self._nodes(aot_id) for aot_id in {c.aot_id for c in copies if c}}
        compilation = Compilation(lambda _: None, backwards=backwards, try_run=self._guard.try_run)
        return find_lineages(gm.graph.nodes, compilation, COPIES)

    def _nodes(self, aot_id: int) -> Mapping[str, FxNode]:
        made = self._made.get(aot_id)
        has_any = any(failure.lost is None for failure in self._guard.failures)
        if has_any and (made is None or self._guard.has_failed(made.compile_id)):
            raise LookupError(f"a hook failed in the forward's compile of aot{aot_id}")
        info = made.info() if made else None
        if made is None or info is None:
            return {}
        gm = compiled_autograd.traced_graph(info)
        if gm is None:
            earlier = self._registry.backwards_of(made.compile_id, before=made.registered)
            cached = next(reversed(tuple(earlier)), None)
            return _renamed(cached, compiled_autograd.cached_graph(info))
        if any(fx_names.SEQ_NR.text in node.meta for node in gm.graph.nodes):
            return dict(_described(gm, made, self._guard.try_run))
        joint = made.joint.id if made.joint else None
        halves = self._registry.backwards_of(made.compile_id) if joint else ()
        compiled = next((graph for graph in halves if graph.joint == joint), None)
        return _recorded(compiled)


def _recorded(graph: GraphInstance | None) -> dict[str, FxNode]:
    if graph is None:
        return {}
    joint = graph.joint
    recorded: dict[str, FxNode] = {}
    for node in graph.nodes:
        stack = tuple(replace(frame, file=shorten(frame.file)) for frame in node.lineage.stack)
        source = with_lineage(node, joint=joint, stack=stack)
        recorded |= dict.fromkeys((*node.replaced, node.entry_name or node.name), source)
    return recorded


def _renamed(graph: GraphInstance | None, gm: torch.fx.GraphModule | None) -> dict[str, FxNode]:
    """The nodes of a cached backward by their new names: the same calls, in order."""
    entered = graph.entry_calls if graph else ()
    copied = fx.dependent_calls(gm.graph) if gm else ()
    if [target for _, target in entered] != [target for _, target in copied]:
        return {}
    known = _recorded(graph)
    pairs = zip(copied, entered, strict=True)
    return {now: known[name] for (now, _), (name, _) in pairs if name in known}


def _described(
    gm: torch.fx.GraphModule, made: _Backward, try_run: TryRun
) -> Iterator[tuple[str, FxNode]]:
    compilation = Compilation(lambda _: made.joint, made.dynamo, try_run=try_run)
    joint = made.joint.id if made.joint else None
    for node in describe_nodes(gm.graph.nodes, compilation):
        yield node.name, with_lineage(known_by(LineEvidence.COMPILED, node), joint=joint)
