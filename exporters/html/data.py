"""Owns the data that report.html carries: names once, everything else by number.

The page's ``model.js`` reads what is written here; each list's fields are named there too.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from profiler_ext.exporters import tables
from profiler_ext.exporters.display_text import gap_text, records, short_path
from profiler_ext.exporters.generated_code import kernel_sources
from profiler_ext.exporters.html.near import near
from profiler_ext.exporters.html.sites import Site, sites
from profiler_ext.exporters.sources import SourceFile, is_users_own, source_files
from profiler_ext.printable import printable, printable_lines
from profiler_ext.records import Analysis, Frame, Phase, Place, Scope

ABSENT = -1


class Pool:
    """Numbers distinct values in the order in which they are first seen."""

    def __init__(self) -> None:
        """Start with no value."""
        self._codes: dict[Hashable, int] = {}

    def code(self, value: Hashable) -> int:
        """Return the number of a value; of ``None``, ``ABSENT``."""
        return ABSENT if value is None else self._codes.setdefault(value, len(self._codes))

    def codes(self) -> Mapping[Any, int]:
        """Return the number of each value."""
        return self._codes

    def values(self) -> list[Any]:
        """Return the values by their number."""
        return list(self._codes)


def report_data(analysis: Analysis, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page shows, as what JSON can hold.

    Args:
        analysis: what attribution found.
        texts: recorded path to the text of that file.

    Returns:
        ``places`` are rows of numbers into the pools beside them, ``sites`` are launches with
        their parts, ``files`` the sources, ``graphs`` the compiled graphs with their kernels'
        code.
    """
    pools = {name: Pool() for name in ("lines", "modules", "ops", "gaps", "kernels", "stacks")}
    files = source_files(analysis, texts)
    paths = {file.path: number for number, file in enumerate(files)}
    places = [_place(place, pools, paths) for place in analysis.places]
    rows = [_site(site, pools) for site in sites(analysis)]
    of_lines = {(files[file].path, n): at for (file, n), at in pools["lines"].codes().items()}
    of_modules = {(path,): at for (path, _), at in pools["modules"].codes().items()}
    return {
        "near": near(analysis, of_lines, of_modules, pools["kernels"].codes()),
        "steps": len(analysis.steps),
        "phases": [phase.value for phase in Phase],
        "files": [_file(file, analysis) for file in files],
        "graphs": _graphs(analysis, texts),
        "places": places,
        "sites": rows,
        "lines": pools["lines"].values(),
        "modules": [tuple(map(printable, names)) for names in pools["modules"].values()],
        "ops": [printable(op) for op in pools["ops"].values()],
        "gaps": [printable(gap_text(gap)) for gap in pools["gaps"].values()],
        "kernels": [tuple(map(printable, names)) for names in pools["kernels"].values()],
        "stacks": pools["stacks"].values(),
    }


def _place(place: Place, pools: Mapping[str, Pool], paths: Mapping[str, int]) -> list[Any]:
    module = None if place.module is None else (place.module, place.module_class or "")
    callers = tuple(_callers(place, pools["lines"], paths))
    return [
        _line(place.file, place.line, pools["lines"], paths),
        pools["modules"].code(module),
        pools["ops"].code(place.aten_op),
        list(Phase).index(place.phase),
        pools["gaps"].code(place.gap),
        pools["stacks"].code(callers),
        printable(place.node or ""),
    ]


def _callers(place: Place, lines: Pool, paths: Mapping[str, int]) -> list[int]:
    def is_own(frame: Frame) -> bool:
        return (frame.file, frame.line) == (place.file, place.line)

    outer = (_line(f.file, f.line, lines, paths) for f in place.stack if not is_own(f))
    return [number for number in dict.fromkeys(outer) if number != ABSENT]


def _line(file: str | None, line: int | None, lines: Pool, paths: Mapping[str, int]) -> int:
    known = file is not None and line is not None and file in paths
    return lines.code((paths[file], line)) if known and file is not None else ABSENT


def _site(site: Site, pools: Mapping[str, Pool]) -> list[Any]:
    return [
        pools["kernels"].code((site.kernel, site.name, site.kind)),
        ABSENT if site.graph is None else site.graph,
        ABSENT if site.call_site is None else site.call_site,
        int(site.scope == Scope.EAGER),
        site.launches,
        site.duration_ns,
        [number for part in site.parts for number in part],
    ]


def _file(file: SourceFile, analysis: Analysis) -> dict[str, Any]:
    settings = analysis.recording.settings
    return {
        "path": printable(file.path),
        "name": printable(short_path(file.path, settings)),
        "own": is_users_own(file.path, settings),
        "missing": file.missing,
        "numbers": list(file.lines) if file.missing else [],
        "lines": [printable(line.expandtabs()) for line in file.lines.values()],
    }


def _graphs(analysis: Analysis, texts: Mapping[str, str]) -> list[dict[str, Any]]:
    graphs = analysis.recording.graphs
    rows = map(_printable_texts, records(tables.graphs(analysis)))
    texts_of_graphs = [texts.get(graph.output_module or "") for graph in graphs]
    return [
        row | {"kernels": _kernels(text or ""), "module_is_here": text is not None}
        for row, text in zip(rows, texts_of_graphs, strict=True)
    ]


def _kernels(module_text: str) -> dict[str, str]:
    sources = kernel_sources(module_text)
    return {printable(name): printable_lines(text) for name, text in sources.items()}


def _printable_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: printable(each) if isinstance(each, str) else each for name, each in row.items()}
