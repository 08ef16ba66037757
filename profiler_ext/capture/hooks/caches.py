"""Owns the hook that sees what torch's caches offer: entries that have a record come first.

A cache may hold several entries under one key, all of them valid. Those that were made without
capture are offered last, or not at all where the user wants them compiled once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from profiler_ext.capture.graphs.registry import Registry
from profiler_ext.capture.observing import Arguments, Around, Keywords, Observer
from profiler_ext.torch_compat import inductor, points
from profiler_ext.torch_compat.patches import Call


class CacheHooks:
    """Orders the candidates of a lookup.

    Attributes:
        recompile: entries without a record are no candidates.
    """

    def __init__(self, observe: Observer, registry: Registry) -> None:
        """Take who knows the records."""
        self.recompile = False
        self._observe = observe
        self._registry = registry

    def arounds(self) -> list[Around]:
        """Return what is wrapped, and what is called in its place."""
        return [(points.CACHE_CANDIDATES, self._candidates)]

    def _candidates(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        return self._ordered(original(*args, **kwargs))

    def _ordered(self, candidates: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        unknown: list[tuple[Any, ...]] = []
        for candidate in candidates:
            if self._observe(self._is_unknown, candidate[0]):
                unknown.append(candidate)
            else:
                yield candidate
        if not (self.recompile and self._observe(_may_miss)):
            yield from unknown

    def _is_unknown(self, entry: Any) -> bool:
        artifacts = inductor.cached_artifacts(entry)
        return any(not self._registry.is_known(artifact) for artifact in artifacts)


def _may_miss() -> bool:
    return not inductor.misses_are_errors()
