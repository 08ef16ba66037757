"""Kernel tables: by kernel, and by call site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

import numpy as np

from profiler_ext.exporters.tables import sums
from profiler_ext.exporters.tables.rows import (
    common_launch_shapes,
    input_shapes,
    launch_shapes_of,
    shape_columns,
    site_paths,
)
from profiler_ext.exporters.tables.schema import whole
from profiler_ext.exporters.tables.selection import Filters, Selection
from profiler_ext.exporters.tables.table import INT, TEXT, AnyColumn, Table, gather
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Codes, Ints
from profiler_ext.records.share_sums import largest_places
from profiler_ext.rooflines.peaks import PEAKS, Peak

_SITE = ("graph", "call_site", "file", "line", "module", "input_shapes", "grid", "block")


def by_kernel(
    analysis: Analysis, *, peaks: Mapping[str, Peak] = PEAKS, **filters: Unpack[Filters]
) -> Table:
    """Return device time by kernel, longest first.

    ``kernel`` is Inductor's name or the event's, ``name`` the device's own (a library's choice).
    Launch shapes are absent where launches differ.
    """
    keys, selection = sums.kernel_keys(analysis), Selection(**filters)
    key, launch = keys.select(analysis, selection).launch_pairs()
    of_kernel = common_launch_shapes(analysis, key, launch, len(keys.table))
    times = _times(analysis.launches.duration_ns[launch], key, len(keys.table))
    return sums.with_rooflines(analysis, keys, selection, peaks, times | of_kernel)


def by_site(
    analysis: Analysis, *, peaks: Mapping[str, Peak] = PEAKS, **filters: Unpack[Filters]
) -> Table:
    """Return device time by kernel and call site, longest first.

    A site is a call site of a compiled graph, or a line of eager work; other shapes, grids or
    blocks are rows of their own. Line and module are those of a launch's largest part.
    """
    keys, selection = site_keys(analysis), Selection(**filters)
    key, launch = keys.select(analysis, selection).launch_pairs()
    times = _times(analysis.launches.duration_ns[launch], key, len(keys.table))
    return sums.with_rooflines(analysis, keys, selection, peaks, times)


def _times(duration_ns: Ints, key: Ints, rows: int) -> dict[str, AnyColumn]:
    """Return the min, median and max launch time of each key."""
    order = np.lexsort((duration_ns, key))
    sorted_ns = np.append(duration_ns[order], 0)  # a key without launches reads what is not used
    first, end = (np.searchsorted(key[order], np.arange(rows), side) for side in ("left", "right"))
    middle = sorted_ns[(first + end - 1) // 2] + sorted_ns[(first + end) // 2]
    columns = {"min_ns": sorted_ns[first], "median_ns": middle // 2, "max_ns": sorted_ns[end - 1]}
    return {name: whole(column) for name, column in columns.items()}


def site_keys(analysis: Analysis) -> sums.Keys:
    """Return kernels and their call sites."""
    launches, kernels = analysis.launches, sums.kernel_columns(analysis)
    places, shapes = largest_places(analysis), input_shapes(analysis)
    launched = launch_shapes_of(analysis)
    codes: list[Ints | Codes] = [launches.graph.filled(-1), launches.call_site.filled(-1)]
    codes += [*(column.codes for column in kernels.values()), places, shapes.codes, launched.codes]
    paths = site_paths(analysis)

    def columns_at(rows: Ints) -> dict[str, AnyColumn]:
        graphs, graph = analysis.recording.graphs, analysis.launches.graph[rows]
        graph_columns = {
            "graph": gather([each.key for each in graphs], graph, TEXT),
            "compile_id": gather([each.compile_id for each in graphs], graph, TEXT),
        }
        return {
            **sums.texts_at(kernels, rows),
            **graph_columns,
            "call_site": paths.take(rows),
            **_place_columns(analysis, places[rows]),
            **sums.texts_at({"input_shapes": shapes}, rows),
            **shape_columns(analysis, rows),
        }

    return sums.launch_keys(analysis, codes, columns_at, [*kernels, *_SITE])


def _place_columns(analysis: Analysis, places: Ints) -> dict[str, AnyColumn]:
    distinct, codes = np.unique(places, return_inverse=True)
    chosen = [analysis.places[place] for place in distinct.tolist()]
    texts = ("file", "function", "code", "module")
    columns = {name: gather([getattr(p, name) for p in chosen], codes, TEXT) for name in texts}
    line = gather([place.line for place in chosen], codes, INT)
    return {"file": columns.pop("file"), "line": line, **columns}
