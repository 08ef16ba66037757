"""Reads a job on workers, decides which ranks belong together, and gathers their aggregates.

A Dask task takes some milliseconds, longer than a small file: so a task reads several files, as
long as each worker gets several portions. A portion whose workers ended one after another is read
again file by file, so that one file costs none of the others.

A rank is read once. What is large stays on its worker: its own tables, which are summed in a tree,
and its devices' timeline, which is queried. If a worker ends, another reads again what it held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from profiler_ext.attribution import clock_sync, collectives
from profiler_ext.attribution.matched_collectives import MatchedCollectives
from profiler_ext.attribution.straggler_causes import Queries, TimeQuery, TimeReply, rank_delays
from profiler_ext.cluster import listing, reading
from profiler_ext.cluster.engine import Work, connected, is_killed_worker, lost
from profiler_ext.cluster.job import Gathered, Job, lines_of, rank_stats_of, wait_for
from profiler_ext.cluster.records import FileGap, RankFacts, RankFile, RankGap, RankSummary
from profiler_ext.cluster.stragglers import stragglers
from profiler_ext.errors import UsageError
from profiler_ext.exporters.tables import Table
from profiler_ext.records.analysis import RankDelay

if TYPE_CHECKING:
    from distributed import Client, Future


_MAX_FILES, _MAX_BYTES = 16, 32 << 20
_MIN_PORTIONS_PER_WORKER = 8  # so that all workers end at about the same time
_MAX_MISSING_RANKS = 100_000
_MAX_MERGED = 32  # sums merged by one task, so that no process holds those of all ranks
Progress = Callable[[str, int, int], None]  # called with what is done, how much, of how much
Portion = Sequence[int]  # indices of some files


@dataclass(frozen=True, slots=True)
class WorkerHandle:
    """What of a rank stays on a worker."""

    portion: Future[Any]  # of the portion in which it was read
    at: int  # its index in that


@dataclass(slots=True)
class ReadResults:
    """The results of files, by their indices."""

    # what travelled of each, or why there is none
    outcomes: dict[int, RankSummary | RankGap] = field(default_factory=dict)
    # what stays of those that are ranks
    held: dict[int, WorkerHandle] = field(default_factory=dict)


def read_files(work: Work, files: Sequence[RankFile], progress: Progress) -> ReadResults:
    """Read each file on a worker."""
    reads = ReadResults()
    lost = _read(work, files, portions(files, work.workers), reads, progress)
    _read(work, files, [(at,) for portion in lost for at in portion], reads, progress)
    return reads


def portions(files: Sequence[RankFile], workers: int) -> list[Portion]:
    """Return which files one task reads together."""
    most = min(_MAX_FILES, max(1, len(files) // (_MIN_PORTIONS_PER_WORKER * max(workers, 1))))
    result: list[list[int]] = []
    left_bytes = 0
    for at, file in enumerate(files):
        if not result or len(result[-1]) == most or file.size_bytes > left_bytes:
            result.append([])
            left_bytes = _MAX_BYTES
        result[-1].append(at)
        left_bytes -= file.size_bytes
    return list(result)


def _read(
    work: Work,
    files: Sequence[RankFile],
    every: Sequence[Portion],
    reads: ReadResults,
    progress: Progress,
) -> list[Portion]:
    """Read portions; returns those of several files that were lost."""
    results = work.held(reading.read_ranks, [[files[at] for at in portion] for portion in every])
    parts = [work.submit(reading.parts_of, each) for each in results]
    held = [work.submit(reading.held_of, each) for each in results]
    del results  # release the whole results once they are split
    lost: list[Portion] = []
    outcomes: Any
    for number, outcomes in work.results(parts):
        portion = every[number]
        if isinstance(outcomes, BaseException):
            if len(portion) > 1 and is_killed_worker(outcomes):
                lost.append(portion)
                continue
            outcomes = [_lost_rank(files[portion[0]], outcomes)]
        for at, (place, own) in enumerate(zip(portion, outcomes, strict=True)):
            reads.outcomes[place] = own
            if isinstance(own, RankSummary):
                reads.held[place] = WorkerHandle(held[number], at)
        progress("ranks read", len(reads.outcomes), len(files))
    return lost


def _lost_rank(file: RankFile, error: BaseException) -> RankGap:
    """Return the gap of a file whose workers ended, one after another."""
    if not is_killed_worker(error):
        raise error
    result = f"every worker that read it ended ({file.size_bytes:,} bytes); give them more memory"
    return RankGap(FileGap.WORKER_LOST, file.rank, "", file.url, result)


def standing(
    read: Sequence[RankSummary], gaps: Iterable[RankGap]
) -> tuple[list[RankSummary], list[RankGap]]:
    """Return the ranks that belong together, sorted, and what does not."""
    result = list(gaps)
    value_of = _with_known_rank(read, result)
    parts = _majority(
        value_of, lambda facts: facts.torch_version, FileGap.OTHER_TORCH, "torch {}", result
    )
    parts = _majority(parts, lambda facts: facts.world_size, FileGap.OTHER_JOB, "{} ranks", result)
    parts = _deduplicated(parts, result)
    known = {part.facts.rank for part in parts} | {gap.rank for gap in result}
    sizes = [part.facts.world_size for part in parts]
    wanted = range(min(max(sizes, default=0), _MAX_MISSING_RANKS))
    result += [
        RankGap(FileGap.MISSING, rank, "", "", f"the other ranks tell of {len(wanted)}")
        for rank in wanted
        if rank not in known
    ]
    return parts, sorted(result, key=lambda g: (float("inf") if g.rank is None else g.rank, g.url))


def _with_known_rank(read: Sequence[RankSummary], result: list[RankGap]) -> list[RankSummary]:
    """Keep the files that state their rank, if there are several."""
    if len(read) < 2:
        return list(read)
    reason = "no rank in its distributedInfo, and it is in no folder rank_N"
    result += [
        RankGap(FileGap.NO_RANK, None, part.facts.host, part.facts.url, reason)
        for part in read
        if not part.facts.is_rank_known
    ]
    return [part for part in read if part.facts.is_rank_known]


def _majority(
    parts: Sequence[RankSummary],
    value_of: Callable[[RankFacts], Hashable],
    reason: FileGap,
    words: str,
    result: list[RankGap],
) -> list[RankSummary]:
    """Keep the files that agree with most; on a tie, with the lowest rank."""
    lowest = sorted(parts, key=lambda part: part.facts.rank)
    counts = Counter(value_of(part.facts) for part in lowest)
    if len(counts) < 2:
        return list(parts)
    (usual, count), *_ = counts.most_common(1)
    others = [part for part in parts if value_of(part.facts) != usual]
    result += [
        _gap(
            part.facts,
            reason,
            f"{words.format(value_of(part.facts) or 'unknown')}, "
            f"where {count} of {len(parts)} files "
            f"have {words.format(usual or 'unknown')}",
        )
        for part in others
    ]
    return [part for part in parts if value_of(part.facts) == usual]


def _deduplicated(parts: Sequence[RankSummary], result: list[RankGap]) -> list[RankSummary]:
    """Keep one file of each rank: the first of equal ones, none of different ones."""
    by_rank: dict[int, list[RankSummary]] = {}
    for part in parts:
        by_rank.setdefault(part.facts.rank, []).append(part)
    kept = []
    for rank in sorted(by_rank):
        first, *others = sorted(by_rank[rank], key=lambda part: part.facts.url)
        are_equal = all(each.facts.digest == first.facts.digest for each in others)
        if are_equal:
            kept.append(first)
        reason_text = (
            f"the same content as {first.facts.url}, which stands"
            if are_equal
            else f"{1 + len(others)} files of it that differ, none of which stands"
        )
        result += [
            _gap(each.facts, FileGap.DUPLICATE_RANK, reason_text)
            for each in (others if are_equal else (first, *others))
        ]
    return kept


def _gap(facts: RankFacts, reason: FileGap, result: str) -> RankGap:
    return RankGap(reason, facts.rank, facts.host, facts.url, result)


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
        scheduler: the address of a Dask scheduler; by default a local cluster.
        workers: processes of the local cluster; by default one a core.
        memory_bytes: of each of them, before it spills to the disk and is restarted.

    Raises:
        MissingExtraError: Dask is not installed.
        UsageError: There is no session there, or none is kept, or there is no scheduler.
    """
    files, gaps = listing.rank_files(place)
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
    summaries = [each for each in outcomes if isinstance(each, RankSummary)]
    parts, all_gaps = standing(
        summaries, [*gaps, *(each for each in outcomes if isinstance(each, RankGap))]
    )
    if not parts:
        reasons = "; ".join(f"{gap.url}: {gap.detail}" for gap in all_gaps[:3])
        raise UsageError(f"no rank of {len(files)} files can be read: {reasons}")
    at = {file.url: place for place, file in enumerate(files)}
    kept = [reads.held[at[part.facts.url]] for part in parts]
    clocks = clock_sync.align_clocks([part.collectives for part in parts])
    pairs = list(zip(parts, clocks, strict=True))
    matched_collectives = MatchedCollectives(
        [collectives.shifted(part.collectives, clock.shift_ns) for part, clock in pairs],
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
    """Return a function that queries ranks on their workers, each on its own clock."""

    def ask(questions: Queries) -> Mapping[int, TimeReply]:
        ranks = sorted(questions)
        futures = [
            work.submit(
                reading.answer_queries,
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
    """Return what each late straggler spends more time in than a median rank."""
    rank_stats = rank_stats_of(parts, lines_of(parts), matched_collectives)
    waits = [wait_for(each, matched_collectives, rank_stats) for each in stragglers(rank_stats)]
    known = [wait for wait in waits if wait is not None]
    outcomes = rank_delays(len(parts), known, ask)
    return [None if wait is None else outcomes[wait.late.rank] for wait in waits]


def _summed(work: Work, ranks: Sequence[WorkerHandle]) -> Mapping[str, Table]:
    """Sum the tables over all ranks, in order of rank, in a tree."""
    together: dict[Future[Any], list[int]] = {}
    for each in ranks:
        together.setdefault(each.portion, []).append(each.at)
    level = [work.submit(reading.sums_of, portion, which) for portion, which in together.items()]
    while len(level) > 1:
        level = [
            work.submit(reading.sum_of, level[at : at + _MAX_MERGED])
            for at in range(0, len(level), _MAX_MERGED)
        ]
    tables: Mapping[str, Table] = work.result(level[0])
    return tables
