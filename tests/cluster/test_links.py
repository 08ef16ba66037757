"""Folders of ranks and sessions that are links are read as ``report`` reads them, each once."""

from __future__ import annotations

from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from profiler_ext.cluster.listing import rank_files
from profiler_ext.cluster.records import FileGap
from profiler_ext.errors import UsageError
from tests.cluster.jobs import NAME


@pytest.fixture
def real(tmp_path: Path) -> Path:
    for rank in range(2):
        (tmp_path / "real" / f"rank_{rank}").mkdir(parents=True)
        (tmp_path / "real" / f"rank_{rank}" / NAME).write_bytes(b"x" * (rank + 1))
    return tmp_path / "real"


def found(place: object) -> list[tuple[int | None, str, int]]:
    return [(each.rank, each.url, each.size_bytes) for each in rank_files(str(place))[0]]


def test_ranks_that_are_links_are_found_where_the_job_has_them(real: Path, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "rank_0").symlink_to("../real/rank_0")
    (job / "rank_1").mkdir()
    (job / "rank_1" / NAME).symlink_to(real / "rank_1" / NAME)
    expected = [(0, f"{job}/rank_0/{NAME}", 1), (1, f"{job}/rank_1/{NAME}", 2)]
    assert found(job) == found(f"{job}/rank_*") == expected
    (tmp_path / "again").symlink_to(job)
    assert [each[0] for each in found(tmp_path / "again")] == [0, 1]
    assert found(job / "rank_0") == expected[:1]


def test_what_a_link_leads_to_is_not_found_twice(real: Path) -> None:
    (real / "node_0").mkdir()
    (real / "rank_0").rename(real / "node_0" / "rank_0")
    (real / "rank_0").symlink_to("node_0/rank_0")
    (real / "rank_1" / "rank_2").symlink_to(real)
    assert [each[0] for each in found(real)] == [0, 1]


def test_a_rank_whose_link_leads_nowhere_is_a_rank_without_a_session(real: Path) -> None:
    (real / "rank_2").symlink_to(real / "gone")
    files, gaps = rank_files(str(real))
    assert [each.rank for each in files] == [0, 1]
    assert [(each.reason, each.rank, each.url) for each in gaps] == [
        (FileGap.MISSING, 2, f"{real}/rank_2")
    ]


def test_a_link_to_another_folder_is_not_followed(real: Path, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "latest").symlink_to(real)
    with pytest.raises(UsageError, match="holds no session of a rank"):
        rank_files(str(tmp_path / "job"))


def test_a_rank_s_link_to_a_folder_around_it_leads_to_no_other_job(
    real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = real.parent / "other" / "rank_7"
    other.mkdir(parents=True)
    (other / NAME).write_bytes(b"another job's")
    listed = []
    find = LocalFileSystem.find
    monkeypatch.setattr(
        LocalFileSystem, "find", lambda *of, **how: listed.append(of[1]) or find(*of, **how)
    )
    for rank, target in enumerate((".", "..", "/", "rank_0"), start=2):
        (real / f"rank_{rank}").symlink_to(target)
    files, gaps = rank_files(str(real))
    assert [each.rank for each in files] == [0, 1]
    assert {(each.reason, each.rank) for each in gaps} == {
        (FileGap.MISSING, rank) for rank in (2, 3, 4, 5)
    }
    assert listed == [str(real)]
