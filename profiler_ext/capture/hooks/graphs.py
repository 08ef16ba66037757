"""The hooks on graphs on their way to Inductor: Dynamo's, joint, regions, compiled autograd's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch.fx

from profiler_ext.capture.graphs import regions, sealing
from profiler_ext.capture.graphs.backwards import Backwards
from profiler_ext.capture.graphs.compiles import Compiles, begin_part, in_part
from profiler_ext.capture.lineage.functionalization import find_mutations
from profiler_ext.capture.lineage.joint import describe_joint
from profiler_ext.capture.lineage.nested_graphs import find_bodies
from profiler_ext.capture.lineage.stage import Fingerprint, JointFindings, Lineages, fingerprint_of
from profiler_ext.capture.traces.creations import CreationHooks
from profiler_ext.capture.traces.dynamo_graphs import describe_dynamo_graph
from profiler_ext.capture.traces.finders import Finders
from profiler_ext.capture.traces.metadata import Replaced, clear_lineage_cache
from profiler_ext.capture.traces.nested_regions import DroppedTraces
from profiler_ext.capture.traces.replacements import (
    Watch,
    carried_graphs,
    retraced,
    unreported,
    watching_replacements,
)
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.isolation.hook_protocols import Results
from profiler_ext.torch_compat import compiled_autograd, fx, inductor, patches, points, process


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.naming: compiled_autograd.Naming | None = None


class AutogradHooks:
    """Keeps each backward half, and names compiled autograd's nodes."""

    def __init__(self, backwards: Backwards) -> None:
        self._backwards = backwards
        self._thread = _PerThread()

    def observations(self) -> list[patches.Hook]:
        """Return the hooks."""
        return [
            (points.BACKWARD_MADE, self._backward_made),
            (points.FLATTENED_GRAPH, self._flattened_graph),
            (points.NODE_MADE, Results(self._name)),
        ]

    def _backward_made(self, call: Observed) -> Observation:
        self._backwards.note(*compiled_autograd.backward_of(call.arguments))
        yield

    def _flattened_graph(self, call: Observed) -> Observation:
        if not process.in_compiled_autograd():
            return
        outer, self._thread.naming = self._thread.naming, compiled_autograd.Naming(call["self"])
        try:
            yield
        finally:
            self._thread.naming = outer

    def _name(self, node: torch.fx.Node) -> None:
        if (naming := self._thread.naming) is not None:
            naming.name(node)


_MIN_CUT = patches.Point(
    "networkx",
    "minimum_cut",
    ("flowG",),
    "the reasons of the partitioner",
    "the graph that it cuts, while it does",
    is_vital=False,
)
_BANNED = "cannot recompute"
"""What the partitioner says of a value that it must not recompute, and then why."""


def _note_banned(words: dict[str, str], call: Observed) -> Observation:
    """Note the partitioner's reasons: edges from the source to a value's first half."""
    for value, edge in call["flowG"]["source"].items():
        reason = edge.get("reason", "").removeprefix(_BANNED).removeprefix(": ")
        words[value.removesuffix("_in")] = reason or _BANNED
    yield from ()


class GraphHooks:
    """Describes the graphs of what is compiled, before they are gone."""

    def __init__(
        self,
        guard: Guard,
        compiles: Compiles,
        backwards: Backwards,
        before_trace: Callable[[], None],
    ) -> None:
        self._before_trace = before_trace
        self._guard = guard
        self._compiles = compiles
        self._backwards = backwards
        self._tensorified: WeakKeyDictionary[torch.fx.Graph, Replaced] = WeakKeyDictionary()
        self._dropped = DroppedTraces()
        self.creations = CreationHooks()

    def observations(self) -> list[patches.Hook]:
        """Return the hooks."""
        return [
            *self.creations.observations(),
            (points.DYNAMO_GRAPH, self._dynamo_graph),
            (points.REGION_COMPARED, self._region_compared),
            (points.NODE_REPLACED, _node_replaced),
            (points.TENSORIFY, self._tensorify),
            (points.JOINT_PASSES, self._joint_passes),
            (points.MIN_CUT_SOLVED, self._min_cut_solved),
            (points.POST_GRAD_PASSES, self._post_grad_passes),
            (points.INNER_COMPILE, self._inner_compile),
            (points.CACHE_KEY, self._cache_key),
            (points.AUTOGRAD_CACHE_KEY, self._autograd_cache_key),
        ]

    def _dynamo_graph(self, call: Observed) -> Observation:
        self._before_trace()
        finders = Finders(self._guard.try_run)
        described = describe_dynamo_graph(call["self"], call["gm"], self._dropped, finders)
        self._dropped.forget(call["gm"])
        self._compiles.keep_dynamo(self._backwards.with_copy_sources(described, call["gm"]))
        yield

    def _region_compared(self, call: Observed) -> Observation:
        yield
        if call.result:
            self._dropped.keep(call["a_mod"], call["b_mod"])

    def _tensorify(self, call: Observed) -> Observation:
        gm = call["module"]
        watch = Watch(gm)
        with watching_replacements(gm, self._replacement_callback(points.TENSORIFY.path, watch)):
            yield
        self._tensorified[gm.graph] = _replaced(watch, Finders(self._guard.try_run))

    def _joint_passes(self, call: Observed) -> Observation:
        gm, region = call["gm"], self._compiles.region
        if process.in_compiled_autograd():
            compiled_autograd.name_copy_sources(gm)
        fingerprint, finders = fingerprint_of(gm.graph), Finders(self._guard.try_run)
        # The bodies of inner regions go through the joint passes twice.
        before = self._compiles.joint_seen_before(fingerprint)
        earlier = before.findings.replaced if before else {}
        watch = Watch(gm, {**earlier, **self._tensorified.get(gm.graph, {})})
        mutated = finders.find("mutated", find_mutations, gm, watch.before) or {}
        traced_from = region.traced_from(gm) if region else None
        with watching_replacements(gm, self._replacement_callback(points.JOINT_PASSES.path, watch)):
            yield
        if region is None:
            self._keep_joint(gm, watch, mutated, fingerprint, finders)
        elif traced_from is not None:
            region.keep(gm, traced_from, _replaced(watch, finders), finders.lost)

    def _replacement_callback(self, hook: str, watch: Watch) -> Callable[..., None]:
        return self._guard.callback(hook, watch.note)

    def _keep_joint(
        self, gm: Any, watch: Watch, mutated: Lineages, fingerprint: Fingerprint, finders: Finders
    ) -> None:
        creations, find = self.creations.of(gm.graph), finders.find
        overwritten = find("overwritten", watch.overwritten_nodes, creations) or {}
        replaced = _replaced(watch, finders)
        joint = describe_joint(gm, replaced, mutated, creations, overwritten, finders)
        links, made = joint.findings.links, self.creations
        bodies = find("bodies", find_bodies, gm, links, made.of, made.traced) or {}
        parent = self._compiles.parent_joint_of(fingerprint)
        findings = replace(joint.findings, bodies=bodies, lost=finders.lost)
        joint = replace(joint, findings=findings)
        self._compiles.keep_joint(parent.part(joint) if parent else joint)

    def _min_cut_solved(self, call: Observed) -> Observation:
        words: dict[str, str] = {}
        hooks = [(_MIN_CUT, partial(_note_banned, words))]
        with patches.installed(hooks if _MIN_CUT.problem() is None else (), self._guard):
            yield
        saved, banned = call.result
        reasons = {each.name: words.get(each.name, _BANNED) for each in saved if each in banned}
        self._compiles.keep_saved({each.name: reasons.get(each.name, "") for each in saved})

    def _post_grad_passes(self, call: Observed) -> Observation:
        if (inner := self._compiles.inner) is None:
            return
        gm = call["gm"]
        joint = sealing.compilation_of(self._compiles, inner.gm).joint_of(gm.graph)
        joint_findings = joint.findings if joint else JointFindings()
        watch = Watch(gm, at_joint=joint_findings.replaced, overwritten=joint_findings.overwritten)
        carried = carried_graphs(gm)
        with watching_replacements(
            gm, self._replacement_callback(points.POST_GRAD_PASSES.path, watch)
        ):
            yield
        finders = Finders(self._guard.try_run)
        replaced = _replaced(watch, finders)
        inner.replaced[gm.graph] = replaced
        inner.replaced.update(retraced(gm, replaced, carried))
        inner.lost |= finders.lost & {"replaced"}

    def _inner_compile(self, call: Observed) -> Observation:
        self.creations.forget()
        try:
            with self._compiles.entered(call["gm"]):
                yield
        finally:
            if not inductor.awaits_backward(call.arguments):  # whose nodes say the same
                clear_lineage_cache()

    def _cache_key(self, call: Observed) -> Observation:
        yield
        self._compiles.note_bypass(call.result)

    def _autograd_cache_key(self, call: Observed) -> Observation:
        begin_part(self._compiles, next(iter(call.arguments.values()), None))
        try:
            yield
        finally:
            if call.error is not None:
                self._compiles.keep_autograd_bypass(str(call.error))


def _replaced(watch: Watch, finders: Finders) -> Replaced:
    """Return what nodes replaced; if that is unknown, the nodes that passes made, with nothing."""
    nothing: Replaced = dict.fromkeys(watch.made(), ())
    replaced = finders.find("replaced", watch.replaced)
    return nothing if replaced is None else replaced


def _node_replaced(call: Observed) -> Observation:
    if not isinstance(call["replace_with"], torch.fx.Node):
        with unreported(call["self"]):
            yield


class RegionHooks:
    """Describes the joint graph, its halves, and their regions."""

    def __init__(self, compiles: Compiles, creations: CreationHooks) -> None:
        self._compiles = compiles
        self._creations = creations

    def observations(self) -> list[patches.Hook]:
        """Return the hooks."""
        return [
            (points.TRACED_GRAPH, self._traced_graph),
            (points.REGIONS, self._regions),
            (points.REGION, self._region),
        ]

    def _traced_graph(self, call: Observed) -> Observation:
        """Keep a joint graph that Inductor sees only in regions."""
        yield
        gm = call.result
        if self._compiles.region is not None or not fx.has_region_marks(gm):
            return
        finders = Finders(self._compiles.try_run)
        mutated = finders.find("mutated", find_mutations, gm) or {}
        creations = self._creations.of(gm.graph)
        joint = describe_joint(gm, {}, mutated, creations, finders=finders)
        is_inference = not fx.has_tangents(gm.graph)
        self._compiles.keep_joint(replace(joint, is_inference=is_inference))

    def _regions(self, call: Observed) -> Observation:
        with self._compiles.in_outer_graph(self._compiles.outer_graph_of(call["gm"])):
            yield

    def _region(self, call: Observed) -> Observation:
        if (outer_graph := self._compiles.outer_graph) is not None:
            compiles, gm = self._compiles, call["gm"]
            region = regions.describe_region(outer_graph, gm, compiles.dynamo, compiles.try_run)
            with self._compiles.in_region(region):
                yield
        else:
            with in_part(self._compiles, call["gm"]):
                yield
