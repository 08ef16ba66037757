"""Owns the hook that sees what torch's caches offer: entries that have a record come first.

A cache may hold several entries under one key, all of them valid. Those that were made without
capture are offered last, or not at all where the user wants them compiled once more.
"""

from __future__ import annotations

from typing import Any

from profiler_ext.capture.graphs.registry import Registry
from profiler_ext.isolation.asking import Sorting
from profiler_ext.torch_compat import inductor, points
from profiler_ext.torch_compat.patches import Hook


class CacheHooks:
    """Orders the candidates of a lookup.

    Attributes:
        recompile: entries without a record are no candidates.
    """

    def __init__(self, registry: Registry) -> None:
        """Take who knows the records."""
        self.recompile = False
        self._registry = registry

    def observations(self) -> list[Hook]:
        """Return what is sorted where."""
        sorting = Sorting(lambda offered: self._is_unknown(offered[0]), self._is_left_out)
        return [(points.CACHE_CANDIDATES, sorting)]

    def _is_left_out(self) -> bool:
        return self.recompile and not inductor.misses_are_errors()

    def _is_unknown(self, entry: Any) -> bool:
        artifacts = inductor.cached_artifacts(entry)
        return any(not self._registry.is_known(artifact) for artifact in artifacts)
