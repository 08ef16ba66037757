"""Several files are read in one task; one at which workers end costs none of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, KilledWorker

from profiler_ext.cluster import TABLES, Job, gathering, read_job
from profiler_ext.cluster.gathering import read_files
from profiler_ext.cluster.records import FileGap, RankFile, RankGap

FATAL = "rank_3"


def files(count: int, size_bytes: int = 1_000) -> list[RankFile]:
    return [RankFile(f"rank_{rank}", size_bytes, rank) for rank in range(count)]


def sizes(of: Sequence[RankFile], workers: int) -> list[int]:
    return [len(each) for each in gathering.portions(of, workers)]


@pytest.mark.parametrize(
    ("count", "workers", "expected"),
    [
        (3_000, 2, [16] * 187 + [8]),
        (1_024, 8, [16] * 64),
        (64, 4, [2] * 32),
        (8, 4, [1] * 8),
        (100, 256, [1] * 100),
        (0, 4, []),
    ],
)
def test_each_worker_has_several_portions(count: int, workers: int, expected: list[int]) -> None:
    assert sizes(files(count), workers) == expected


def test_a_portion_has_no_more_bytes_than_a_task_should_read() -> None:
    assert sizes(files(32, size_bytes=10 << 20), 1) == [3] * 10 + [2]
    assert sizes(files(32, size_bytes=100 << 20), 1) == [1] * 32


def test_the_files_of_all_portions_are_all_files_in_order() -> None:
    outcomes = gathering.portions(files(1_000), 3)
    assert [at for portion in outcomes for at in portion] == list(range(1_000))


class DeadlyWork:
    """Does work at once; one of the files ends worker after worker."""

    workers = 1

    def __init__(self) -> None:
        self.reads: list[list[str]] = []

    def held(self, function: Callable[[Any], Any], over: Sequence[Any]) -> list[Any]:
        self.reads += [[file.url for file in each] for each in over]
        return [self._done(function, each) for each in over]

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._done(function, *arguments)

    def results(self, futures: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        yield from enumerate(futures)

    def _done(self, function: Callable[..., Any], first: Any, *others: Any) -> Any:
        if isinstance(first, KilledWorker):
            return first
        if any(isinstance(each, RankFile) and each.url == FATAL for each in first):
            return KilledWorker("read", None, 3)
        return function(first, *others)


def test_a_file_at_which_workers_end_costs_none_of_those_read_with_it() -> None:
    work, outcomes = DeadlyWork(), list[tuple[str, int, int]]()
    reads = read_files(work, files(32), lambda *each: outcomes.append(each))  # type: ignore[arg-type]
    lost = {at: each for at, each in reads.outcomes.items() if each.reason is FileGap.WORKER_LOST}
    assert list(lost) == [3]
    assert lost[3] == RankGap(
        FileGap.WORKER_LOST,
        3,
        "",
        FATAL,
        "every worker that read it ended (1,000 bytes); give them more memory",
    )
    assert sorted(reads.outcomes) == list(range(32))
    # None of them is there: each of the others says so for itself.
    assert {each.reason for each in reads.outcomes.values()} == {
        FileGap.WORKER_LOST,
        FileGap.UNREADABLE,
    }
    assert [len(each) for each in work.reads] == [4] * 8 + [1] * 4
    assert outcomes[-1] == ("ranks read", 32, 32)


def test_tables_are_the_same_however_many_files_are_read_together(
    folder: Path, client: Client, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "_MIN_PORTIONS_PER_WORKER", 2)
    assert sizes(files(12), 1) == [6, 6]
    together = read_job(str(folder), client=client)
    for name in (*TABLES, "by_line", "by_kernel", "coverage", "communication", "skew"):
        assert together.table(name).to_csv() == job.table(name).to_csv(), name
