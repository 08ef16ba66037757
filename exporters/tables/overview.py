"""Session tables: compiled graphs, step time breakdown, MFU by step, findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Unpack

import msgspec
import numpy as np

from profiler_ext.errors import UsageError
from profiler_ext.exporters.tables import schema
from profiler_ext.exporters.tables.selection import Filters, Selection
from profiler_ext.exporters.tables.table import FLOAT, INT, TEXT, AnyColumn, Dtype, Table, gather
from profiler_ext.findings import Finding, find
from profiler_ext.records.analysis import Analysis, BreakdownRow, Place
from profiler_ext.records.evidence import ForwardEvidence
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.records.share_sums import profiled_shares, sum_by
from profiler_ext.records.step_kinds import kinds_of_steps
from profiler_ext.records.vocabulary import Level, Phase, Scope
from profiler_ext.rooflines.peaks import PEAKS, Peak
from profiler_ext.rooflines.utilisation import Utilisation, utilisation_by_step

_SCOPES = tuple(Scope)
_BUSY = tuple(scope for scope in Scope if scope is not Scope.IDLE)
_BEST_FIRST = tuple(Level)
_Entry = tuple[str, str | None, str]
_COLUMNS: Mapping[str, tuple[Dtype, Callable[[Utilisation], Any]]] = {
    "wall_ns": (INT, lambda by_step: by_step.wall_ns),
    "est_flops": (INT, lambda by_step: by_step.flops),
    "unit": (TEXT, lambda by_step: by_step.by_unit[0][0]),
    "mfu": (FLOAT, lambda by_step: by_step.mfu),
    "known_fraction": (FLOAT, lambda by_step: by_step.known_fraction),
    "counted_fraction": (FLOAT, lambda by_step: by_step.counted_fraction),
}
_PLACE: tuple[tuple[str, Dtype], ...] = (
    ("file", TEXT),
    ("line", INT),
    ("code", TEXT),
    ("module", TEXT),
    ("kernel", TEXT),
)


def graphs(analysis: Analysis, **filters: Unpack[Filters]) -> Table:
    """Return one row per graph instance, in order of registration.

    Filters: the step in which it launched something, its rank, its phase (forward, backward or
    optimizer).
    """
    chosen = _chosen_graphs(analysis, Selection(**filters))
    every = np.arange(len(chosen))
    columns = {
        "key": gather([graph.key for graph in chosen], every, TEXT),
        "compile_id": gather([graph.compile_id for graph in chosen], every, TEXT),
        "phase": gather([graph_phase(graph) for graph in chosen], every, TEXT),
        "fx_nodes": gather([_count(graph, "nodes") for graph in chosen], every, INT),
        "call_sites": gather([_count(graph, "call_sites") for graph in chosen], every, INT),
        "cache_state": gather([graph.cache_state for graph in chosen], every, TEXT),
        "cache_detail": gather([graph.cache_detail for graph in chosen], every, TEXT),
        "compile_ns": gather([graph.compile_ns for graph in chosen], every, INT),
        "output_module": gather([graph.output_module for graph in chosen], every, TEXT),
    }
    return schema.frame(columns)


def graph_phase(graph: GraphInstance) -> Phase:
    """Return the phase of a graph as a whole."""
    if graph.runs_optimizer:
        return Phase.OPTIMIZER
    return Phase.BACKWARD if graph.runs_backward else Phase.FORWARD


def coverage(analysis: Analysis, *, step: int | None = None, rank: int | None = None) -> Table:
    """Return wall time of the profiled steps by scope and category, busy first.

    ``category`` is line, line_phase_corrected where torch's backward tag leaked onto forward work,
    op, a gap's reason, or idle. Eager work with only its op has the reason. Sums to the wall time
    of the steps on each device, which overlaps phases, so there is no filter by phase.
    """
    selection = Selection(step, rank)
    sums = _breakdown_sums(analysis, selection)
    every = np.arange(len(sums))
    time = np.array(list(sums.values()), np.int64)
    steps = selection.count_steps(analysis)
    columns = {
        name: gather([entry[at] for entry in sums], every, TEXT)
        for at, name in enumerate(("scope", "level", "category"))
    }
    columns |= {
        "duration_ns": schema.whole(time),
        "fraction": schema.ratio(time, int(time.sum())),
        "steps": schema.repeated(steps, len(sums), INT),
        "per_step_ns": schema.ratio(time, steps),
    }
    return schema.frame(columns)


def fraction_at(analysis: Analysis, level: str = "line", scope: str = "compiled") -> float:
    """Return the fraction of busy time attributed to ``level`` or better; 0.0 without busy time."""
    return fraction_of(analysis.breakdown, level, scope)


def fraction_of(breakdown: Iterable[BreakdownRow], level: str, scope: str) -> float:
    """Return :func:`fraction_at` of breakdown rows of any ranks."""
    if level not in _BEST_FIRST:
        raise UsageError(f"there is no level {level!r}; ask for one of {', '.join(_BEST_FIRST)}")
    levels = _BEST_FIRST[: _BEST_FIRST.index(Level(level)) + 1]
    scopes = _busy_scopes(scope)
    busy = [line for line in breakdown if line.scope in scopes]
    total = sum(line.duration_ns for line in busy)
    attributed_ns = sum(line.duration_ns for line in busy if line.level in levels)
    return attributed_ns / total if total else 0.0


def gap_times_ns(times: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the time of each gap, longest first, from breakdown categories and times."""
    sums: dict[str, int] = {}
    for category, duration_ns in times:
        if category in tuple(GapReason):
            sums[category] = sums.get(category, 0) + duration_ns
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


def fraction_linked_to_forward(analyses: Iterable[Analysis]) -> float | None:
    """Return the fraction of compiled backward time matched to its forward; ``None`` for none.

    Gradient sums, recomputed forwards, mutations and hooks differentiate nothing and are left out.
    """
    linked, total = 0, 0
    for analysis in analyses:
        rows, shares = profiled_shares(analysis), analysis.shares
        times = sum_by(shares.place[rows], shares.duration_ns[rows], len(analysis.places))
        for place, spent in zip(analysis.places, times.tolist(), strict=True):
            if _differentiates(place):
                total += spent
                linked += spent if place.forward_node is not None else 0
    return linked / total if total else None


def _differentiates(place: Place) -> bool:
    is_own = place.forward_evidence in (ForwardEvidence.MUTATION, ForwardEvidence.HOOK)
    return place.graph is not None and place.phase is Phase.BACKWARD and not is_own


def _busy_scopes(scope: str) -> tuple[str, ...]:
    if scope == "all":
        return _BUSY
    if scope not in _BUSY:
        raise UsageError(f"there is no scope {scope!r}; ask for 'compiled', 'eager' or 'all'")
    return (scope,)


def _breakdown_sums(analysis: Analysis, selection: Selection) -> dict[_Entry, int]:
    selection.require_step(analysis)
    sums: dict[_Entry, int] = {}
    for line in analysis.breakdown if selection.has_rank_of(analysis) else ():
        if selection.step in (None, line.step):
            entry = (line.scope, line.level, line.category)
            sums[entry] = sums.get(entry, 0) + line.duration_ns
    return dict(sorted(sums.items(), key=_breakdown_order))


def _breakdown_order(item: tuple[_Entry, int]) -> tuple[int, int, int, str]:
    (scope, level, category), duration = item
    rank = len(_BEST_FIRST) if level is None else _BEST_FIRST.index(Level(level))
    return _SCOPES.index(Scope(scope)), rank, -duration, category


def _chosen_graphs(analysis: Analysis, selection: Selection) -> list[GraphInstance]:
    if not selection.has_rank_of(analysis):
        return []
    every = analysis.recording.graphs
    ran = np.unique(analysis.launches.graph[selection.launches(analysis)].compressed()).tolist()
    is_whole = selection.step is None and selection.scope is None
    there = every if is_whole else [every[index] for index in ran]
    return [graph for graph in there if selection.phase in (None, graph_phase(graph))]


def _count(graph: GraphInstance, what: str) -> int | None:
    return len(getattr(graph.record, what)) if graph.is_known else None


def utilisation(
    analysis: Analysis, *, peaks: Mapping[str, Peak] = PEAKS, **filters: Unpack[Filters]
) -> Table:
    """Return the model FLOPs utilisation (MFU) of each step; no filter by phase or scope.

    Steps of unknown MFU have only their number.
    """
    selection = Selection(**filters)
    if selection.has_rank_of(analysis):
        selection.require_step(analysis)
    numbers = dict.fromkeys(each.number for each in analysis.steps)
    chosen = [number for number in numbers if selection.step in (None, number)]
    chosen = chosen if selection.has_rank_of(analysis) else []
    by_step = utilisation_by_step(analysis, chosen, peaks)
    every = np.arange(len(chosen))
    columns: dict[str, AnyColumn] = {
        "rank": schema.repeated(analysis.recording.settings.rank, len(chosen), INT),
        "step": gather(chosen, every, INT),
    }
    for name, (dtype, value_of) in _COLUMNS.items():
        values = [None if each is None else value_of(each) for each in by_step]
        columns[name] = gather(values, every, dtype)
    return schema.frame(columns)


def by_step(analysis: Analysis, **filters: Unpack[Filters]) -> Table:
    """Return one row for each step; of inference its kind, and the tokens of its last call.

    ``tokens`` are computed, padding included, and ``tokens_per_s`` are those of the recorded step,
    with the profiler on.
    """
    selection = Selection(**filters)
    is_there = selection.has_rank_of(analysis)
    if is_there:
        selection.require_step(analysis)
    steps = [each for each in analysis.steps if is_there and selection.step in (None, each.number)]
    busy = _busy_ns(analysis)
    named = {
        number: (own.kind.value, call)
        for own in kinds_of_steps(analysis)
        for number, call in own.last_calls
    }
    of_steps = [named.get(each.number, (None, None)) for each in steps]
    kinds, last = [kind for kind, _ in of_steps], [call for _, call in of_steps]
    tokens = [None if call is None else call.batch * call.length for call in last]
    rate = [
        None if not count or not step.wall_ns else round(1e9 * count / step.wall_ns)
        for count, step in zip(tokens, steps, strict=True)
    ]
    every = np.arange(len(steps))
    columns: dict[str, AnyColumn] = {
        "rank": schema.repeated(analysis.recording.settings.rank, len(steps), INT),
        "step": gather([each.number for each in steps], every, INT),
        "wall_ns": gather([each.wall_ns for each in steps], every, INT),
        "busy_ns": gather([busy.get(each.number, 0) for each in steps], every, INT),
        "step_kind": gather(kinds, every, TEXT),
        "batch": gather([None if call is None else call.batch for call in last], every, INT),
        "length": gather([None if call is None else call.length for call in last], every, INT),
        "tokens": gather(tokens, every, INT),
        "tokens_per_s": gather(rate, every, INT),
    }
    return schema.frame(columns)


def _busy_ns(analysis: Analysis) -> dict[int, int]:
    """Return how long the devices were busy in each step, each device once."""
    busy: dict[int, int] = {}
    for row in analysis.breakdown:
        if row.scope != Scope.IDLE:
            busy[row.step] = busy.get(row.step, 0) + row.duration_ns
    return busy


def findings(analysis: Analysis, *, rank: int | None = None) -> Table:
    """Return the findings, the largest first; figures as JSON."""
    is_there = Selection(rank=rank).has_rank_of(analysis)
    return _findings_frame(find(analysis).ranked if is_there else ())


def _findings_frame(ranked: tuple[Finding, ...]) -> Table:
    every = np.arange(len(ranked))
    columns = {
        "rank": gather([each.rank for each in ranked], every, INT),
        "rule": gather([each.rule for each in ranked], every, TEXT),
        "summary": gather([each.summary for each in ranked], every, TEXT),
    }
    columns |= {
        name: gather([getattr(each.location, name) for each in ranked], every, dtype)
        for name, dtype in _PLACE
    }
    columns |= {
        "compile_id": gather([each.location.graph for each in ranked], every, TEXT),
        "est_saving_ns": gather([each.est_saving_ns for each in ranked], every, INT),
        "total_ns": gather([each.total_ns for each in ranked], every, INT),
        "est_saving_fraction": gather([each.fraction for each in ranked], every, FLOAT),
        "saving_per": gather([each.saving_per.value for each in ranked], every, TEXT),
        "confidence": gather([each.confidence.value for each in ranked], every, TEXT),
        "evidence": gather(
            [msgspec.json.encode(each.evidence).decode() for each in ranked], every, TEXT
        ),
        "remedy": gather([each.remedy for each in ranked], every, TEXT),
        "overlaps_with": gather([", ".join(each.overlaps_with) for each in ranked], every, TEXT),
    }
    return schema.frame(columns)
