"""Owns the tables of a job that each rank has: their sums over all ranks, as merging has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from profiler_ext.attribution.meetings import Waited
from profiler_ext.cluster.records import CallKey, LineKey, RankFacts, RankSummary
from profiler_ext.cluster.tables.columns import COLLECTIVE_COLUMNS, LINE, frame_of, ordered
from profiler_ext.exporters.table_kinds import table_named
from profiler_ext.exporters.tables import DataFrame
from profiler_ext.exporters.tables.arrays import INT, gather, ratio
from profiler_ext.exporters.tables.ranks import sum_over_ranks, add_means
from profiler_ext.records import RankDelay, Place


def summed(name: str, tables: Sequence[DataFrame]) -> DataFrame:
    """Return the sum of a summing table of some ranks, in order of rank, or of sums of it.

    Args:
        name: the table's name.
        tables: those of the ranks.
    """
    return sum_over_ranks(table_named(name), tables)


def of_sums(name: str, sums: DataFrame, ranks: Sequence[RankFacts]) -> DataFrame:
    """Return a summing table of a job.

    Args:
        name: the table's name.
        sums: the sum over all its ranks.
        ranks: the ranks.
    """
    return add_means(table_named(name), sums, [each.steps for each in ranks])


def communication(parts: Sequence[RankSummary], waited: Sequence[Waited]) -> DataFrame:
    """Return device time of collectives by collective, process group and line.

    Args:
        parts: of each rank.
        waited: how its collectives waited.
    """
    result = [_calls(part, own) for part, own in zip(parts, waited, strict=True)]
    kind = table_named("communication")
    return add_means(kind, sum_over_ranks(kind, result), [part.facts.steps for part in parts])


def _calls(part: RankSummary, waited: Waited) -> DataFrame:
    """Return the collectives of one rank, with how long they waited where that is known."""
    calls, duration_ns = part.calls, part.collectives.launch_duration_ns
    known = ~np.ma.getmaskarray(waited.waiting_ns) & (calls.row >= 0)
    waiting = np.zeros(len(calls.keys), dtype=np.int64)
    np.add.at(waiting, calls.row[known], waited.waiting_ns.data[known])
    counts = np.bincount(calls.row[known], minlength=len(calls.keys))
    waiting_sums = np.ma.MaskedArray(waiting, mask=counts == 0)
    of_known = np.zeros(len(calls.keys), dtype=np.int64)
    # What is not known of a launch is in neither of the two.
    np.add.at(of_known, calls.row[known], duration_ns[known])
    columns = {
        **_keys(calls.keys),
        "launches": calls.launches.tolist(),
        "duration_ns": calls.duration_ns.tolist(),
        "exposed_ns": calls.exposed_ns.tolist(),
        "overlapped_ns": (calls.duration_ns - calls.exposed_ns).tolist(),
        "waiting_ns": waiting_sums.tolist(),
        "transfer_ns": (np.ma.MaskedArray(of_known, mask=counts == 0) - waiting_sums).tolist(),
        **dict.fromkeys(("fraction", "steps", "per_step_ns"), [None] * len(calls.keys)),
    }
    return frame_of(columns)


def _keys(keys: Sequence[CallKey]) -> dict[str, list[Any]]:
    return {name: [key[at] for key in keys] for at, name in enumerate((*COLLECTIVE_COLUMNS, *LINE))}


def skew(parts: Sequence[RankSummary], rank_delay: Sequence[RankDelay]) -> DataFrame:
    """Return what made a rank late for a collective that another only waited in.

    Args:
        parts: of each rank.
        lateness: what made it late.
    """
    kind = table_named("skew")
    rows = [row for pair in zip(parts, rank_delay, strict=True) for row in _late_rows(*pair)]
    names = (*kind.keys, "launches", "duration_ns")
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    groups = frame_of(columns).groupby(list(kind.keys), dropna=False, sort=False)
    sums = groups.sum(min_count=1)
    sums["launches"] = groups["launches"].nunique().astype(INT)
    sums = sums.reset_index()
    steps = {part.facts.rank: len(part.facts.steps) for part in parts}
    counts = np.array([steps[rank] for rank in sums["rank"].tolist()], dtype=np.int64)
    sums["steps"] = gather(counts.tolist(), np.arange(len(counts)), INT)
    sums["per_step_ns"] = ratio(sums["duration_ns"].to_numpy(np.int64), counts)
    return ordered(sums, "duration_ns", kind.keys)


def _late_rows(part: RankSummary, rank_delay: RankDelay) -> list[tuple[Any, ...]]:
    row_of = dict(zip(part.collectives.launch.tolist(), part.calls.row.tolist(), strict=True))
    result = []
    for at in range(len(rank_delay)):
        launch = int(rank_delay.launch[at])
        if (row := row_of[launch]) >= 0:
            called, where = part.calls.keys[row][:2], rank_delay.places[int(rank_delay.place[at])]
            cause, spent = rank_delay.cause[at] or None, int(rank_delay.duration_ns[at])
            result.append((part.facts.rank, *called, cause, *_line(where), launch, spent))
    return result


def _line(place: Place) -> LineKey:
    gap = place.gap if place.line is None else None
    return place.file, place.line, place.function, place.code, gap
