"""Owns the hooks that see a graph whose marked regions are compiled by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.graphs.parts import begin_part
from profiler_ext.capture.lineage.joint import describe_joint
from profiler_ext.capture.lineage.mutated import find_mutations
from profiler_ext.capture.nodes.regions import describe_region
from profiler_ext.capture.traces.creations import CreationHooks
from profiler_ext.capture.traces.finders import Finders
from profiler_ext.isolation.guard import Observation, Observed
from profiler_ext.torch_compat import points, regional_inductor
from profiler_ext.torch_compat.patches import Hook


class RegionHooks:
    """Describes the joint graph, its halves, and their regions."""

    def __init__(self, compiles: Compiles, creations: CreationHooks) -> None:
        """Take where the descriptions are kept, and how nodes were made.

        Args:
            compiles: where the descriptions are kept.
            creations: how nodes were made.
        """
        self._compiles = compiles
        self._creations = creations

    def observations(self) -> list[Hook]:
        """Return what is observed where."""
        return [
            (points.TRACED_GRAPH, self._traced_graph),
            (points.REGIONS, self._regions),
            (points.REGION, self._region),
        ]

    def _traced_graph(self, call: Observed) -> Observation:
        yield
        self._keep_joint(call.result)

    def _keep_joint(self, gm: Any) -> None:
        """Keep a joint graph that Inductor will not see, but for its regions."""
        if self._compiles.region is not None or not regional_inductor.has_region_marks(gm):
            return
        finders = Finders(self._compiles.alone)
        mutated = finders.find("mutated", find_mutations, gm) or {}
        creations = self._creations.of(gm.graph)
        joint = describe_joint(gm, {}, mutated, creations, finders=finders)
        is_inference = not regional_inductor.has_tangents(gm.graph)
        self._compiles.keep_joint(replace(joint, is_inference=is_inference))

    def _regions(self, call: Observed) -> Observation:
        with self._compiles.in_outer_graph(self._compiles.outer_graph_of(call["gm"])):
            yield

    def _region(self, call: Observed) -> Observation:
        if (outer_graph := self._compiles.outer_graph) is not None:
            compiles, gm = self._compiles, call["gm"]
            region = describe_region(outer_graph, gm, compiles.dynamo, compiles.alone)
            with self._compiles.in_region(region):
                yield
        else:
            begin_part(self._compiles, call["gm"])
            yield
