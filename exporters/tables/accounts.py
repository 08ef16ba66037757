"""Owns the tables of the whole: compiled graphs, and the ledger as coverage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Unpack

import numpy as np
import pandas as pd

from profiler_ext.errors import UsageError
from profiler_ext.exporters.tables.arrays import TEXT, INT, frame, gather, ratio, repeated, whole
from profiler_ext.exporters.tables.selection import Filters, Selection
from profiler_ext.records import (
    Analysis,
    ForwardEvidence,
    GapReason,
    GraphInstance,
    BreakdownRow,
    Level,
    Phase,
    Place,
    Scope,
)

_SCOPES = tuple(Scope)
_BUSY = tuple(scope for scope in Scope if scope is not Scope.IDLE)
_BEST_FIRST = tuple(Level)
_Entry = tuple[str, str | None, str]


def graphs(analysis: Analysis, **filters: Unpack[Filters]) -> pd.DataFrame:
    """Return one row for each graph instance, in order of registration.

    Args:
        analysis: what attribution found.
        **filters: the step in which they launched something, their rank, or their phase:
            forward, backward or optimizer.

    Returns:
        The table; what is not known without provenance is absent.

    Raises:
        UsageError: There is no such step or phase.
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
    return frame(columns)


def graph_phase(graph: GraphInstance) -> Phase:
    """Return the phase that a graph as a whole belongs to.

    Args:
        graph: the graph.
    """
    if graph.runs_optimizer:
        return Phase.OPTIMIZER
    return Phase.BACKWARD if graph.runs_backward else Phase.FORWARD


def coverage(
    analysis: Analysis, *, step: int | None = None, rank: int | None = None
) -> pd.DataFrame:
    """Return wall time of the profiled steps by scope and category, busy first.

    Wall time overlaps phases, so there is no filter by phase.

    Args:
        analysis: what attribution found.
        step: only this step.
        rank: only this rank.

    Returns:
        ``scope`` (compiled, eager, idle), ``level`` (line, op, none; absent for idle),
        ``category`` (line, line_phase_corrected where torch's backward tag leaked onto forward
        work, op, a gap's reason, idle) and the time. Eager work that is led to its op alone has
        the reason why as its category. It adds up to the wall time of the steps on each device.

    Raises:
        UsageError: There is no such step.
    """
    selection = Selection(step, rank)
    sums = _ledger_sums(analysis, selection)
    every = np.arange(len(sums))
    time = np.array(list(sums.values()), np.int64)
    steps = selection.count_steps(analysis)
    columns = {
        name: gather([entry[at] for entry in sums], every, TEXT)
        for at, name in enumerate(("scope", "level", "category"))
    }
    columns |= {
        "duration_ns": whole(time),
        "fraction": ratio(time, int(time.sum())),
        "steps": repeated(steps, len(sums), INT),
        "per_step_ns": ratio(time, steps),
    }
    return frame(columns)


def fraction_at(analysis: Analysis, level: str = "line", scope: str = "compiled") -> float:
    """Return which part of the busy time was led back to ``level`` or better.

    Args:
        analysis: what attribution found.
        level: ``line``, ``op`` or ``none``.
        scope: ``compiled``, ``eager``, or ``all`` for both.

    Returns:
        A fraction from 0 to 1; 0.0 where the scope has no busy time.

    Raises:
        UsageError: There is no such level or scope.
    """
    return fraction_of(analysis.ledger, level, scope)


def fraction_of(ledger: Iterable[BreakdownRow], level: str, scope: str) -> float:
    """Return :func:`fraction_at` of ledger lines, of one rank or of several.

    Args:
        ledger: lines of ledgers.
        level: ``line``, ``op`` or ``none``: how far it must have been led.
        scope: ``compiled``, ``eager`` or ``all``: which busy time counts.
    """
    levels = _levels_from(level)
    scopes = _busy_scopes(scope)
    busy = [line for line in ledger if line.scope in scopes]
    total = sum(line.duration_ns for line in busy)
    attributed_ns = sum(line.duration_ns for line in busy if line.level in levels)
    return attributed_ns / total if total else 0.0


def gap_times_ns(times: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the time of each gap, longest first.

    Args:
        times: a category of a ledger and its time, as often as they come.
    """
    sums: dict[str, int] = {}
    for category, duration_ns in times:
        if category in tuple(GapReason):
            sums[category] = sums.get(category, 0) + duration_ns
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


def fraction_linked_to_forward(analyses: Iterable[Analysis]) -> float | None:
    """Return which part of the compiled backward time was led to the forward op it differentiates.

    Sums of gradients, recomputed forwards, mutations and hooks differentiate nothing and are left
    out.

    Args:
        analyses: one for each rank.

    Returns:
        A fraction from 0 to 1; ``None`` where no compiled backward ran in a profiled step.
    """
    linked, total = 0, 0
    for analysis in analyses:
        for index, spent in _profiled_time(analysis).items():
            place = analysis.places[index]
            if _differentiates(place):
                total += spent
                linked += spent if place.forward_node is not None else 0
    return linked / total if total else None


def _profiled_time(analysis: Analysis) -> dict[int, int]:
    """Return the time of each place in the profiled steps."""
    selection = Selection()
    chosen = selection.shares(analysis, selection.profiled(analysis))
    time = np.zeros(len(analysis.places), np.int64)
    np.add.at(time, analysis.shares.place[chosen], analysis.shares.duration_ns[chosen])
    return {int(place): int(time[place]) for place in np.flatnonzero(time)}


def _differentiates(place: Place) -> bool:
    is_own = place.forward_evidence in (ForwardEvidence.MUTATION, ForwardEvidence.HOOK)
    return place.graph is not None and place.phase is Phase.BACKWARD and not is_own


def _levels_from(level: str) -> Sequence[Level]:
    if level not in _BEST_FIRST:
        raise UsageError(f"there is no level {level!r}; ask for one of {', '.join(_BEST_FIRST)}")
    return _BEST_FIRST[: _BEST_FIRST.index(Level(level)) + 1]


def _busy_scopes(scope: str) -> tuple[str, ...]:
    if scope == "all":
        return _BUSY
    if scope not in _BUSY:
        raise UsageError(f"there is no scope {scope!r}; ask for 'compiled', 'eager' or 'all'")
    return (scope,)


def _ledger_sums(analysis: Analysis, selection: Selection) -> dict[_Entry, int]:
    selection.require_step(analysis)
    sums: dict[_Entry, int] = {}
    for line in analysis.ledger if selection.has_rank_of(analysis) else ():
        if selection.step in (None, line.step):
            entry = (line.scope, line.level, line.category)
            sums[entry] = sums.get(entry, 0) + line.duration_ns
    return dict(sorted(sums.items(), key=_ledger_order))


def _ledger_order(item: tuple[_Entry, int]) -> tuple[int, int, int, str]:
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
