"""Owns the reading of a job: each rank where a worker is, and what of it is brought together.

A rank is read once; what is large of it stays on its worker: its own tables, which are summed in a
tree, and what its devices did, of which it is asked. Where a worker ends, what it held is read
again by another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from profiler_ext.attribution.clocks import set_clocks
from profiler_ext.attribution.collectives import shifted
from profiler_ext.attribution.doing import Asked
from profiler_ext.attribution.lateness import Answers, Questions, with_reasons
from profiler_ext.attribution.meetings import Meetings
from profiler_ext.cluster.engine import Work, connected, is_lost, lost
from profiler_ext.cluster.job import Gathered, Job, lines_of, paces_of, wait_for
from profiler_ext.cluster.listing import rank_files
from profiler_ext.cluster.reading import (
    SUMMED,
    answers_of,
    doing_of_rank,
    part_of,
    read_rank,
    sums_of,
)
from profiler_ext.cluster.records import FileGap, RankFile, RankGap, RankPart
from profiler_ext.cluster.standing import standing
from profiler_ext.cluster.stragglers import stragglers
from profiler_ext.cluster.tables.summing import summed
from profiler_ext.errors import UsageError
from profiler_ext.exporters.tables import DataFrame
from profiler_ext.records import Lateness

if TYPE_CHECKING:
    from distributed import Client, Future

_TOGETHER = 32
"""So many sums make one, so that no process holds those of all ranks."""
Progress = Callable[[str, int, int], None]
"""Is told what is done, how much of it, and of how much."""


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
        return Job(_gathered(Work(held), files, gaps, progress))


@dataclass(frozen=True, slots=True)
class _Held:
    """What stays on workers of each file, by its place among them."""

    sums: Sequence[Future[Any]]
    doing: Sequence[Future[Any]]


def _gathered(
    work: Work, files: Sequence[RankFile], gaps: Sequence[RankGap], progress: Progress
) -> Gathered:
    told, held = _read(work, files, progress)
    found = [each for each in told if isinstance(each, RankPart)]
    parts, all_gaps = standing(
        found, [*gaps, *(each for each in told if isinstance(each, RankGap))]
    )
    if not parts:
        said = "; ".join(f"{gap.url}: {gap.found}" for gap in all_gaps[:3])
        raise UsageError(f"no rank of {len(files)} files can be read: {said}")
    at = {file.url: place for place, file in enumerate(files)}
    kept = [at[part.facts.url] for part in parts]
    clocks = set_clocks([part.collectives for part in parts])
    pairs = list(zip(parts, clocks, strict=True))
    meetings = Meetings(
        [shifted(part.collectives, clock.shift_ns) for part, clock in pairs],
        max(part.facts.world_size for part in parts),
    )
    doing = [held.doing[place] for place in kept]
    ask = _asking(work, doing, [clock.shift_ns for clock in clocks], progress)
    return Gathered(
        parts=parts,
        gaps=all_gaps,
        clocks=clocks,
        meetings=meetings,
        lateness=with_reasons(len(parts), list(meetings.waits()), ask),
        causes=_causes(parts, meetings, ask),
        sums=_summed(work, [held.sums[place] for place in kept]),
    )


def _read(
    work: Work, files: Sequence[RankFile], progress: Progress
) -> tuple[list[RankPart | RankGap], _Held]:
    """Have each file read; what is read as a whole is let go of as soon as it is in its parts."""
    reads = work.held(read_rank, files)
    parts = [work.submitted(part_of, read) for read in reads]
    held = _Held(
        [work.submitted(sums_of, read) for read in reads],
        [work.submitted(doing_of_rank, read) for read in reads],
    )
    del reads
    return _parts(work, files, parts, progress), held


def _parts(
    work: Work, files: Sequence[RankFile], futures: Sequence[Future[Any]], progress: Progress
) -> list[RankPart | RankGap]:
    found: dict[int, RankPart | RankGap] = {}
    for at, told in work.results(futures):
        if isinstance(told, RankPart | RankGap):
            found[at] = told
        elif isinstance(told, BaseException):
            found[at] = _lost(files[at], told)
        progress("ranks read", len(found), len(files))
    return [found[at] for at in range(len(files))]


def _lost(file: RankFile, error: BaseException) -> RankGap:
    """Return the gap of a file at which workers ended, one after the other."""
    if not is_lost(error):
        raise error
    found = f"every worker that read it ended ({file.size_bytes:,} bytes); give them more memory"
    return RankGap(FileGap.WORKER_LOST, file.rank, "", file.url, found)


def _asking(
    work: Work, doing: Sequence[Future[Any]], shifts_ns: Sequence[int], progress: Progress
) -> Callable[[Questions], Mapping[int, Answers]]:
    """Return what asks ranks where they were read; each on its own clock."""

    def ask(questions: Questions) -> Mapping[int, Answers]:
        ranks = sorted(questions)
        futures = [
            work.submitted(answers_of, doing[rank], _moved(questions[rank], -shifts_ns[rank]))
            for rank in ranks
        ]
        told: dict[int, Answers] = {}
        for at, answer in work.results(futures):
            if isinstance(answer, BaseException):
                raise lost() if is_lost(answer) else answer
            assert isinstance(answer, Answers)
            told[ranks[at]] = answer
            progress("ranks asked", len(told), len(ranks))
        return told

    return ask


def _moved(asked: Sequence[Asked], shift_ns: int) -> list[Asked]:
    return [
        Asked(each.device, [(start + shift_ns, end + shift_ns) for start, end in each.windows])
        for each in asked
    ]


def _causes(
    parts: Sequence[RankPart],
    meetings: Meetings,
    ask: Callable[[Questions], Mapping[int, Answers]],
) -> list[Lateness | None]:
    """Return of each straggler that comes late what it spends more time in than a median rank."""
    paces = paces_of(parts, lines_of(parts), meetings)
    waits = [wait_for(each, meetings, paces) for each in stragglers(paces)]
    known = [wait for wait in waits if wait is not None]
    told = with_reasons(len(parts), known, ask)
    return [None if wait is None else told[wait.late.rank] for wait in waits]


def _summed(work: Work, sums: Sequence[Future[Any]]) -> Mapping[str, DataFrame]:
    """Sum the tables over all ranks, in order of rank, a few at a time."""
    level = list(sums)
    while len(level) > 1 or level[0] is sums[0]:
        level = [
            work.submitted(_sum, level[at : at + _TOGETHER])
            for at in range(0, len(level), _TOGETHER)
        ]
    tables: Mapping[str, DataFrame] = work.result(level[0])
    return tables


def _sum(several: Sequence[Mapping[str, DataFrame]]) -> Mapping[str, DataFrame]:
    return {name: summed(name, [each[name] for each in several]) for name in SUMMED}
