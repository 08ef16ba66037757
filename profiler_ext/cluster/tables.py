"""A job's tables that sum those of its ranks, and the columns that only a job has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from profiler_ext.attribution.matched_collectives import Waited
from profiler_ext.cluster.records import LineKey, RankFacts, RankSummary
from profiler_ext.exporters.table_kinds import table_named
from profiler_ext.exporters.tables import Table
from profiler_ext.exporters.tables.ranks import add_means, sum_over_ranks
from profiler_ext.exporters.tables.schema import COLUMNS, Column, frame, ratio, repeated, whole
from profiler_ext.exporters.tables.table import FLOAT, INT, TEXT, gather
from profiler_ext.records.analysis import Place, RankDelay
from profiler_ext.records.share_sums import count_distinct, sum_by

_OF_JOBS = (
    Column("host", TEXT, "the machine; absent where nothing tells it"),
    Column("recording", TEXT, "the file of the rank"),
    Column("torch_version", TEXT, "torch that recorded it"),
    Column("slowest_ns", FLOAT, "a step's time on the rank where it is longest"),
    Column("slowest_rank", INT, "that rank"),
    Column("slowest_host", TEXT, "its host"),
    Column("median_ns", FLOAT, "a step's time on the median rank, of an even number the lower"),
    Column("median_rank", INT, "that rank"),
    Column("median_host", TEXT, "its host"),
    Column("fastest_ns", FLOAT, "a step's time on the rank where it is shortest"),
    Column("fastest_rank", INT, "that rank"),
    Column("fastest_host", TEXT, "its host"),
    Column("step_ns", FLOAT, "wall time of the usual step"),
    Column("work_ns", FLOAT, "device time of a step without collectives"),
    Column(
        "step_waiting_ns", FLOAT, "how long it waits for last ranks in a step, if all are there"
    ),
    Column("min_step_waiting_ns", FLOAT, "how long at least it waits for last ranks in a step"),
    Column("min_waiting_ns", INT, "how long at least was waited for last ranks"),
    Column("max_transfer_ns", INT, "the rest of their time: transfer, and further waiting"),
    Column("incomplete", INT, "launches of which not every rank of the group is there"),
    Column("delay_ns", FLOAT, "how much later than the median rank it comes, in a step"),
    Column("slowdown", FLOAT, "how many times as long as on the median rank"),
    Column("excess_ns", FLOAT, "how much longer than on the median rank, in a step"),
    Column("straggler", TEXT, "in what it is behind the others"),
    Column("last_rank", INT, "the rank that came last most often"),
    Column("last_host", TEXT, "its host"),
    Column("last_count", INT, "to how many of the collectives it came last"),
    Column("collectives", INT, "how many collectives tell it"),
    Column("shift_ns", INT, "what is added to the rank's wall clock"),
    Column("residual_ns", INT, "median distance of its collectives' ends from the median rank's"),
    Column("reason", TEXT, "why it is not in the tables"),
    Column("detail", TEXT, "what was found"),
)
JOB_COLUMNS = {**COLUMNS, **{column.name: column for column in _OF_JOBS}}
LINE: Final = ("file", "line", "function", "code", "gap")
COLLECTIVE_COLUMNS: Final = ("collective", "process_group")


def frame_of(columns: Mapping[str, Sequence[Any]]) -> Table:
    """Return columns as a table; their names tell their types."""
    return frame(
        {
            name: gather(list(values), np.arange(len(values)), JOB_COLUMNS[name].dtype)
            for name, values in columns.items()
        }
    )


def ordered(table: Table, largest: str, keys: Sequence[str]) -> Table:
    """Return a table sorted by one column, the largest first, then by others."""
    return table.sorted_by([largest, *keys], [largest])


def with_rank(table: Table, facts: RankFacts) -> Table:
    """Return a rank's own table with its rank and host."""
    own = {
        "rank": repeated(facts.rank, len(table), INT),
        "host": repeated(facts.host or None, len(table), TEXT),
    }
    return frame({**own, **table.without("rank", "host").by_name})


def summed(name: str, tables: Sequence[Table]) -> Table:
    """Return the sum of a summing table over ranks, in order of rank."""
    return sum_over_ranks(table_named(name), tables)


def of_sums(name: str, sums: Table, ranks: Sequence[RankFacts]) -> Table:
    """Return a summing table of a job."""
    return add_means(table_named(name), sums, [each.steps for each in ranks])


def communication(parts: Sequence[RankSummary], waited: Sequence[Waited]) -> Table:
    """Return device time of collectives by collective, process group and line."""
    result = [_calls(part, own) for part, own in zip(parts, waited, strict=True)]
    kind = table_named("communication")
    return add_means(kind, sum_over_ranks(kind, result), [part.facts.steps for part in parts])


def _calls(part: RankSummary, waited: Waited) -> Table:
    """Return the collectives of one rank, with their waiting where known."""
    calls, duration_ns = part.calls, part.collectives.launch_duration_ns
    known = ~np.ma.getmaskarray(waited.waiting_ns) & (calls.row >= 0)
    # Launches of unknown waiting are in neither sum.
    row, size = calls.row[known], len(calls.keys)
    is_unknown = np.bincount(row, minlength=size) == 0
    waiting = np.ma.MaskedArray(sum_by(row, waited.waiting_ns.data[known], size), is_unknown)
    of_known = np.ma.MaskedArray(sum_by(row, duration_ns[known], size), is_unknown)
    names = (*COLLECTIVE_COLUMNS, *LINE)
    columns = {
        **{name: [key[at] for key in calls.keys] for at, name in enumerate(names)},
        "launches": calls.launches.tolist(),
        "duration_ns": calls.duration_ns.tolist(),
        "exposed_ns": calls.exposed_ns.tolist(),
        "overlapped_ns": (calls.duration_ns - calls.exposed_ns).tolist(),
        "waiting_ns": waiting.tolist(),
        "transfer_ns": (of_known - waiting).tolist(),
        **dict.fromkeys(("fraction", "steps", "per_step_ns"), [None] * len(calls.keys)),
    }
    return frame_of(columns)


def line_key(place: Place) -> LineKey:
    """Return the line of a place; without a line, why."""
    gap = place.gap if place.line is None else None
    return place.file, place.line, place.function, place.code, gap


def skew(parts: Sequence[RankSummary], rank_delay: Sequence[RankDelay]) -> Table:
    """Return what made a rank late for a collective in which another waited."""
    kind = table_named("skew")
    rows = [row for pair in zip(parts, rank_delay, strict=True) for row in _late_rows(*pair)]
    names = (*kind.keys, "launches", "duration_ns")
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    table = frame_of(columns)
    group, firsts = table.groups(kind.keys)
    launches = count_distinct(group, table["launches"].data, len(firsts))
    time = sum_by(group, table["duration_ns"].data, len(firsts))
    sums = {name: table[name].take(firsts) for name in kind.keys}
    sums |= {"launches": whole(launches), "duration_ns": whole(time)}
    steps = {part.facts.rank: len(part.facts.steps) for part in parts}
    counts = np.array([steps[rank] for rank in sums["rank"].tolist()], dtype=np.int64)
    sums |= {"steps": whole(counts), "per_step_ns": ratio(time, counts)}
    return frame(sums).longest_first(kind.keys)


def _late_rows(part: RankSummary, rank_delay: RankDelay) -> list[tuple[Any, ...]]:
    row_of = dict(zip(part.collectives.launch.tolist(), part.calls.row.tolist(), strict=True))
    result = []
    for at in range(len(rank_delay)):
        launch = int(rank_delay.launch[at])
        if (row := row_of[launch]) >= 0:
            called, where = part.calls.keys[row][:2], rank_delay.places[int(rank_delay.place[at])]
            cause, spent = rank_delay.cause[at] or None, int(rank_delay.duration_ns[at])
            result.append((part.facts.rank, *called, cause, *line_key(where), launch, spent))
    return result
