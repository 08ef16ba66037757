"""Owns what report.html knows of compiled graphs, and the generated code of their kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from profiler_ext.exporters import tables
from profiler_ext.exporters.display_text import records
from profiler_ext.exporters.generated_code import kernel_sources
from profiler_ext.printable import printable, printable_lines
from profiler_ext.records import Analysis, GraphInstance, Ints

_Identity = tuple[str | None, bool, int, int, int]


def graph_numbers(analyses: Sequence[Analysis]) -> list[Ints]:
    """Return the page's number of each graph of each rank; those alike on all ranks are one.

    Args:
        analyses: one for each rank.
    """
    known = {each: at for at, each in enumerate(_distinct(analyses))}
    return [
        np.array([known[each] for each in _identities(analysis)], np.int64) for analysis in analyses
    ]


def graph_rows(analyses: Sequence[Analysis], texts: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a row for each graph of the page, with its kernels' code, as of its first rank.

    Args:
        analyses: one for each rank.
        texts: path of an output module to its text.
    """
    return [_row(*each, texts) for each in _distinct(analyses).values()]


def _distinct(analyses: Sequence[Analysis]) -> dict[_Identity, tuple[dict[str, Any], str | None]]:
    """Return each graph once: its row of the table, and its output module."""
    found: dict[_Identity, tuple[dict[str, Any], str | None]] = {}
    for analysis in analyses:
        rows = records(tables.graphs(analysis))
        identities, graphs = _identities(analysis), analysis.recording.graphs
        for identity, row, graph in zip(identities, rows, graphs, strict=True):
            found.setdefault(identity, (row, graph.output_module))
    return found


def _identities(analysis: Analysis) -> list[_Identity]:
    """Return what tells graphs apart on every rank: keys name devices, and differ."""
    seen: Counter[tuple[str | None, bool, int, int]] = Counter()
    identities = []
    for graph in analysis.recording.graphs:
        own = _own(graph)
        identities.append((*own, seen[own]))
        seen[own] += 1
    return identities


def _own(graph: GraphInstance) -> tuple[str | None, bool, int, int]:
    record = graph.record
    return graph.compile_id, graph.is_backward, len(record.nodes), len(record.call_sites)


def _row(row: Mapping[str, Any], module: str | None, texts: Mapping[str, str]) -> dict[str, Any]:
    text = texts.get(module or "")
    shown = {name: printable(each) if isinstance(each, str) else each for name, each in row.items()}
    return shown | {"kernels": _kernels(text or ""), "module_is_here": text is not None}


def _kernels(module_text: str) -> dict[str, str]:
    sources = kernel_sources(module_text)
    return {printable(name): printable_lines(text) for name, text in sources.items()}
