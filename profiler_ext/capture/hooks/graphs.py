"""Owns the hooks that see the graphs on their way: Dynamo's, the joint one, Inductor's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from profiler_ext.capture.graphs.backwards import Backwards
from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.nodes.births import BirthHooks
from profiler_ext.capture.nodes.bodies import find_bodies
from profiler_ext.capture.nodes.dynamo_graphs import describe_dynamo_graph
from profiler_ext.capture.nodes.joint import Marks, describe_joint, marks_of
from profiler_ext.capture.nodes.mutations import Mutations, mutations
from profiler_ext.capture.nodes.replacements import Watch
from profiler_ext.capture.nodes.retraced_bodies import carried_graphs, retraced
from profiler_ext.capture.observing import Arguments, Around, Keywords, Observer
from profiler_ext.torch_compat import compiled_autograd, fx, points, process
from profiler_ext.torch_compat.patches import Call


class GraphHooks:
    """Describes the graphs of what is compiled, before they are gone."""

    def __init__(self, observe: Observer, compiles: Compiles, backwards: Backwards) -> None:
        """Take where the descriptions are kept, and what compiled autograd copies."""
        self._observe = observe
        self._compiles = compiles
        self._backwards = backwards
        self.births = BirthHooks(observe)

    def arounds(self) -> list[Around]:
        """Return what is wrapped, and what is called in its place."""
        return [
            *self.births.arounds(),
            (points.DYNAMO_GRAPH, self._dynamo_graph),
            (points.JOINT_PASSES, self._joint_passes),
            (points.POST_GRAD_PASSES, self._post_grad_passes),
            (points.INNER_COMPILE, self._inner_compile),
            (points.CACHE_KEY, self._cache_key),
            (points.AUTOGRAD_CACHE_KEY, self._autograd_cache_key),
        ]

    def _dynamo_graph(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        self._observe(self._keep_dynamo, *args[:2])
        return original(*args, **kwargs)

    def _keep_dynamo(self, output_graph: Any, gm: Any) -> None:
        described = describe_dynamo_graph(output_graph, gm)
        self._compiles.keep_dynamo(self._backwards.lead(described, gm))

    def _joint_passes(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        gm = args[0]
        if process.in_compiled_autograd():
            self._observe(compiled_autograd.name_origins, gm)
        watch = self._observe(Watch, gm)
        if watch is None:
            return original(*args, **kwargs)
        mutated = self._observe(mutations, gm)
        marks = self._observe(marks_of, gm.graph)
        region = self._compiles.region
        origins = self._observe(region.origins, gm) if region else None
        with fx.watching_replacements(gm, watch.note):
            result = original(*args, **kwargs)
        if region is None:
            self._observe(self._keep_joint, gm, watch, mutated, marks)
        elif origins is not None:
            self._observe(lambda: region.keep(gm, origins, watch.replaced()))
        return result

    def _keep_joint(
        self, gm: Any, watch: Watch, mutated: Mutations | None, marks: Marks | None
    ) -> None:
        births, overwritten = self.births.of(gm.graph), watch.overwritten()
        joint = describe_joint(gm, watch.replaced(), mutated, births, overwritten)
        bodies = find_bodies(gm, joint.links, self.births.of, self.births.traced)
        whole = self._compiles.whole_of(marks or frozenset())
        joint = replace(joint, bodies=bodies)
        self._compiles.keep_joint(whole.part(joint) if whole else joint)

    def _post_grad_passes(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        inner = self._compiles.inner
        watch = self._observe(Watch, args[0]) if inner else None
        if inner is None or watch is None:
            return original(*args, **kwargs)
        carried = self._observe(carried_graphs, args[0]) or {}
        with fx.watching_replacements(args[0], watch.note):
            result = original(*args, **kwargs)
        replaced = self._observe(watch.replaced) or {}
        inner.replaced[args[0].graph] = replaced
        inner.replaced.update(self._observe(retraced, args[0], replaced, carried) or {})
        return result

    def _inner_compile(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        self.births.forget()
        if self._observe(self._compiles.enter, args[0]) is None:
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            self._compiles.leave()

    def _cache_key(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        prepared = original(*args, **kwargs)
        self._observe(self._compiles.note_bypass, prepared)
        return prepared

    def _autograd_cache_key(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        try:
            return original(*args, **kwargs)
        except Exception as error:
            self._observe(self._compiles.keep_autograd_bypass, str(error))
            raise
