"""The tables of a job that show how its ranks differ: by line, rank, host and process group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from profiler_ext.attribution.clock_sync import Clock
from profiler_ext.attribution.matched_collectives import Waited
from profiler_ext.cluster import records
from profiler_ext.cluster.stragglers import RankStats, Reals, Straggler, ranks_by_host
from profiler_ext.cluster.tables import COLLECTIVE_COLUMNS, LINE, frame_of, ordered
from profiler_ext.exporters.tables import schema
from profiler_ext.exporters.tables.table import Table, summed
from profiler_ext.kineto.distributed import may_synchronize
from profiler_ext.records import events, share_sums

CollectiveKey = tuple[str | None, str | None]  # collective and process group


@dataclass(frozen=True, slots=True)
class WaitBounds:
    """How long the launches of one collective in one process group waited, over all ranks."""

    least_ns: int  # at least
    rest_ns: int  # transfer, and waiting beyond that
    incomplete: int  # launches of which not every rank is there
    launches: int  # launches matched to those of other ranks
    unmatched: int  # further launches that may wait too

    @property
    def is_known(self) -> bool:
        """Whether some waiting is known, or there was nothing to wait for."""
        return self.launches > 0 or not self.unmatched

    @property
    def is_complete(self) -> bool:
        """Whether all waiting is known."""
        return not self.incomplete and not self.unmatched

    def __add__(self, other: WaitBounds) -> WaitBounds:
        return WaitBounds(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def wait_bounds(
    parts: Sequence[records.RankSummary], waited: Sequence[Waited]
) -> dict[CollectiveKey, WaitBounds]:
    """Return the least waiting by collective and process group."""
    result: dict[CollectiveKey, WaitBounds] = {}
    for part, own in zip(parts, waited, strict=True):
        for called, least in _of_rank(part, own):
            result[called] = result[called] + least if called in result else least
    return result


def rank_wait_bounds(part: records.RankSummary, waited: Waited) -> WaitBounds:
    """Return a rank's least waiting, in all its steps."""
    return sum((least for _, least in _of_rank(part, waited)), WaitBounds(0, 0, 0, 0, 0))


def _of_rank(part: records.RankSummary, waited: Waited) -> list[tuple[CollectiveKey, WaitBounds]]:
    calls, count = part.calls, len(part.calls.keys)
    is_counted = calls.row >= 0
    row = calls.row[is_counted]

    def summed(values: events.Ints) -> list[int]:
        sums: list[int] = share_sums.sum_by(row, values[is_counted], count).tolist()
        return sums

    duration_ns = part.collectives.launch_duration_ns
    is_open = np.ma.getmaskarray(waited.waiting_ns)
    launches = summed(np.ones(len(is_counted), dtype=np.int64))
    columns = (
        summed(waited.least_ns),
        summed(duration_ns - waited.least_ns),
        summed(is_open.astype(np.int64)),
        launches,
        _unmatched(calls, launches),
    )
    rows = zip(calls.keys, *columns, strict=True)
    return [((key[0], key[1]), WaitBounds(*own)) for key, *own in rows if own[-1] or own[-2]]


def _unmatched(calls: records.CallTimes, matched: Sequence[int]) -> list[int]:
    """Return how many launches of each call may wait and are not matched."""
    return [
        launches - known if may_synchronize(key[0] or "") else 0
        for key, launches, known in zip(calls.keys, calls.launches.tolist(), matched, strict=True)
    ]


def matching_gaps(least: Mapping[CollectiveKey, WaitBounds]) -> list[records.RankGap]:
    """Return what is not known of some collectives."""
    return [*_incomplete(least), *_of_unmatched(least)]


def _of_unmatched(least: Mapping[CollectiveKey, WaitBounds]) -> list[records.RankGap]:
    unmatched = sum(each.unmatched for each in least.values())
    if not unmatched:
        return []
    launches = sum(each.launches for each in least.values()) + unmatched
    result = (
        f"of {unmatched:,} of {launches:,} launches no trace tells which collective of its process "
        "group each is, by its number or by the order of all in a step: nobody's waiting in them "
        "is known"
    )
    return [records.RankGap(records.FileGap.NOT_MATCHED, None, "", "", result)]


def _incomplete(least: Mapping[CollectiveKey, WaitBounds]) -> list[records.RankGap]:
    incomplete = sum(each.incomplete for each in least.values())
    if not incomplete:
        return []
    groups = len({group for (_, group), each in least.items() if each.incomplete})
    launches = sum(each.launches for each in least.values())
    result = (
        f"in {incomplete:,} of {launches:,} launches, of {groups:,} process "
        f"group{'s' if groups > 1 else ''}, a rank is missing that may have come last: their "
        "waiting is reported as at least"
    )
    return [records.RankGap(records.FileGap.INCOMPLETE_GROUP, None, "", "", result)]


def lines(
    names: Sequence[records.LineKey], work_ns: Reals, ranks: Sequence[records.RankFacts]
) -> Table:
    """Return each line's time on the slowest, the median and the fastest rank with steps.

    Args:
        work_ns: time of a step of each line (row) on each rank (column).
    """
    if judged := [at for at, each in enumerate(ranks) if each.steps]:
        work_ns, ranks = work_ns[:, judged], [ranks[at] for at in judged]
    order = np.argsort(work_ns, axis=1, kind="stable")
    places = {"slowest": -1, "median": (len(ranks) - 1) // 2, "fastest": 0}
    columns: dict[str, list[Any]] = {
        name: [key[at] for key in names] for at, name in enumerate(LINE)
    }
    for word, at in places.items():
        rank_indices = order[:, at].tolist()
        columns[f"{word}_ns"] = [float(work_ns[row, who]) for row, who in enumerate(rank_indices)]
        columns[f"{word}_rank"] = [ranks[who].rank for who in rank_indices]
        columns[f"{word}_host"] = [ranks[who].host or None for who in rank_indices]
    columns["slowdown"] = [
        slowest / middle if middle else None
        for slowest, middle in zip(columns["slowest_ns"], columns["median_ns"], strict=True)
    ]
    columns["ranks"] = (work_ns > 0).sum(axis=1).tolist()
    return ordered(frame_of(columns), "median_ns", ("slowest_ns", "file", "line", "gap"))


def ranks_table(
    parts: Sequence[records.RankSummary],
    rank_stats: RankStats,
    times: Reals,
    waited: Sequence[Waited],
    clocks: Sequence[Clock],
) -> Table:
    """Return a row for each rank."""
    facts = [part.facts for part in parts]
    waits = [rank_wait_bounds(part, own) for part, own in zip(parts, waited, strict=True)]
    per_step = [
        own.least_ns / len(each.steps) if each.steps else None
        for own, each in zip(waits, facts, strict=True)
    ]
    columns: dict[str, list[Any]] = {
        "rank": [each.rank for each in facts],
        "host": [each.host or None for each in facts],
        "steps": [len(each.steps) for each in facts],
        "step_ns": known(step_times(facts)),
        "work_ns": known(_of_steps(facts, rank_stats.work_ns.sum(axis=0))),
        "slowdown": known(_of_steps(facts, times)),
        "step_waiting_ns": [
            each if own.is_complete else None for each, own in zip(per_step, waits, strict=True)
        ],
        "min_step_waiting_ns": [
            each if own.is_known else None for each, own in zip(per_step, waits, strict=True)
        ],
        "delay_ns": known(_of_steps(facts, rank_stats.delay_ns)),
        "shift_ns": [clock.shift_ns for clock in clocks],
        "torch_version": [each.torch_version or None for each in facts],
        "recording": [_utf8(each.url) for each in facts],
    }
    return frame_of(columns)


def hosts(facts: Sequence[records.RankFacts], rank_stats: RankStats, times: Reals) -> Table:
    """Return a row for each host, with medians of its ranks."""
    groups = ranks_by_host(rank_stats.hosts)
    columns: dict[str, list[Any]] = {
        "host": [host or None for host in groups],
        "ranks": [len(own) for own in groups.values()],
    }
    values = {
        "step_ns": step_times(facts),
        "work_ns": _of_steps(facts, rank_stats.work_ns.sum(axis=0)),
        "slowdown": _of_steps(facts, times),
        "delay_ns": _of_steps(facts, rank_stats.delay_ns),
    }
    for name, each in values.items():
        columns[name] = known(np.array([np.median(each[own]) for own in groups.values()]))
    return ordered(frame_of(columns), "delay_ns", ("host",))


def step_times(facts: Sequence[records.RankFacts]) -> Reals:
    """Return the median step's wall time of each rank; NaN without steps."""
    return _of_steps(facts, np.array([float(each.step_ns) for each in facts]))


def known(values: Reals) -> list[float | None]:
    """Return numbers as a column has them: NaN, which is unknown, as ``None``."""
    return [None if np.isnan(value) else value for value in values.tolist()]


def _of_steps(facts: Sequence[records.RankFacts], values: Reals) -> Reals:
    """Return values of each rank's step; NaN without steps."""
    return np.where([len(each.steps) > 0 for each in facts], values, np.nan)


def groups_table(
    table: Table,
    lasts: Sequence[tuple[str, str, records.RankFacts]],
    least: Mapping[CollectiveKey, WaitBounds],
) -> Table:
    """Return communication by process group and collective: waiting apart from transfer.

    Args:
        lasts: for each collective its process group, its name, and the rank that came last.
    """
    sums = ["launches", "duration_ns", "exposed_ns", "overlapped_ns", "waiting_ns"]
    sums += ["transfer_ns", "per_step_ns"]
    group, firsts = table.groups(COLLECTIVE_COLUMNS)
    columns = {name: table[name].take(firsts) for name in COLLECTIVE_COLUMNS}
    columns |= {name: summed(table[name], group, len(firsts)) for name in sums}
    resolved = _most_often_last(lasts)
    keys = list(
        zip(*(columns[name].tolist() for name in reversed(COLLECTIVE_COLUMNS)), strict=True)
    )
    nobody: tuple[records.RankFacts | None, int | None, int | None] = (None, None, None)
    rows = [resolved.get((group or "", name or ""), nobody) for group, name in keys]
    every = (least.get((name, group)) for group, name in keys)
    waits = [own if own is not None and own.launches else None for own in every]
    more: dict[str, list[Any]] = {
        "min_waiting_ns": [None if own is None else own.least_ns for own in waits],
        "max_transfer_ns": [None if own is None else own.rest_ns for own in waits],
        "incomplete": [None if own is None else own.incomplete for own in waits],
        "collectives": [count for _, _, count in rows],
        "last_rank": [None if last is None else last.rank for last, _, _ in rows],
        "last_host": [None if last is None else last.host or None for last, _, _ in rows],
        "last_count": [times for _, times, _ in rows],
    }
    whole = schema.frame(columns).with_columns(frame_of(more).by_name)
    return whole.longest_first(("process_group", "collective"))


def _most_often_last(
    lasts: Sequence[tuple[str, str, records.RankFacts]],
) -> dict[tuple[str, str], tuple[records.RankFacts | None, int | None, int | None]]:
    counts: dict[tuple[str, str], dict[records.RankFacts, int]] = {}
    for group, name, last in lasts:
        own = counts.setdefault((group, name), {})
        own[last] = own.get(last, 0) + 1
    most = {key: max(own, key=lambda each: own[each]) for key, own in counts.items()}
    return {key: (last, counts[key][last], sum(counts[key].values())) for key, last in most.items()}


def stragglers_table(
    records_of: Sequence[Straggler],
    names: Sequence[records.LineKey],
    ranks: Sequence[records.RankFacts],
    causes: Sequence[tuple[str | None, records.LineKey]],
) -> Table:
    """Return the stragglers with what each spends more time in, the largest excess first."""
    nowhere: records.LineKey = (None,) * 5
    lines_of = [names[each.line] if each.line is not None else nowhere for each in records_of]
    resolved = [
        where if each.line is not None else line
        for each, where, (_, line) in zip(records_of, lines_of, causes, strict=True)
    ]
    columns: dict[str, list[Any]] = {
        "straggler": [each.kind.value for each in records_of],
        "host": [each.host or None for each in records_of],
        "rank": [None if each.is_host else ranks[each.ranks[0]].rank for each in records_of],
        "ranks": [len(each.ranks) for each in records_of],
        "excess_ns": [each.excess_ns for each in records_of],
        "slowdown": [each.slowdown for each in records_of],
        "cause": [cause for cause, _ in causes],
    }
    columns |= {name: [line[at] for line in resolved] for at, name in enumerate(LINE)}
    return frame_of(columns)


def clocks_table(
    clocks: Sequence[Clock], facts: Sequence[records.RankFacts], residuals_ns: Sequence[events.Ints]
) -> Table:
    """Return how each rank's clock was aligned, and how far its collectives' ends still differ."""
    return frame_of(
        {
            "rank": [each.rank for each in clocks],
            "host": [each.host or None for each in facts],
            "shift_ns": [each.shift_ns for each in clocks],
            "collectives": [each.collectives for each in clocks],
            "residual_ns": [
                int(np.median(np.abs(own))) if len(own) else None for own in residuals_ns
            ],
        }
    )


def gaps(records_of: Sequence[records.RankGap]) -> Table:
    """Return what is not in the tables."""
    return frame_of(
        {
            "reason": [each.reason.value for each in records_of],
            "rank": [each.rank for each in records_of],
            "host": [each.host or None for each in records_of],
            "recording": [_utf8(each.url) or None for each in records_of],
            "detail": [_utf8(each.detail) for each in records_of],
        }
    )


def _utf8(text: str) -> str:
    """Escape bytes that are not UTF-8, which a path may hold."""
    return text.encode("utf-8", "backslashreplace").decode()
