"""The table of compilations: time by phase, reason, and cost per step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiler_ext.exporters.compiled import Compiled, lookups_text, profiled_ns, rows
from profiler_ext.exporters.tables.schema import COLUMNS, frame, ratio, real, whole
from profiler_ext.exporters.tables.selection import Selection
from profiler_ext.exporters.tables.table import Table, gather
from profiler_ext.records import events, share_sums
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.compiles import CompileKind, CompilePhase
from profiler_ext.rooflines.rooflines import MaskedFloats

_PHASES = {f"{phase}_ns": phase for phase in CompilePhase}
_NAMES = (
    *("rank", "compilation", "compile_kind", "compile_id", "function", "file", "line", "resumed"),
    *("start_ns", "compile_ns", *_PHASES, "profiled_ns"),
    *("recompile_reason", "recompiles"),
    *("graph_breaks", "break_reason", "break_file", "break_line"),
    *("failure", "cache_detail", "graphs"),
)


def compiles(analysis: Analysis, *, step: int | None = None, rank: int | None = None) -> Table:
    """Return the compilations of the process, longest first.

    Work at a graph's first calls, and in parallel to a compile, is one row per compile id. A
    ``worker`` row ran while another compilation waited for it: leave it out of sums of waiting
    time.

    Columns: function, time by phase, time within profiled steps, recompile reason, graph breaks,
    cache results, and the cost of its graphs in a profiled step.
    """
    selection = Selection(step, rank)
    selection.require_step(analysis)
    chosen = rows(analysis) if selection.has_rank_of(analysis) else []
    if step is not None:
        chosen = [each for each in chosen if profiled_ns(analysis, each, step)]
    return _table(analysis, chosen)


def longest_first(table: Table) -> Table:
    """Return the table with the longest compilation first, workers last."""
    is_worker = [kind == CompileKind.WORKER for kind in table["compile_kind"].tolist()]
    return table.take(np.lexsort((-table["compile_ns"].data, is_worker)))


def _table(analysis: Analysis, chosen: Sequence[Compiled]) -> Table:
    times = np.array([each.duration_ns for each in chosen], np.int64)
    device, launches = _of_graphs(analysis, chosen)
    rank = analysis.recording.settings.rank
    values = [_row(each, rank, profiled_ns(analysis, each)) for each in chosen]
    every = np.arange(len(values))
    named = {
        name: gather([row[name] for row in values], every, COLUMNS[name].dtype) for name in _NAMES
    }
    steps = len(analysis.steps)
    runs = {
        "launches": whole(launches),
        "per_step_ns": ratio(device, steps),
        "as_steps": real(_as_steps(times, device, steps)),
    }
    return longest_first(frame({**named, **runs}))


def _as_steps(times: events.Ints, device: events.Ints, steps: int) -> MaskedFloats:
    """Return the compile time as a multiple of its graphs' step time; masked where none ran."""
    values: MaskedFloats = np.ma.masked_array(times.astype(np.float64), device == 0)
    values *= steps
    values /= np.where(device == 0, 1, device)
    return values


def _row(compiled: Compiled, rank: int, profiled: int) -> dict[str, object]:
    first = compiled.first
    newest = first.recompiles[0] if first.recompiles else None
    broken = first.breaks[0] if first.breaks else None
    place = broken.stack[-1] if broken and broken.stack else None
    return {
        "rank": rank,
        "compilation": first.index,
        "compile_kind": first.kind,
        "compile_id": first.compile_id,
        "function": first.function,
        "file": first.file,
        "line": first.line,
        "resumed": first.is_resumed,
        "start_ns": first.started_ns,
        "compile_ns": compiled.duration_ns,
        **{name: compiled.phase_ns(phase) for name, phase in _PHASES.items()},
        "profiled_ns": profiled,
        "recompile_reason": newest and newest.guard,
        "recompiles": newest and newest.compile_id,
        "graph_breaks": len(first.breaks),
        "break_reason": broken and broken.reason,
        "break_file": place and place.file,
        "break_line": place and place.line,
        "failure": first.failure and first.failure.reason,
        "cache_detail": lookups_text(first.lookups),
        "graphs": len(first.graphs),
    }


def _of_graphs(analysis: Analysis, chosen: Sequence[Compiled]) -> tuple[events.Ints, events.Ints]:
    """Return device time and launches, in profiled steps, of each row's graphs."""
    launches = analysis.launches
    profiled = launches.in_steps & ~np.ma.getmaskarray(launches.graph)
    graph = np.asarray(launches.graph.filled(0), np.int64)[profiled]
    size = len(analysis.recording.graphs)
    count = np.bincount(graph, minlength=size)
    spent = share_sums.sum_by(graph, launches.duration_ns[profiled], size)
    made = [[graph for record in each.every for graph in record.graphs] for each in chosen]
    sums = [np.array([int(of[each].sum()) for each in made], np.int64) for of in (spent, count)]
    return sums[0], sums[1]
