"""Owns the data that report.html carries: names once, everything else by number.

The page's ``model.js`` reads what is written here; each list's fields are named there too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from profiler_ext.exporters.display_text import gap_text
from profiler_ext.exporters.html.choices import step_without_communication_ns, rank_number
from profiler_ext.exporters.html.files import file_row, files_shown
from profiler_ext.exporters.html.graphs import Codes, graph_numbers, graph_rows
from profiler_ext.exporters.html.layers import Layers
from profiler_ext.exporters.html.near import near
from profiler_ext.exporters.html.places import place_row
from profiler_ext.exporters.html.pools import Pools
from profiler_ext.exporters.html.single_launches import single_launches
from profiler_ext.exporters.html.sites import Sites, sites_of
from profiler_ext.exporters.html.slices import Choices, Slice, Sums, choices
from profiler_ext.exporters.html.steps import StepColumn, step_columns
from profiler_ext.exporters.module_tree import root_label
from profiler_ext.exporters.short_texts import short_kernel
from profiler_ext.printable import printable
from profiler_ext.records import Analysis, Phase
from profiler_ext.records import Codes as PlaceCodes


def report_data(
    analyses: Sequence[Analysis], texts: Mapping[str, str]
) -> tuple[dict[str, Any], Choices]:
    """Return what the page shows, as what JSON can hold, and what it can be narrowed to.

    Args:
        analyses: what attribution found, one for each rank.
        texts: recorded path to the text of that file.

    Returns:
        ``places`` are rows of numbers into the pools beside them, ``sites`` are what launches
        share, ``slices`` their sums by rank and step, ``files`` the sources, ``graphs`` the
        compiled graphs with their kernels' code.
    """
    settings, slowest = analyses[0].recording.settings, max(analyses, key=step_without_communication_ns)
    files, pools = files_shown(analyses, texts), Pools()
    paths = {file.path: number for number, file in enumerate(files)}
    sites = _sites(analyses, pools, paths)
    chosen, layers = choices(analyses, sites), Layers(pools, sites.sites)
    codes = Codes(_kernel_times(analyses))
    of_lines = {(files[file].path, n): at for (file, n), at in pools.lines.codes().items()}
    data = {
        "near": near(slowest, of_lines, pools.kernels.codes()),
        "near_steps": len(slowest.steps),
        "near_rank": rank_number(slowest) if len(analyses) > 1 else None,
        "phases": [phase.value for phase in Phase],
        "files": [file_row(file, settings) for file in files],
        "graphs": graph_rows(analyses, texts, codes),
        "codes": codes.texts(),
        "sites": [(s.kernel, s.graph, s.call_site, int(s.is_eager), s.places) for s in sites.sites],
        "slices": _slices(analyses, sites, chosen, layers),
        "layers": layers.folded(),
        "steps": _steps(analyses),
        "single": single_launches(analyses, sites),
        "lines": pools.lines.values(),
        "modules": [tuple(map(printable, names)) for names in pools.modules.values()],
        "root": root_label(settings.models),
        "ops": [printable(op) for op in pools.ops.values()],
        "gaps": [printable(gap_text(gap)) for gap in pools.gaps.values()],
        "kernels": [_kernel(*names) for names in pools.kernels.values()],
        "stacks": pools.stacks.values(),
        "places": pools.places.values(),
    }
    return data, chosen


def _kernel(name: str, own: str, kind: str) -> tuple[str, ...]:
    """Return a kernel's name, the device's own, its kind, and short what is shown of both."""
    is_one = own.endswith(name) or name.startswith(("triton_", "cpp_"))
    shown = (short_kernel(name), "" if is_one else short_kernel(own))
    return tuple(map(printable, (name, own, kind, *shown)))


def _kernel_times(analyses: Sequence[Analysis]) -> dict[str, int]:
    times: dict[str, int] = {}
    for launches in (analysis.launches for analysis in analyses):
        sums = np.zeros(len(launches.kernel.strings), np.int64)
        np.add.at(sums, launches.kernel.codes, launches.duration_ns)
        for kernel, time in zip(launches.kernel.strings, sums.tolist(), strict=True):
            times[kernel] = times.get(kernel, 0) + time
    return times


def _sites(analyses: Sequence[Analysis], pools: Pools, paths: Mapping[str, int]) -> Sites:
    places = [_place_numbers(analysis, pools, paths) for analysis in analyses]
    return sites_of(analyses, pools.kernels, graph_numbers(analyses), places)


def _place_numbers(analysis: Analysis, pools: Pools, paths: Mapping[str, int]) -> PlaceCodes:
    rows = (place_row(place, pools, paths) for place in analysis.places)
    return np.array([pools.places.code(row) for row in rows], np.int32)


def _steps(analyses: Sequence[Analysis]) -> list[tuple[int, list[tuple[int, ...]]]]:
    """Return for each rank what one can read of a column: steps, wall, busy, phases."""
    found = step_columns(analyses).items()
    return [(rank, [_flat(column) for column in columns]) for rank, columns in found]


def _flat(c: StepColumn) -> tuple[int, ...]:
    return (c.first, c.last, c.wall_ns, min(c.walls_ns), max(c.walls_ns), c.busy_ns, *c.phases_ns)


def _slices(
    analyses: Sequence[Analysis], sites: Sites, chosen: Choices, layers: Layers
) -> list[dict[str, Any]]:
    sums = Sums(analyses, sites)
    return [_slice(each, sums.of(each), layers) for each in chosen.slices]


def _slice(each: Slice, sums: dict[str, Any], layers: Layers) -> dict[str, Any]:
    named = {"rank": each.rank, "step": each.step, "spans": each.spans, "wall": each.wall_ns}
    return {**named, **sums, "outliers": layers.outliers(sums)}
