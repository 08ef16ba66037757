"""A job: the tables of all its ranks, made of the aggregates that workers sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from profiler_ext.attribution import clock_sync, straggler_causes
from profiler_ext.attribution.matched_collectives import MatchedCollectives, Waited
from profiler_ext.cluster import rank_differences, tables
from profiler_ext.cluster.rank_differences import (
    CollectiveKey,
    WaitBounds,
    matching_gaps,
    wait_bounds,
)
from profiler_ext.cluster.records import LineKey, RankFile, RankGap, RankSummary
from profiler_ext.cluster.stragglers import (
    RankStats,
    Reals,
    Straggler,
    StragglerKind,
    slowdowns,
    stragglers,
)
from profiler_ext.errors import UsageError
from profiler_ext.exporters.tables import Table
from profiler_ext.records.analysis import RankDelay

if TYPE_CHECKING:
    import pandas as pd

# The tables that compare ranks.
TABLES = ("lines", "ranks", "hosts", "groups", "stragglers", "clocks", "gaps")


@dataclass(frozen=True, slots=True)
class Gathered:
    """What workers sent of the ranks that are kept, in order of rank."""

    parts: Sequence[RankSummary]
    gaps: Sequence[RankGap]  # what is not in the tables
    clocks: Sequence[clock_sync.Clock]  # how each rank's clock was aligned
    matched_collectives: MatchedCollectives  # on these clocks
    rank_delay: Sequence[RankDelay]  # what made each rank late
    causes: Sequence[RankDelay | None]  # what each straggler spends more time in, as far as known
    sums: Mapping[str, Table]  # name of a summing table to the sum over all ranks


class Job:
    """All ranks of a job; :meth:`table` returns its tables as pandas frames."""

    def __init__(self, gathered: Gathered) -> None:
        self._gathered = gathered
        self.ranks = tuple(part.facts for part in gathered.parts)  # sorted by rank
        self.clocks = tuple(gathered.clocks)

    def table(self, name: str) -> pd.DataFrame:
        """Return a table of all ranks.

        Args:
            name: ``lines``, ``ranks``, ``hosts``, ``groups``, ``stragglers``, ``clocks``, ``gaps``;
                or, as merged sessions have it, ``by_line``, ``by_module``, ``by_op``,
                ``by_kernel``, ``by_phase``, ``coverage``, ``idle_by_cause``, ``communication``,
                ``skew``.

        Raises:
            UsageError: There is no such table.
        """
        return self.columns(name).to_pandas()

    def columns(self, name: str) -> Table:
        """Return the same as columns.

        Args:
            name: the table's name.
        """
        if name in self._gathered.sums:
            return tables.of_sums(name, self._gathered.sums[name], self.ranks)
        made: dict[str, Callable[[], Table]] = {
            "lines": lambda: rank_differences.lines(
                self.lines, self.rank_stats.work_ns, self.ranks
            ),
            "ranks": lambda: rank_differences.ranks_table(
                self._gathered.parts, self.rank_stats, self._times, self.waited, self.clocks
            ),
            "hosts": lambda: rank_differences.hosts(self.ranks, self.rank_stats, self._times),
            "groups": self._groups,
            "stragglers": self._stragglers,
            "clocks": self._clocks,
            "gaps": lambda: rank_differences.gaps(self.gaps),
            "communication": self._communication,
            "skew": lambda: tables.skew(self._gathered.parts, self._gathered.rank_delay),
        }
        if name not in made:
            listed = ", ".join((*made, *self._gathered.sums))
            raise UsageError(f"a job has no table {name!r}; ask for one of {listed}")
        table: Table = made[name]()
        return table

    @cached_property
    def lines(self) -> tuple[LineKey, ...]:
        """The lines with time on any rank, without collectives."""
        return lines_of(self._gathered.parts)

    @cached_property
    def rank_stats(self) -> RankStats:
        """The times by which ranks are compared."""
        return rank_stats_of(self._gathered.parts, self.lines, self._gathered.matched_collectives)

    @cached_property
    def stragglers(self) -> tuple[Straggler, ...]:
        """The stragglers, the largest excess first."""
        return tuple(stragglers(self.rank_stats))

    @cached_property
    def waited(self) -> tuple[Waited, ...]:
        """How the collectives of each rank waited."""
        return tuple(map(self._gathered.matched_collectives.waited, range(len(self.ranks))))

    @cached_property
    def gaps(self) -> tuple[RankGap, ...]:
        """What is not in the tables; what holds for all ranks first."""
        return (*matching_gaps(self._least), *self._gathered.gaps)

    @cached_property
    def _least(self) -> Mapping[CollectiveKey, WaitBounds]:
        return wait_bounds(self._gathered.parts, self.waited)

    @property
    def column_bytes(self) -> int:
        """Bytes of the columns of all ranks' collectives."""
        return sum(part.collectives.nbytes for part in self._gathered.parts)

    def indices(self, ranks: Sequence[int]) -> list[int]:
        """Return the indices of some ranks in :attr:`ranks`."""
        known = {each.rank: at for at, each in enumerate(self.ranks)}
        if unknown := [rank for rank in ranks if rank not in known]:
            reasons = {gap.rank: f" ({gap.reason.label})" for gap in self.gaps}
            listed_ranks = ", ".join(f"{rank}{reasons.get(rank, '')}" for rank in unknown)
            raise UsageError(
                f"there is no rank {listed_ranks}; the job has {len(known)} from {min(known)} to "
                f"{max(known)}"
            )
        return [known[rank] for rank in ranks]

    def file_of(self, index: int) -> RankFile:
        """Return the file of a rank, by its index."""
        return RankFile(self.ranks[index].url, 0, self.ranks[index].rank)

    @property
    def _times(self) -> Reals:
        return slowdowns(self.rank_stats.work_ns)

    def _communication(self) -> Table:
        return tables.communication(self._gathered.parts, self.waited)

    def _groups(self) -> Table:
        lasts = []
        for rank, row in self._gathered.matched_collectives.lasts():
            part = self._gathered.parts[rank]
            launch = int(np.searchsorted(part.collectives.launch_collective, row))
            if (at := int(part.calls.row[launch])) >= 0:
                name, group, *_ = part.calls.keys[at]
                lasts.append((group or "", name or "", part.facts))
        return rank_differences.groups_table(self._communication(), lasts, self._least)

    def _stragglers(self) -> Table:
        nothing: tuple[str | None, LineKey] = (None, (None,) * 5)
        causes = [nothing if own is None else _cause(own) for own in self._gathered.causes]
        return rank_differences.stragglers_table(self.stragglers, self.lines, self.ranks, causes)

    def _clocks(self) -> Table:
        residuals = map(self._gathered.matched_collectives.residuals_ns, range(len(self.ranks)))
        return rank_differences.clocks_table(self.clocks, self.ranks, list(residuals))


def lines_of(parts: Sequence[RankSummary]) -> tuple[LineKey, ...]:
    """Return the distinct lines of all ranks, each with its first rank's function and code."""
    result: dict[tuple[object, ...], LineKey] = {}
    for part in parts:
        for key in part.lines.keys:
            result.setdefault(_identity(key), key)
    return tuple(result.values())


def rank_stats_of(
    parts: Sequence[RankSummary], names: Sequence[LineKey], matched_collectives: MatchedCollectives
) -> RankStats:
    """Return the times by which ranks are compared."""
    row = {_identity(key): at for at, key in enumerate(names)}
    work_ns = np.zeros((len(names), len(parts)))
    steps = np.array([max(len(part.facts.steps), 1) for part in parts])
    for at, part in enumerate(parts):
        rows = [row[_identity(key)] for key in part.lines.keys]
        work_ns[rows, at] = part.lines.duration_ns / steps[at]
    walls = [part.facts.step_ns for part in parts]
    return RankStats(
        work_ns=work_ns,
        delay_ns=np.where(
            matched_collectives.have_matches(), matched_collectives.delay_ns() / steps, np.nan
        ),
        step_ns=float(np.median(walls)) if walls else 0.0,
        hosts=[part.facts.host for part in parts],
    )


def _identity(key: LineKey) -> tuple[object, ...]:
    file, line, _, _, gap = key
    return file, line, gap


def wait_for(
    straggler: Straggler, matched_collectives: MatchedCollectives, rank_stats: RankStats
) -> straggler_causes.Wait | None:
    """Return the median rank's longest wait for a late straggler."""
    if straggler.kind is not StragglerKind.LATE_AT_COLLECTIVES:
        return None
    latest = max(straggler.ranks, key=lambda rank: rank_stats.delay_ns[rank])
    return matched_collectives.longest_wait_on(latest)


def _cause(rank_delay: RankDelay) -> tuple[str | None, LineKey]:
    """Return what a rank spent most more time in, and where."""
    if not len(rank_delay):
        return None, (None,) * 5
    at = int(rank_delay.duration_ns.argmax())
    place = rank_delay.places[int(rank_delay.place[at])]
    return rank_delay.cause[at] or "running", tables.line_key(place)
