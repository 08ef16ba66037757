"""Owns the tables of a job that each rank has: their sums over all ranks, as merging has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from profiler_ext.attribution.meetings import Waited
from profiler_ext.cluster.records import CallKey, LineKey, RankFacts, RankPart
from profiler_ext.cluster.tables.columns import CALLED, LINE, of_columns, ordered
from profiler_ext.exporters.table_kinds import table_called
from profiler_ext.exporters.tables import DataFrame
from profiler_ext.exporters.tables.arrays import WHOLE, gather, ratio
from profiler_ext.exporters.tables.ranks import rows_summed, with_means
from profiler_ext.records import Lateness, Place


def summed(name: str, tables: Sequence[DataFrame]) -> DataFrame:
    """Return the sum of a summing table of some ranks, in order of rank, or of sums of it.

    Args:
        name: the table's name.
        tables: those of the ranks.
    """
    return rows_summed(table_called(name), tables)


def of_sums(name: str, sums: DataFrame, ranks: Sequence[RankFacts]) -> DataFrame:
    """Return a summing table of a job.

    Args:
        name: the table's name.
        sums: the sum over all its ranks.
        ranks: the ranks.
    """
    return with_means(table_called(name), sums, [each.steps for each in ranks])


def communication(parts: Sequence[RankPart], waited: Sequence[Waited]) -> DataFrame:
    """Return device time of collectives by collective, process group and line.

    Args:
        parts: of each rank.
        waited: how its collectives waited.
    """
    found = [_calls(part, own) for part, own in zip(parts, waited, strict=True)]
    kind = table_called("communication")
    return with_means(kind, rows_summed(kind, found), [part.facts.steps for part in parts])


def _calls(part: RankPart, waited: Waited) -> DataFrame:
    """Return the collectives of one rank, with how long they waited where that is known."""
    calls, duration_ns = part.calls, part.collectives.launch_duration_ns
    known = ~np.ma.getmaskarray(waited.waiting_ns) & (calls.row >= 0)
    waiting = np.zeros(len(calls.keys), dtype=np.int64)
    np.add.at(waiting, calls.row[known], waited.waiting_ns.data[known])
    counts = np.bincount(calls.row[known], minlength=len(calls.keys))
    told = np.ma.MaskedArray(waiting, mask=counts == 0)
    of_known = np.zeros(len(calls.keys), dtype=np.int64)
    # What is not known of a launch is in neither of the two.
    np.add.at(of_known, calls.row[known], duration_ns[known])
    columns = {
        **_keys(calls.keys),
        "launches": calls.launches.tolist(),
        "duration_ns": calls.duration_ns.tolist(),
        "exposed_ns": calls.exposed_ns.tolist(),
        "overlapped_ns": (calls.duration_ns - calls.exposed_ns).tolist(),
        "waiting_ns": told.tolist(),
        "transfer_ns": (np.ma.MaskedArray(of_known, mask=counts == 0) - told).tolist(),
        **dict.fromkeys(("fraction", "steps", "per_step_ns"), [None] * len(calls.keys)),
    }
    return of_columns(columns)


def _keys(keys: Sequence[CallKey]) -> dict[str, list[Any]]:
    return {name: [key[at] for key in keys] for at, name in enumerate((*CALLED, *LINE))}


def skew(parts: Sequence[RankPart], lateness: Sequence[Lateness]) -> DataFrame:
    """Return what made a rank late for a collective that another only waited in.

    Args:
        parts: of each rank.
        lateness: what made it late.
    """
    kind = table_called("skew")
    rows = [row for pair in zip(parts, lateness, strict=True) for row in _late(*pair)]
    names = (*kind.keys, "launches", "duration_ns")
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    groups = of_columns(columns).groupby(list(kind.keys), dropna=False, sort=False)
    sums = groups.sum(min_count=1)
    sums["launches"] = groups["launches"].nunique().astype(WHOLE)
    sums = sums.reset_index()
    steps = {part.facts.rank: len(part.facts.steps) for part in parts}
    counts = np.array([steps[rank] for rank in sums["rank"].tolist()], dtype=np.int64)
    sums["steps"] = gather(counts.tolist(), np.arange(len(counts)), WHOLE)
    sums["per_step_ns"] = ratio(sums["duration_ns"].to_numpy(np.int64), counts)
    return ordered(sums, "duration_ns", kind.keys)


def _late(part: RankPart, lateness: Lateness) -> list[tuple[Any, ...]]:
    row_of = dict(zip(part.collectives.launch.tolist(), part.calls.row.tolist(), strict=True))
    found = []
    for at in range(len(lateness)):
        launch = int(lateness.launch[at])
        if (row := row_of[launch]) >= 0:
            called, where = part.calls.keys[row][:2], lateness.places[int(lateness.place[at])]
            cause, spent = lateness.cause[at] or None, int(lateness.duration_ns[at])
            found.append((part.facts.rank, *called, cause, *_line(where), launch, spent))
    return found


def _line(place: Place) -> LineKey:
    gap = place.gap if place.line is None else None
    return place.file, place.line, place.function, place.code, gap
