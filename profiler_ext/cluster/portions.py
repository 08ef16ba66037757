"""Owns the reading of a job's files on workers: several in one task, and what stays there of them.

Dask takes some milliseconds for a task, which is more than a small file takes. So several files are
read in one, as long as each worker has several portions to read. A portion at which worker after
worker ended is read once more, each file by itself: one file costs none of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from profiler_ext.cluster.engine import Work, is_killed_worker
from profiler_ext.cluster.reading import held_of, parts_of, read_ranks
from profiler_ext.cluster.records import FileGap, RankFile, RankGap, RankSummary

if TYPE_CHECKING:
    from distributed import Future

_MAX_FILES, _MAX_BYTES = 16, 32 << 20
_MIN_PORTIONS_PER_WORKER = 8
"""So many portions each worker has to read at least, so that all are done at about one time."""
Progress = Callable[[str, int, int], None]
"""Is told what is done, how much of it, and of how much."""
Portion = Sequence[int]
"""The places of some files among all."""


@dataclass(frozen=True, slots=True)
class WorkerHandle:
    """What stays on a worker of a rank.

    Attributes:
        portion: stands for what stays of the portion in which it was read.
        at: its place in that.
    """

    portion: Future[Any]
    at: int


@dataclass(slots=True)
class ReadResults:
    """What came of files, by their places among all.

    Attributes:
        told: what travelled of each: its part, or why there is none.
        held: what stays of those that are ranks.
    """

    outcomes: dict[int, RankSummary | RankGap] = field(default_factory=dict)
    held: dict[int, WorkerHandle] = field(default_factory=dict)


def read_files(work: Work, files: Sequence[RankFile], progress: Progress) -> ReadResults:
    """Have each file read where a worker is.

    Args:
        work: on the cluster.
        files: the files.
        progress: is told how many are read.

    Returns:
        What travelled of each file, and what stays of those that are ranks.
    """
    reads = ReadResults()
    lost = _read(work, files, portions(files, work.workers), reads, progress)
    _read(work, files, [(at,) for portion in lost for at in portion], reads, progress)
    return reads


def portions(files: Sequence[RankFile], workers: int) -> list[Portion]:
    """Return which files are read in one task.

    Args:
        files: the files, in order.
        workers: how many processes read them.
    """
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
    """Read portions; returns those of several files that were lost.

    What is read as a whole is let go of as soon as it is in its two parts.
    """
    results = work.held(read_ranks, [[files[at] for at in portion] for portion in every])
    parts = [work.submit(parts_of, each) for each in results]
    held = [work.submit(held_of, each) for each in results]
    del results
    lost: list[Portion] = []
    for number, outcomes in work.results(parts):
        portion = every[number]
        if isinstance(outcomes, BaseException):
            if len(portion) > 1 and is_killed_worker(outcomes):
                lost.append(portion)
                continue
            outcomes = [_lost_rank(files[portion[0]], outcomes)]
        _take(reads, portion, outcomes, held[number])
        progress("ranks read", len(reads.outcomes), len(files))
    return lost


def _take(reads: ReadResults, portion: Portion, outcomes: Any, held: Future[Any]) -> None:
    for at, (place, own) in enumerate(zip(portion, outcomes, strict=True)):
        reads.outcomes[place] = own
        if isinstance(own, RankSummary):
            reads.held[place] = WorkerHandle(held, at)


def _lost_rank(file: RankFile, error: BaseException) -> RankGap:
    """Return the gap of a file at which workers ended, one after the other."""
    if not is_killed_worker(error):
        raise error
    result = f"every worker that read it ended ({file.size_bytes:,} bytes); give them more memory"
    return RankGap(FileGap.WORKER_LOST, file.rank, "", file.url, result)
