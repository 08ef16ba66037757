"""The table of buffers between the kernels of compiled graphs, and why they were not fused away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from profiler_ext.exporters.tables.overview import graph_phase
from profiler_ext.exporters.tables.schema import COLUMNS, frame, ratio
from profiler_ext.exporters.tables.selection import Filters, Selection
from profiler_ext.exporters.tables.table import INT, AnyColumn, Table, gather, numbers
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Ints
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.rooflines.intermediates import PassedBuffer, Side, passed_buffers

_GRAPH: Mapping[str, Callable[[GraphInstance], Any]] = {
    "graph": lambda graph: graph.key,
    "compile_id": lambda graph: graph.compile_id,
    "phase": graph_phase,
}
_BUFFER: Mapping[str, Callable[[PassedBuffer], Any]] = {
    "buffer": lambda each: each.passed.buffer,
    "read_bytes": lambda each: each.passed.read_bytes,
    "written_bytes": lambda each: each.passed.written_bytes,
    "barrier": lambda each: each.barrier,
    "reason": lambda each: each.reason,
}
_SIDE: Mapping[str, Callable[[Side], Any]] = {
    "kernel": lambda side: side.site.kernel,
    "call_site": lambda side: side.site.path,
    "file": lambda side: side.place and side.place.file,
    "line": lambda side: side.place and side.place.line,
    "code": lambda side: side.place and side.place.code,
    "module": lambda side: side.place and side.place.module,
    "duration_ns": lambda side: side.duration_ns,
}


def fusions(analysis: Analysis, **filters: Unpack[Filters]) -> Table:
    """Return one row per buffer that one kernel of a graph stores and another loads.

    ``kernel``, ``file`` and their like are of the kernel that stores it; of the one that loads it
    they begin with ``reader_``. The largest possible saving comes first.
    """
    selection = Selection(**filters)
    analysis = selection.narrowed(analysis, is_sum=True)
    chosen = selection.profiled(analysis)
    rows = [each for each in passed_buffers(analysis) if _is_chosen(analysis, each, selection)]
    passes = np.array([int(chosen[each.calls].sum()) for each in rows], np.int64)
    kept = [each for each, count in zip(rows, passes.tolist(), strict=True) if count]
    return _frame(analysis, kept, passes[passes > 0], selection.count_steps(analysis))


def _is_chosen(analysis: Analysis, passed: PassedBuffer, selection: Selection) -> bool:
    phase = graph_phase(analysis.recording.graphs[passed.graph])
    return selection.phase in (None, phase)


def _frame(analysis: Analysis, rows: Sequence[PassedBuffer], passes: Ints, steps: int) -> Table:
    every, graphs = np.arange(len(rows)), [analysis.recording.graphs[each.graph] for each in rows]

    def column(name: str, values: Sequence[Any]) -> AnyColumn:
        return gather(values, every, COLUMNS[name].dtype)

    saved = np.array([each.could_save_ns or 0 for each in rows], np.int64)
    every_pass = np.array([len(each.calls) for each in rows], np.int64)
    unknown = np.array([each.could_save_ns is None for each in rows], np.bool_)
    saving = np.ma.MaskedArray(saved * passes // every_pass, unknown)
    columns = {
        "rank": gather([analysis.recording.settings.rank] * len(rows), every, INT),
        **{name: column(name, [of(graph) for graph in graphs]) for name, of in _GRAPH.items()},
        **{name: column(name, [of(each) for each in rows]) for name, of in _BUFFER.items()},
        **{name: column(name, [of(each.writer) for each in rows]) for name, of in _SIDE.items()},
        **{
            f"reader_{name}": column(name, [of(each.reader) for each in rows])
            for name, of in _SIDE.items()
        },
        "passes": numbers(passes, INT),
        "could_save_ns": numbers(saving, INT),
        "could_save_per_step_ns": ratio(saving.filled(0), steps),
    }
    return frame(columns)
