"""Owns the hooks that see a graph whose marked regions are compiled by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.nodes.births import BirthHooks
from profiler_ext.capture.nodes.joint import describe_joint
from profiler_ext.capture.nodes.mutations import mutations
from profiler_ext.capture.nodes.regions import describe_region
from profiler_ext.capture.observing import Arguments, Around, Keywords, Observer
from profiler_ext.torch_compat import points, regions
from profiler_ext.torch_compat.patches import Call


class RegionHooks:
    """Describes the joint graph, its halves, and their regions."""

    def __init__(self, observe: Observer, compiles: Compiles, births: BirthHooks) -> None:
        """Take where the descriptions are kept, and how nodes were made."""
        self._observe = observe
        self._compiles = compiles
        self._births = births

    def arounds(self) -> list[Around]:
        """Return what is wrapped, and what is called in its place."""
        return [
            (points.TRACED_GRAPH, self._traced_graph),
            (points.REGIONS, self._regions),
            (points.REGION, self._region),
        ]

    def _traced_graph(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        gm = original(*args, **kwargs)
        self._observe(self._keep_joint, gm)
        return gm

    def _keep_joint(self, gm: Any) -> None:
        """Keep a joint graph that Inductor will not see, but for its regions."""
        if self._compiles.region is not None or not regions.has_marks(gm):
            return
        joint = describe_joint(gm, {}, mutations(gm), self._births.of(gm.graph))
        is_inference = not regions.has_tangents(gm.graph)
        self._compiles.keep_joint(replace(joint, is_inference=is_inference))

    def _regions(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        outer = self._compiles.half
        self._compiles.half = self._observe(self._compiles.half_of, args[0])
        try:
            return original(*args, **kwargs)
        finally:
            self._compiles.half = outer

    def _region(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        half, outer = self._compiles.half, self._compiles.region
        if half is None:
            return original(*args, **kwargs)
        gm = args[0] if args else kwargs["gm"]
        self._compiles.region = self._observe(describe_region, half, gm, self._compiles.dynamo)
        try:
            return original(*args, **kwargs)
        finally:
            self._compiles.region = outer
