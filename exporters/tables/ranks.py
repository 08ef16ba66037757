"""The tables of several ranks: concatenated, or summed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import pandas as pd

from profiler_ext.errors import UsageError
from profiler_ext.exporters.table_kinds import TableKind, table_named
from profiler_ext.exporters.tables import schema
from profiler_ext.exporters.tables.compiles import longest_first
from profiler_ext.exporters.tables.rows import LAUNCH_SHAPE_COLUMNS
from profiler_ext.exporters.tables.selection import Filters, Selection
from profiler_ext.records import events, vocabulary
from profiler_ext.records.analysis import SCHEMA_VERSION, Analysis

_DERIVED = ("fraction", "steps", "per_step_ns")
_EXTREMES = {"min_ns": "min", "max_ns": "max"}
_OF_LONGEST = ("bound", "unit")
_LONGEST = "longest_ns"  # how long that rank had it whose words a sum has; only while it is summed
_NOT_OF_SUMS = (
    "median_ns",
    "est_gb_per_s",
    "est_tflop_per_s",
    "est_attainable_tflop_per_s",
    "est_peak_fraction",
)


def of_ranks(
    analyses: Sequence[Analysis],
    base_ns: int,
    name: str,
    *arguments: Any,
    **filters: Unpack[Filters],
) -> pd.DataFrame:
    """Return a table of several ranks: concatenated, or summed over ranks.

    A summing table has ``ranks``, their number, instead of rates and medians. Means are per step of
    one rank. ``base_ns`` is the clock's zero in ``launches`` and ``compiles``.
    """
    kind, selection = table_named(name), Selection(**filters)
    chosen = _chosen(analyses, selection)
    tables = [kind.make(analysis, *arguments, **filters) for analysis in chosen]
    if name in ("launches", "compiles"):
        each = [_on_clock(*pair, base_ns) for pair in zip(tables, chosen, strict=True)]
        return longest_first(_joined(each)) if name == "compiles" else _joined(each)
    if name == "graphs":
        return _joined([_with_rank(*pair) for pair in zip(tables, chosen, strict=True)])
    if name == "skew":
        return schema.sort_longest_first(_joined(tables), kind.keys)
    if not kind.is_sum:
        return _joined(tables)
    profiled = [
        [step.number for step in analysis.steps if selection.step in (None, step.number)]
        for analysis in chosen
    ]
    return add_means(kind, sum_over_ranks(kind, tables), profiled)


def sum_over_ranks(kind: TableKind, tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the sum of summing tables, in rank order, without the columns of :func:`add_means`.

    Sums may be summed again; the result does not depend on grouping.
    """
    return _summed(pd.concat(tables, ignore_index=True), list(kind.keys))


def add_means(
    kind: TableKind, sums: pd.DataFrame, profiled: Sequence[Sequence[int]]
) -> pd.DataFrame:
    """Return sums over ranks with fractions and means, in order."""
    time: events.Ints = sums["duration_ns"].to_numpy(np.int64)
    of_ranks, steps = sum(map(len, profiled)), len({each for own in profiled for each in own})
    derived = {
        "fraction": schema.ratio(time, int(time.sum())),
        "steps": schema.repeated(steps, len(sums), schema.INT),
        "per_step_ns": schema.ratio(time, of_ranks),
    }
    whole = sums.assign(**{name: derived[name] for name in sums.columns if name in derived})
    whole = whole.drop(columns=_LONGEST, errors="ignore")
    whole["ranks"] = schema.repeated(len(profiled), len(whole), schema.INT)
    whole = _versioned(whole)
    return (
        _busy_first(whole)
        if kind.name == "coverage"
        else schema.sort_longest_first(whole, kind.keys)
    )


def _chosen(analyses: Sequence[Analysis], selection: Selection) -> list[Analysis]:
    """Return the analyses of the chosen rank that profiled the step."""
    known = [each.recording.settings.rank for each in analyses]
    if selection.rank is not None and selection.rank not in known:
        listed = ", ".join(map(str, known))
        raise UsageError(f"there is no rank {selection.rank}; ask for one of the ranks: {listed}")
    chosen = [each for each in analyses if selection.has_rank_of(each)]
    step = selection.step
    with_step = [a for a in chosen if step is None or step in [s.number for s in a.steps]]
    return with_step or chosen  # where no rank has the step, the first table says so


def _on_clock(table: pd.DataFrame, analysis: Analysis, base_ns: int) -> pd.DataFrame:
    table["start_ns"] += analysis.recording.trace.base_ns - base_ns
    return table


def _with_rank(table: pd.DataFrame, analysis: Analysis) -> pd.DataFrame:
    columns = list(table.columns)
    table["rank"] = schema.repeated(analysis.recording.settings.rank, len(table), schema.INT)
    return table[["rank", *columns]]


def _busy_first(sums: pd.DataFrame) -> pd.DataFrame:
    """Sort a ledger: busy first, best level first, longest first."""
    levels = [*map(str, vocabulary.Level), ""]
    named = zip(sums["scope"].tolist(), sums["level"].fillna("").tolist(), strict=True)
    scopes = list(vocabulary.Scope)
    keys = [(scopes.index(vocabulary.Scope(scope)), levels.index(level)) for scope, level in named]
    longest = np.argsort(-sums["duration_ns"].to_numpy(np.int64), kind="stable").tolist()
    return sums.iloc[sorted(longest, key=lambda at: keys[at])].reset_index(drop=True)


def _summed(whole: pd.DataFrame, identity: list[str]) -> pd.DataFrame:
    time = whole["duration_ns"]
    longest_ns = whole[_LONGEST].fillna(time) if _LONGEST in whole else time
    whole = whole.assign(**{_LONGEST: longest_ns})
    groups = whole.groupby(identity, dropna=False, sort=False)
    kept = [n for n in whole.columns if n not in (*identity, *_DERIVED, *_NOT_OF_SUMS)]
    alike = [n for n in kept if n in LAUNCH_SHAPE_COLUMNS]
    longest = [n for n in kept if n in (*_OF_LONGEST, _LONGEST)]
    texts = [n for n in kept if whole[n].dtype == schema.TEXT and n not in (*alike, *longest)]
    extremes = [n for n in kept if n in _EXTREMES]
    numbers = [n for n in kept if n not in (*alike, *longest, *texts, *extremes)]
    # Unknown in all rows is unknown in the sum.
    parts: list[Any] = [groups[texts].first()] if texts else []
    parts += [groups[name].agg(_EXTREMES[name]) for name in extremes]
    if alike:
        is_common = groups[alike].nunique(dropna=False) == 1
        parts.append(groups[alike].first().where(is_common))
    total = groups[numbers].sum(min_count=1)
    rows = whole[longest]
    group = np.asarray(groups.ngroup(), np.int64)
    index = total.index
    order = np.lexsort((-rows[_LONGEST].to_numpy(np.int64), group))
    firsts = order[np.searchsorted(group[order], np.arange(len(index)))]
    rows_of_longest = rows.iloc[firsts].set_axis(index)
    parts += [rows_of_longest]
    sums = pd.concat([*parts, total], axis=1).reset_index()
    sums = sums.assign(
        **{name: schema.repeated(None, len(sums), schema.FLOAT) for name in _DERIVED}
    )
    ordered: pd.DataFrame = sums[[n for n in whole.columns if n not in _NOT_OF_SUMS]]
    return ordered


def _joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return _versioned(pd.concat(tables, ignore_index=True))


def _versioned(table: pd.DataFrame) -> pd.DataFrame:
    table.attrs["schema_version"] = SCHEMA_VERSION
    return table
