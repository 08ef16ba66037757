"""Owns the hooks that see the graphs on their way: Dynamo's, the joint one, Inductor's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch.fx

from profiler_ext.capture.graphs.backwards import Backwards
from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.graphs.parts import begin_part
from profiler_ext.capture.graphs.sealing import compilation_of
from profiler_ext.capture.lineage.bodies import find_bodies
from profiler_ext.capture.lineage.joint import describe_joint
from profiler_ext.capture.lineage.joint_graph import (
    Fingerprint,
    JointFindings,
    Lineages,
    fingerprint_of,
)
from profiler_ext.capture.lineage.mutated import find_mutations
from profiler_ext.capture.traces.creations import CreationHooks
from profiler_ext.capture.traces.dropped_traces import DroppedTraces
from profiler_ext.capture.traces.dynamo_graphs import describe_dynamo_graph
from profiler_ext.capture.traces.finders import Finders
from profiler_ext.capture.traces.metadata import Replaced, clear_lineage_cache
from profiler_ext.capture.traces.replacements import Watch
from profiler_ext.capture.traces.retraced_bodies import carried_graphs, retraced
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.torch_compat import compiled_autograd, inductor, points, process
from profiler_ext.torch_compat.patches import Hook
from profiler_ext.torch_compat.replacing import unreported, watching_replacements


class GraphHooks:
    """Describes the graphs of what is compiled, before they are gone."""

    def __init__(
        self,
        guard: Guard,
        compiles: Compiles,
        backwards: Backwards,
        before_trace: Callable[[], None],
    ) -> None:
        """Take where the descriptions are kept, and what compiled autograd copies.

        Args:
            guard: what ours runs behind.
            compiles: where the descriptions are kept.
            backwards: what compiled autograd copies.
            before_trace: is called before Dynamo hands a graph to a backend.
        """
        self._before_trace = before_trace
        self._guard = guard
        self._compiles = compiles
        self._backwards = backwards
        self._tensorified: WeakKeyDictionary[torch.fx.Graph, Replaced] = WeakKeyDictionary()
        self._dropped = DroppedTraces()
        self.creations = CreationHooks()

    def observations(self) -> list[Hook]:
        """Return what is observed where."""
        return [
            *self.creations.observations(),
            (points.DYNAMO_GRAPH, self._dynamo_graph),
            (points.REGION_COMPARED, self._region_compared),
            (points.NODE_REPLACED, _node_replaced),
            (points.TENSORIFY, self._tensorify),
            (points.JOINT_PASSES, self._joint_passes),
            (points.POST_GRAD_PASSES, self._post_grad_passes),
            (points.INNER_COMPILE, self._inner_compile),
            (points.CACHE_KEY, self._cache_key),
            (points.AUTOGRAD_CACHE_KEY, self._autograd_cache_key),
        ]

    def _dynamo_graph(self, call: Observed) -> Observation:
        self._before_trace()
        finders = Finders(self._guard.alone)
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
        self._tensorified[gm.graph] = _replaced(watch, Finders(self._guard.alone))

    def _joint_passes(self, call: Observed) -> Observation:
        gm, region = call["gm"], self._compiles.region
        if process.in_compiled_autograd():
            compiled_autograd.name_copy_sources(gm)
        fingerprint, finders = fingerprint_of(gm.graph), Finders(self._guard.alone)
        watch = Watch(gm, {**self._earlier_replacements(fingerprint), **self._tensorified.get(gm.graph, {})})
        mutated = finders.find("mutated", find_mutations, gm, watch.before) or {}
        traced_from = region.traced_from(gm) if region else None
        with watching_replacements(gm, self._replacement_callback(points.JOINT_PASSES.path, watch)):
            yield
        if region is None:
            self._keep_joint(gm, watch, mutated, fingerprint, finders)
        elif traced_from is not None:
            region.keep(gm, traced_from, _replaced(watch, finders), finders.lost)

    def _earlier_replacements(self, fingerprint: Fingerprint) -> Replaced:
        """Return what nodes replaced which passes made that ran on the very same graph before.

        Of regions within regions torch has the bodies of the inner ones go through them twice.
        """
        before = self._compiles.joint_seen_before(fingerprint)
        return before.findings.replaced if before else {}

    def _replacement_callback(self, hook: str, watch: Watch) -> Callable[..., None]:
        return self._guard.callback(hook, watch.note)

    def _keep_joint(
        self,
        gm: Any,
        watch: Watch,
        mutated: Lineages,
        fingerprint: Fingerprint,
        finders: Finders,
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

    def _post_grad_passes(self, call: Observed) -> Observation:
        if (inner := self._compiles.inner) is None:
            return
        gm = call["gm"]
        joint = compilation_of(self._compiles, inner.gm).joint_of(gm.graph)
        joint_findings = joint.findings if joint else JointFindings()
        watch = Watch(gm, at_joint=joint_findings.replaced, overwritten=joint_findings.overwritten)
        carried = carried_graphs(gm)
        with watching_replacements(gm, self._replacement_callback(points.POST_GRAD_PASSES.path, watch)):
            yield
        finders = Finders(self._guard.alone)
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
    """Return what nodes replaced; where that is not found out, which nodes the passes made."""
    nothing: Replaced = dict.fromkeys(watch.made(), ())
    replaced = finders.find("replaced", watch.replaced)
    return nothing if replaced is None else replaced


def _node_replaced(call: Observed) -> Observation:
    if not isinstance(call["replace_with"], torch.fx.Node):
        with unreported(call["self"]):
            yield
