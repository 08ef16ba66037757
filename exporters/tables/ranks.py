"""Owns the tables of several ranks together: rows one after the other, or summed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from exporters.tables.accounts import SCOPES, graphs
from exporters.tables.columns import TEXT, WHOLE, ratio, repeated
from exporters.tables.rows import launches
from profiler_ext.errors import UsageError
from profiler_ext.records import SCHEMA_VERSION, Analysis, Ints, Level

Table = Callable[[Analysis], pd.DataFrame]

_IDENTITY = ("file", "line", "module", "aten_op", "kernel", "kind", "phase", "gap")
_LEDGER_IDENTITY = ("scope", "level", "category")
_DERIVED = ("fraction", "steps", "per_step_ns")
_RATES = ("est_gb_per_s", "est_tflop_per_s", "est_peak_fraction")


def chosen_ranks(
    analyses: Sequence[Analysis], rank: int | None, step: int | None
) -> list[Analysis]:
    """Return the analyses of the rank that profiled the step; ``None`` chooses all.

    Raises:
        UsageError: There is no such rank, or none profiled that step.
    """
    known = [each.recording.settings.rank for each in analyses]
    if rank is not None and rank not in known:
        listed = ", ".join(map(str, known))
        raise UsageError(f"there is no rank {rank}; ask for one of the ranks: {listed}")
    chosen = [a for a in analyses if rank in (None, a.recording.settings.rank)]
    with_step = [a for a in chosen if step is None or step in [s.number for s in a.steps]]
    return with_step or chosen  # where no rank has the step, the first table says so


def launches_of_ranks(
    analyses: Sequence[Analysis], base_ns: int, step: int | None, phase: str | None
) -> pd.DataFrame:
    """Return the launches of all ranks, with times on one clock that is zero at ``base_ns``."""
    found = []
    for analysis in analyses:
        table = launches(analysis, step=step, phase=phase)
        table["start_ns"] += analysis.recording.trace.base_ns - base_ns
        found.append(table)
    return _joined(found)


def graphs_of_ranks(
    analyses: Sequence[Analysis], step: int | None, phase: str | None
) -> pd.DataFrame:
    """Return the compiled graphs of all ranks, with their rank."""
    found = []
    for analysis in analyses:
        table = graphs(analysis, step=step, phase=phase)
        columns = list(table.columns)
        table["rank"] = repeated(analysis.recording.settings.rank, len(table), WHOLE)
        found.append(table[["rank", *columns]])
    return _joined(found)


def joined(analyses: Sequence[Analysis], table: Table) -> pd.DataFrame:
    """Return a table of every rank, one after the other."""
    return _joined([table(analysis) for analysis in analyses])


def summed(analyses: Sequence[Analysis], table: Table, step: int | None) -> pd.DataFrame:
    """Return a summing table over all ranks; a step's mean is that of one rank.

    Args:
        analyses: one for each rank.
        table: makes the table of one.
        step: the step that was asked for, if one was.

    Returns:
        The same columns but for rates, and ``ranks``: over how many it sums.
    """
    whole = _joined([table(analysis) for analysis in analyses])
    identity = [name for name in whole.columns if name in _IDENTITY]
    sums = _summed(whole, identity, analyses, step)
    by = ["duration_ns", *identity]
    return sums.sort_values(by, ascending=[n != "duration_ns" for n in by], ignore_index=True)


def ledger(analyses: Sequence[Analysis], table: Table, step: int | None) -> pd.DataFrame:
    """Return the coverage of all ranks, busy first, best level first, longest first."""
    whole = _joined([table(analysis) for analysis in analyses])
    sums = _summed(whole, list(_LEDGER_IDENTITY), analyses, step)
    levels = [*map(str, Level), ""]
    named = zip(sums["scope"].tolist(), sums["level"].fillna("").tolist(), strict=True)
    keys = [(SCOPES.index(scope), levels.index(level)) for scope, level in named]
    longest = np.argsort(-sums["duration_ns"].to_numpy(np.int64), kind="stable").tolist()
    return sums.iloc[sorted(longest, key=lambda at: keys[at])].reset_index(drop=True)


def _summed(
    whole: pd.DataFrame, identity: list[str], analyses: Sequence[Analysis], step: int | None
) -> pd.DataFrame:
    groups = whole.groupby(identity, dropna=False, sort=False)
    kept = [n for n in whole.columns if n not in (*identity, *_DERIVED, *_RATES)]
    texts = [n for n in kept if whole[n].dtype == TEXT]
    numbers = [n for n in kept if n not in texts]
    # What is not known of any row is not known of the sum.
    parts = [groups[texts].first()] if texts else []
    sums = pd.concat([*parts, groups[numbers].sum(min_count=1)], axis=1).reset_index()
    time: Ints = sums["duration_ns"].to_numpy(np.int64)
    profiled = [s.number for a in analyses for s in a.steps if step in (None, s.number)]
    of_ranks, steps = len(profiled), len(set(profiled))
    sums["fraction"] = ratio(time, int(time.sum()))
    sums["steps"] = repeated(steps, len(sums), WHOLE)
    sums["per_step_ns"] = ratio(time, of_ranks)
    sums = sums[[n for n in whole.columns if n not in _RATES]]
    sums["ranks"] = repeated(len(analyses), len(sums), WHOLE)
    return _versioned(sums)


def _joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return _versioned(pd.concat(tables, ignore_index=True))


def _versioned(table: pd.DataFrame) -> pd.DataFrame:
    table.attrs["schema_version"] = SCHEMA_VERSION
    return table
