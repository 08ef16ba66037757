"""Owns the reading of a job: each rank where a worker is, and what of it is brought together.

A rank is read once; what is large of it stays on its worker: its own tables, which are summed in a
tree, and what its devices did, of which it is asked. Where a worker ends, what it held is read
again by another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from profiler_ext.attribution.clocks import align_clocks
from profiler_ext.attribution.collectives import shifted
from profiler_ext.attribution.doing import TimeQuery
from profiler_ext.attribution.lateness import TimeReply, Queries, rank_delays
from profiler_ext.attribution.meetings import MatchedCollectives
from profiler_ext.cluster.engine import Work, connected, is_killed_worker, lost
from profiler_ext.cluster.job import Gathered, Job, lines_of, rank_stats_of, wait_for
from profiler_ext.cluster.listing import rank_files
from profiler_ext.cluster.portions import WorkerHandle, Progress, read_files
from profiler_ext.cluster.reading import answer_queries, sum_of, sums_of
from profiler_ext.cluster.records import RankFile, RankGap, RankSummary
from profiler_ext.cluster.standing import standing
from profiler_ext.cluster.stragglers import stragglers
from profiler_ext.errors import UsageError
from profiler_ext.exporters.tables import DataFrame
from profiler_ext.records import RankDelay

if TYPE_CHECKING:
    from distributed import Client, Future

_MAX_MERGED = 32
"""So many sums make one, so that no process holds those of all ranks."""


def read_job(
    place: str,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    memory_bytes: int | None = None,
    client: Client | None = None,
    progress: Progress = lambda what, done, of: None,
) -> Job:
    """Read the sessions of a job's ranks on Dask.

    Args:
        place: a folder, a file or a pattern; a path, or a URL that fsspec takes.
        scheduler: the address of a Dask scheduler; by default a cluster of this machine.
        workers: how many processes that has; by default as many as there are cores.
        memory_bytes: what each of them may take before it writes to the disk and is restarted.
        client: a client of a scheduler, instead of these.
        progress: is told how far it is.

    Returns:
        The job.

    Raises:
        MissingExtraError: Dask is not installed.
        UsageError: There is no session there, or none stands, or there is no scheduler.
    """
    files, gaps = rank_files(place)
    engine: AbstractContextManager[Any] = (
        nullcontext(client) if client else connected(scheduler, workers, memory_bytes)
    )
    with engine as held:
        return Job(_gather(Work(held), files, gaps, progress))


def _gather(
    work: Work, files: Sequence[RankFile], gaps: Sequence[RankGap], progress: Progress
) -> Gathered:
    reads = read_files(work, files, progress)
    outcomes = [reads.outcomes[at] for at in range(len(files))]
    found = [each for each in outcomes if isinstance(each, RankSummary)]
    parts, all_gaps = standing(
        found, [*gaps, *(each for each in outcomes if isinstance(each, RankGap))]
    )
    if not parts:
        reasons = "; ".join(f"{gap.url}: {gap.found}" for gap in all_gaps[:3])
        raise UsageError(f"no rank of {len(files)} files can be read: {reasons}")
    at = {file.url: place for place, file in enumerate(files)}
    kept = [reads.held[at[part.facts.url]] for part in parts]
    clocks = align_clocks([part.collectives for part in parts])
    pairs = list(zip(parts, clocks, strict=True))
    matched_collectives = MatchedCollectives(
        [shifted(part.collectives, clock.shift_ns) for part, clock in pairs],
        max(part.facts.world_size for part in parts),
    )
    ask = _query_function(work, kept, [clock.shift_ns for clock in clocks], progress)
    return Gathered(
        parts=parts,
        gaps=all_gaps,
        clocks=clocks,
        matched_collectives=matched_collectives,
        rank_delay=rank_delays(len(parts), list(matched_collectives.waits()), ask),
        causes=_causes(parts, matched_collectives, ask),
        sums=_summed(work, kept),
    )


def _query_function(
    work: Work, held: Sequence[WorkerHandle], shifts_ns: Sequence[int], progress: Progress
) -> Callable[[Queries], Mapping[int, TimeReply]]:
    """Return what asks ranks where they were read; each on its own clock."""

    def ask(questions: Queries) -> Mapping[int, TimeReply]:
        ranks = sorted(questions)
        futures = [
            work.submit(
                answer_queries,
                held[rank].portion,
                held[rank].at,
                _shifted_queries(questions[rank], -shifts_ns[rank]),
            )
            for rank in ranks
        ]
        outcomes: dict[int, TimeReply] = {}
        for at, answer in work.results(futures):
            if isinstance(answer, BaseException):
                raise lost() if is_killed_worker(answer) else answer
            assert isinstance(answer, TimeReply)
            outcomes[ranks[at]] = answer
            progress("ranks asked", len(outcomes), len(ranks))
        return outcomes

    return ask


def _shifted_queries(queries: Sequence[TimeQuery], shift_ns: int) -> list[TimeQuery]:
    return [
        TimeQuery(each.device, [(start + shift_ns, end + shift_ns) for start, end in each.windows])
        for each in queries
    ]


def _causes(
    parts: Sequence[RankSummary],
    matched_collectives: MatchedCollectives,
    ask: Callable[[Queries], Mapping[int, TimeReply]],
) -> list[RankDelay | None]:
    """Return of each straggler that comes late what it spends more time in than a median rank."""
    rank_stats = rank_stats_of(parts, lines_of(parts), matched_collectives)
    waits = [wait_for(each, matched_collectives, rank_stats) for each in stragglers(rank_stats)]
    known = [wait for wait in waits if wait is not None]
    outcomes = rank_delays(len(parts), known, ask)
    return [None if wait is None else outcomes[wait.late.rank] for wait in waits]


def _summed(work: Work, ranks: Sequence[WorkerHandle]) -> Mapping[str, DataFrame]:
    """Sum the tables over all ranks, in order of rank, a few at a time."""
    together: dict[Future[Any], list[int]] = {}
    for each in ranks:
        together.setdefault(each.portion, []).append(each.at)
    level = [work.submit(sums_of, portion, which) for portion, which in together.items()]
    while len(level) > 1:
        level = [
            work.submit(sum_of, level[at : at + _MAX_MERGED])
            for at in range(0, len(level), _MAX_MERGED)
        ]
    tables: Mapping[str, DataFrame] = work.result(level[0])
    return tables
