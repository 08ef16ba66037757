"""Compiled graphs in report.html, and the generated code of their kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from profiler_ext.exporters import tables
from profiler_ext.exporters.html.sites import Pool
from profiler_ext.exporters.sources import kernel_sources
from profiler_ext.exporters.views.summary import records
from profiler_ext.printable import printable, printable_lines
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Ints

MAX_CODE_CHARS = 2_000_000  # letters
_Identity = tuple[str | None, bool, int, int, int]


def graph_numbers(analyses: Sequence[Analysis]) -> list[Ints]:
    """Return the page's graph numbers for each rank; graphs equal on all ranks share one."""
    known = {each: at for at, each in enumerate(_distinct(analyses))}
    return [
        np.array([known[each] for each in _identities(analysis)], np.int64) for analysis in analyses
    ]


def graph_rows(
    analyses: Sequence[Analysis], texts: Mapping[str, str], codes: Codes
) -> list[dict[str, Any]]:
    """Return a row for each graph, from its first rank."""
    return [_row(*each, texts, codes) for each in _distinct(analyses).values()]


class Codes:
    """The generated code of kernels, each text once, up to a size limit."""

    def __init__(self, times: Mapping[str, int]) -> None:
        self._times, self._pool = times, Pool()
        self._most: dict[int, int] = {}

    def is_wanted(self, kernel: str) -> bool:
        """Return whether a kernel was launched: others are not on the page."""
        return kernel in self._times

    def number(self, kernel: str, text: str) -> int:
        """Return the number of a kernel's code."""
        at = self._pool.code(printable_lines(text))
        self._most[at] = max(self._most.get(at, 0), self._times.get(kernel, 0))
        return at

    def texts(self) -> list[str | None]:
        """Return the texts by number; ``None`` beyond the size limit."""
        texts, room = self._pool.values(), MAX_CODE_CHARS
        kept = dict.fromkeys(range(len(texts)))
        for at in sorted(self._most, key=lambda at: -self._most[at]):
            room -= len(texts[at])
            kept[at] = texts[at] if room >= 0 else None
        return list(kept.values())


def _distinct(analyses: Sequence[Analysis]) -> dict[_Identity, tuple[dict[str, Any], str | None]]:
    """Return each graph once: its table row, and its output module."""
    distinct: dict[_Identity, tuple[dict[str, Any], str | None]] = {}
    for analysis in analyses:
        rows = records(tables.graphs(analysis))
        identities, graphs = _identities(analysis), analysis.recording.graphs
        for identity, row, graph in zip(identities, rows, graphs, strict=True):
            distinct.setdefault(identity, (row, graph.output_module))
    return distinct


def _identities(analysis: Analysis) -> list[_Identity]:
    """Return rank-independent identities of graphs: keys name devices, and differ."""
    seen: Counter[tuple[str | None, bool, int, int]] = Counter()
    identities = []
    for graph in analysis.recording.graphs:
        nodes, call_sites = len(graph.record.nodes), len(graph.record.call_sites)
        own = (graph.compile_id, graph.is_backward, nodes, call_sites)
        identities.append((*own, seen[own]))
        seen[own] += 1
    return identities


def _row(
    row: Mapping[str, Any], module: str | None, texts: Mapping[str, str], codes: Codes
) -> dict[str, Any]:
    text = texts.get(module or "")
    shown = {name: printable(each) if isinstance(each, str) else each for name, each in row.items()}
    sources = kernel_sources(text or "").items()
    ran = ((name, code) for name, code in sources if codes.is_wanted(name))
    kernels = {printable(name): codes.number(name, code) for name, code in ran}
    return shown | {"kernels": kernels, "module_is_here": text is not None}
