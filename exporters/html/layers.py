"""Owns which layers report.html folds, and which of them it marks as standing out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from profiler_ext.exporters.html.pools import ABSENT, Pools
from profiler_ext.exporters.html.sites import Site
from profiler_ext.exporters.module_tree import ANY, folded_paths, inclusive_times, outliers
from profiler_ext.printable import printable
from profiler_ext.records import Ints

_MODULE = 1  # where a place's row has its module


class Layers:
    """Folds numbered modules, and judges them by the sums of a slice."""

    def __init__(self, pools: Pools, sites: Sequence[Site]) -> None:
        """Find what folds, and the module of each part.

        Args:
            pools: has the modules and the places.
            sites: the sites, whose parts are numbered one after the other.
        """
        self._paths = [path for path, _ in pools.modules.values()]
        classes = dict(pools.modules.values())
        self._folds = folded_paths(inclusive_times(dict.fromkeys(self._paths, 0)), classes)
        modules = [row[_MODULE] for row in pools.places.values()]
        self._module = [np.array([modules[p] for p in site.places], np.int64) for site in sites]

    def folded(self) -> list[str]:
        """Return the layers that are one with their like."""
        outliers_found = (path for path, fold in self._folds.items() if fold.rpartition(".")[2] == ANY)
        return [printable(path) for path in outliers_found]

    def outliers(self, sums: Mapping[str, Any]) -> list[tuple[str, int, int]]:
        """Return the layers that stand out, each with its time and the median of its like.

        Args:
            sums: the sums of a slice.
        """
        outliers_found = outliers(inclusive_times(self._own(sums)), self._folds)
        return [(printable(p), each.inclusive_ns, each.median_ns) for p, each in outliers_found.items()]

    def _own(self, sums: Mapping[str, Any]) -> dict[str, int]:
        chosen = [self._module[site] for site in sums["sites"]]
        modules: Ints = np.concatenate(chosen) if chosen else np.empty(0, np.int64)
        times = np.zeros(len(self._paths) + 1, np.int64)
        np.add.at(times, modules, np.array(sums["times"], np.int64))  # ABSENT is the last
        own: dict[str, int] = {}
        for path, time in zip(self._paths, times[:ABSENT].tolist(), strict=True):
            own[path] = own.get(path, 0) + time
        return own
