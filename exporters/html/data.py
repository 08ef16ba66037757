"""The data of report.html: names once, everything else by number. ``model.js`` reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from profiler_ext.exporters import tables
from profiler_ext.exporters.html.graphs import Codes, graph_numbers, graph_rows
from profiler_ext.exporters.html.memory import memory_data
from profiler_ext.exporters.html.single_launches import single_launches
from profiler_ext.exporters.html.sites import ABSENT, Pool, Pools, Site, sites_of
from profiler_ext.exporters.html.slices import (
    Choices,
    Slice,
    Sums,
    choices,
    rank_number,
    step_without_communication_ns,
)
from profiler_ext.exporters.html.steps import StepColumn, step_columns
from profiler_ext.exporters.html.timeline import timelines
from profiler_ext.exporters.sources import (
    SourceFile,
    is_user_file,
    recorded_lines,
    sources_of_ranks,
)
from profiler_ext.exporters.tables.selection import Selection
from profiler_ext.exporters.tables.sums import kernel_keys, with_rooflines
from profiler_ext.exporters.views.formatting import gap_text, short_kernel, short_path
from profiler_ext.exporters.views.modules import (
    ANY,
    folded_paths,
    inclusive_times,
    outliers,
    root_label,
    tree_rooflines,
)
from profiler_ext.exporters.views.rooflines import roofline_text, work_text
from profiler_ext.exporters.views.summary import records
from profiler_ext.printable import printable
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.events import Codes as PlaceCodes
from profiler_ext.records.events import Ints
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import Settings
from profiler_ext.records.share_sums import sum_by, sum_by_name
from profiler_ext.records.step_kinds import of_usual_kind
from profiler_ext.records.vocabulary import Phase
from profiler_ext.rooflines.peaks import PEAKS

MAX_SOURCE_CHARS = 4_000_000  # letters
_NO_ROOM = f"the page carries {MAX_SOURCE_CHARS // 1_000_000} MB of source, the user's own first"
_MODULE = 1  # where a place's row has its module
CodeByKey = Mapping[Any, int]


def files_shown(
    analyses: Sequence[Analysis], texts: Mapping[str, str], most: int = MAX_SOURCE_CHARS
) -> list[SourceFile]:
    """Return the source files, the user's own first; beyond ``most`` only recorded lines."""
    every = sources_of_ranks(analyses, texts)
    recorded: dict[str, dict[int, str]] = {}
    for analysis in analyses:
        for path, lines in recorded_lines(analysis).items():
            recorded.setdefault(path, {}).update(lines)
    return list(_bounded(every, recorded, most))


def _bounded(
    every: Sequence[SourceFile], recorded: Mapping[str, Mapping[int, str]], room: int
) -> Iterator[SourceFile]:
    for file in every:
        size = sum(map(len, file.lines.values()))
        if file.missing or size <= room:
            room -= size
            yield file
        else:
            lines = dict(sorted(recorded[file.path].items()))
            yield replace(file, lines=lines, missing=_NO_ROOM)


def file_row(file: SourceFile, settings: Settings) -> dict[str, Any]:
    """Return a source file as JSON for the page."""
    return {
        "path": printable(file.path),
        "name": printable(short_path(file.path, settings)),
        "own": is_user_file(file.path, settings),
        "missing": file.missing,
        "numbers": list(file.lines) if file.missing else [],
        "lines": [printable(line.expandtabs()) for line in file.lines.values()],
    }


def place_row(place: Place, pools: Pools, paths: Mapping[str, int]) -> tuple[int | str, ...]:
    """Return a place as numbers: line, module, op, phase, gap, stack; and its node."""
    module = None if place.module is None else (place.module, place.module_class or "")
    callers = tuple(_callers(place, pools.lines, paths))
    return (
        _line_code(place.file, place.line, pools.lines, paths),
        pools.modules.code(module),
        pools.ops.code(place.aten_op),
        list(Phase).index(place.phase),
        pools.gaps.code(place.gap),
        pools.stacks.code(callers),
        printable(place.node or ""),
    )


def _callers(place: Place, lines: Pool, paths: Mapping[str, int]) -> list[int]:
    def is_own(frame: Frame) -> bool:
        return (frame.file, frame.line) == (place.file, place.line)

    outer = (_line_code(f.file, f.line, lines, paths) for f in place.stack if not is_own(f))
    return [number for number in dict.fromkeys(outer) if number != ABSENT]


def _line_number(lines: Pool, paths: Mapping[str, int], place: Place) -> int:
    return _line_code(place.file, place.line, lines, paths)


def _line_code(file: str | None, line: int | None, lines: Pool, paths: Mapping[str, int]) -> int:
    known = file is not None and line is not None and file in paths
    return lines.code((paths[file], line)) if known and file is not None else ABSENT


class Layers:
    """Folds numbered layers, and finds the outliers in a slice."""

    def __init__(self, pools: Pools, sites: Sequence[Site]) -> None:
        self._paths = [path for path, _ in pools.modules.values()]
        # A collective's place has the layer that it serves, and not its class
        classes = {path: name for path, name in pools.modules.values() if name}
        self._folds = folded_paths(inclusive_times(dict.fromkeys(self._paths, 0)), classes)
        modules = [row[_MODULE] for row in pools.places.values()]
        self._module = [np.array([modules[p] for p in site.places], np.int64) for site in sites]

    def folded(self) -> list[str]:
        """Return the layers that are folded."""
        folds = self._folds.items()
        return [printable(path) for path, fold in folds if fold.rpartition(".")[2] == ANY]

    def outliers(self, sums: Mapping[str, Any]) -> list[tuple[str, int, int]]:
        """Return the outlier layers, each with its time and the median of its siblings."""
        entries = outliers(inclusive_times(self._own(sums)), self._folds)
        return [(printable(p), each.inclusive_ns, each.median_ns) for p, each in entries.items()]

    def _own(self, sums: Mapping[str, Any]) -> dict[str, int]:
        chosen = [self._module[site] for site in sums["sites"]]
        modules: Ints = np.concatenate(chosen) if chosen else np.empty(0, np.int64)
        # ABSENT is the last.
        times = sum_by(modules, np.array(sums["times"], np.int64), len(self._paths) + 1)
        return sum_by_name(zip(self._paths, times[:ABSENT].tolist(), strict=True))


def roofline_rows(analysis: Analysis, lines: CodeByKey, kernels: CodeByKey) -> dict[str, Any]:
    """Return rooflines and possible savings of lines, modules and kernels.

    Lines and kernels: number, roofline text, savings in ns, work text, GB/s. Modules, folded and
    not: path, roofline text, savings with all children.
    """
    by_kernel = with_rooflines(analysis, kernel_keys(analysis), Selection(), PEAKS)
    return {
        "lines": _roofline_rows(tables.by_line(analysis), ("file", "line"), lines),
        "modules": _module_rooflines(records(tables.by_module(analysis))),
        "kernels": _roofline_rows(by_kernel, ("kernel", "name", "kind"), kernels),
    }


def _module_rooflines(every: list[dict[str, Any]]) -> list[list[Any]]:
    rows = [row for row in every if row["module"] is not None]
    entries = tree_rooflines(rows, fold=False) | tree_rooflines(rows)
    texts = ((path, roofline_text(row), row["could_save_ns"]) for path, row in entries.items())
    return [[printable(path), text, saved] for path, text, saved in texts if text or saved]


def _roofline_rows(table: tables.Table, keys: tuple[str, ...], codes: CodeByKey) -> list[list[Any]]:
    return list(_rows_with_code(records(table), keys, codes))


def _rows_with_code(
    rows: Iterable[Mapping[str, Any]], keys: tuple[str, ...], codes: CodeByKey
) -> Iterable[list[Any]]:
    for row in rows:
        code = codes.get(tuple(row[key] for key in keys))
        roofline_label, work = roofline_text(row), work_text(row)
        if code is not None and (roofline_label or work):
            rate = row["est_gb_per_s"]
            rounded = None if rate is None else round(rate)
            yield [code, roofline_label, row["could_save_ns"] or 0, work, rounded]


def report_data(
    analyses: Sequence[Analysis], texts: Mapping[str, str]
) -> tuple[dict[str, Any], Choices]:
    """Return the page's data for JSON, and what it can be filtered to.

    ``sites`` are what launches share, ``slices`` their sums, ``places`` rows of numbers into pools.
    """
    settings = analyses[0].recording.settings
    slowest = of_usual_kind(max(analyses, key=step_without_communication_ns))
    files, pools = files_shown(analyses, texts), Pools()
    paths = {file.path: number for number, file in enumerate(files)}
    places = [_place_numbers(analysis, pools, paths) for analysis in analyses]
    sites = sites_of(analyses, pools.kernels, graph_numbers(analyses), places)
    chosen, layers = choices(analyses, sites), Layers(pools, sites.sites)
    sums = Sums(analyses, sites)
    codes = Codes(_kernel_times(analyses))
    line_number = partial(_line_number, pools.lines, paths)
    of_lines = {(files[file].path, n): at for (file, n), at in pools.lines.codes().items()}
    data = {
        "rooflines": roofline_rows(slowest, of_lines, pools.kernels.codes()),
        "roofline_steps": len(slowest.steps),
        "roofline_rank": rank_number(slowest) if len(analyses) > 1 else None,
        "phases": [phase.value for phase in Phase],
        "files": [file_row(file, settings) for file in files],
        "graphs": graph_rows(analyses, texts, codes),
        "codes": codes.texts(),
        "sites": [(s.kernel, s.graph, s.call_site, int(s.is_eager), s.places) for s in sites.sites],
        "slices": [_slice(each, sums.of(each), layers) for each in chosen.slices],
        "layers": layers.folded(),
        "steps": _steps(analyses),
        "launch_stats": single_launches(analyses, sites),
        "timelines": timelines(analyses, sites, line_number),
        "memory": memory_data(analyses, line_number),
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
    """Return a kernel's name, the device's name, the kind, and short forms of both names."""
    is_one = own.endswith(name) or name.startswith(("triton_", "cpp_"))
    shown = (short_kernel(name), "" if is_one else short_kernel(own))
    return tuple(map(printable, (name, own, kind, *shown)))


def _kernel_times(analyses: Sequence[Analysis]) -> dict[str, int]:
    every: list[tuple[str, int]] = []
    for launches in (analysis.launches for analysis in analyses):
        kernels = launches.kernel.strings
        times = sum_by(launches.kernel.codes, launches.duration_ns, len(kernels))
        every += zip(kernels, times.tolist(), strict=True)
    return sum_by_name(every)


def _place_numbers(analysis: Analysis, pools: Pools, paths: Mapping[str, int]) -> PlaceCodes:
    rows = (place_row(place, pools, paths) for place in analysis.places)
    return np.array([pools.places.code(row) for row in rows], np.int32)


def _steps(analyses: Sequence[Analysis]) -> list[tuple[int, list[tuple[int, ...]]]]:
    """Return for each rank the chart columns: steps, wall, busy, phases."""
    entries = step_columns(analyses).items()
    return [(rank, [_flat(column) for column in columns]) for rank, columns in entries]


def _flat(c: StepColumn) -> tuple[int, ...]:
    return (c.first, c.last, c.wall_ns, min(c.walls_ns), max(c.walls_ns), c.busy_ns, *c.phases_ns)


def _slice(each: Slice, sums: dict[str, Any], layers: Layers) -> dict[str, Any]:
    named = {"rank": each.rank, "step": each.step, "spans": each.spans, "wall": each.wall_ns}
    return {**named, **sums, "outliers": layers.outliers(sums)}
