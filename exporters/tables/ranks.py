"""The tables of several ranks: concatenated, or summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from profiler_ext.errors import UsageError
from profiler_ext.exporters.table_kinds import TableKind, table_named
from profiler_ext.exporters.tables import schema
from profiler_ext.exporters.tables.compiles import longest_first
from profiler_ext.exporters.tables.rows import LAUNCH_SHAPE_COLUMNS
from profiler_ext.exporters.tables.selection import Filters, Selection
from profiler_ext.exporters.tables.table import (
    FLOAT,
    INT,
    AnyColumn,
    Numbers,
    Table,
    Texts,
    concatenated,
    first_known,
    summed,
)
from profiler_ext.records import events, vocabulary
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.share_sums import count_distinct

_DERIVED = ("fraction", "steps", "per_step_ns")
_EXTREMES = {"min_ns": np.minimum, "max_ns": np.maximum}
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
) -> Table:
    """Return a table of several ranks: concatenated, or summed over ranks.

    A summing table has ``ranks``, their number, instead of rates and medians. Means are per step of
    one rank. ``base_ns`` is the clock's zero in ``launches`` and ``compiles``.
    """
    kind, selection = table_named(name), Selection(**filters)
    chosen = _chosen(analyses, selection)
    tables = [kind.make(analysis, *arguments, **filters) for analysis in chosen]
    if name in ("launches", "compiles"):
        each = [_on_clock(*pair, base_ns) for pair in zip(tables, chosen, strict=True)]
        return longest_first(concatenated(each)) if name == "compiles" else concatenated(each)
    if name == "graphs":
        return concatenated([_with_rank(*pair) for pair in zip(tables, chosen, strict=True)])
    if name == "skew":
        return concatenated(tables).longest_first(kind.keys)
    if not kind.is_sum:
        return concatenated(tables)
    profiled = [
        [step.number for step in analysis.steps if selection.step in (None, step.number)]
        for analysis in (selection.narrowed(each, is_sum=True) for each in chosen)
    ]
    return add_means(kind, sum_over_ranks(kind, tables), profiled)


def sum_over_ranks(kind: TableKind, tables: Sequence[Table]) -> Table:
    """Return the sum of summing tables, in rank order, without the columns of :func:`add_means`.

    Sums may be summed again; the result does not depend on grouping.
    """
    return _summed(concatenated(tables), list(kind.keys))


def add_means(kind: TableKind, sums: Table, profiled: Sequence[Sequence[int]]) -> Table:
    """Return sums over ranks with fractions and means, in order."""
    time: events.Ints = sums["duration_ns"].data
    of_ranks, steps = sum(map(len, profiled)), len({each for own in profiled for each in own})
    derived = {
        "fraction": schema.ratio(time, int(time.sum())),
        "steps": schema.repeated(steps, len(sums), INT),
        "per_step_ns": schema.ratio(time, of_ranks),
    }
    means = {name: derived[name] for name in sums.columns if name in derived}
    ranks = {"ranks": schema.repeated(len(profiled), len(sums), INT)}
    whole = sums.without(_LONGEST).with_columns(means | ranks)
    return _busy_first(whole) if kind.name == "coverage" else whole.longest_first(kind.keys)


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


def _on_clock(table: Table, analysis: Analysis, base_ns: int) -> Table:
    start, shift_ns = table["start_ns"], analysis.recording.trace.base_ns - base_ns
    return table.with_columns({"start_ns": replace(start, data=start.data + shift_ns)})


def _with_rank(table: Table, analysis: Analysis) -> Table:
    rank = schema.repeated(analysis.recording.settings.rank, len(table), INT)
    return Table({"rank": rank, **table.by_name})


def _busy_first(sums: Table) -> Table:
    """Sort a breakdown: busy first, best level first, longest first."""
    levels = [*map(str, vocabulary.Level), None]
    named = zip(sums["scope"].tolist(), sums["level"].tolist(), strict=True)
    scopes = list(vocabulary.Scope)
    keys = [(scopes.index(vocabulary.Scope(scope)), levels.index(level)) for scope, level in named]
    longest = np.argsort(-sums["duration_ns"].data, kind="stable").tolist()
    return sums.take(np.array(sorted(longest, key=lambda at: keys[at]), np.int64))


def _summed(whole: Table, identity: list[str]) -> Table:
    time = whole["duration_ns"]
    known = whole.by_name.get(_LONGEST, time)
    whole = whole.with_columns({_LONGEST: _filled(known, time)})
    group, firsts = whole.groups(identity)
    longest = _longest_rows(whole, group)
    columns = {
        name: column.take(firsts)
        if name in identity
        else _sum_of(name, column, group, firsts, longest)
        for name, column in whole.by_name.items()
        if name not in _NOT_OF_SUMS
    }
    return Table(columns)


def _sum_of(
    name: str, column: AnyColumn, group: events.Ints, firsts: events.Ints, longest: events.Ints
) -> AnyColumn:
    size = len(firsts)
    if name in _DERIVED:
        return schema.repeated(None, size, FLOAT)
    if name in LAUNCH_SHAPE_COLUMNS:
        is_common = count_distinct(group, column.equal_codes() + 1, size) == 1
        return column.take(np.where(is_common, firsts, -1))
    if name in (*_OF_LONGEST, _LONGEST):
        return column.take(longest)
    if isinstance(column, Texts):
        return first_known(column, group, size)
    return _extreme(name, column, group, size) if name in _EXTREMES else summed(column, group, size)


def _extreme(name: str, column: Numbers, group: events.Ints, size: int) -> Numbers:
    """Return the least or greatest of each group; unknown in all rows is unknown."""
    first = first_known(column, group, size)
    data = first.data.copy()
    rows = np.flatnonzero(~column.absent)
    _EXTREMES[name].at(data, group[rows], column.data[rows])
    return replace(first, data=data)


def _filled(column: Numbers, other: Numbers) -> Numbers:
    data = np.where(column.absent, other.data, column.data)
    return replace(column, data=data, absent=column.absent & other.absent)


def _longest_rows(whole: Table, group: events.Ints) -> events.Ints:
    """Return the row of each group whose words a sum has: the longest, of equal ones the first."""
    order = np.lexsort((-whole[_LONGEST].data, group))
    size = int(group.max(initial=-1)) + 1
    rows: events.Ints = order[np.searchsorted(group[order], np.arange(size))]
    return rows
