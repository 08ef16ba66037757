"""What is missing, cut short, of another torch or twice is a gap by name, and the rest stands."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
from pathlib import Path

import pytest
from distributed import Client
from rich.console import Console

from profiler_ext.cluster import FileGap, Job, read_job
from profiler_ext.cluster.records import RankGap
from profiler_ext.cluster.report import print_job
from profiler_ext.errors import UsageError
from tests.cluster.jobs import NAME


def changed(source: Path, target: Path, before: bytes, after: bytes) -> None:
    text = gzip.decompress(source.read_bytes())
    assert before in text
    target.write_bytes(gzip.compress(text.replace(before, after), 1))


@pytest.fixture(scope="module")
def damaged(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, client: Client
) -> tuple[Path, Job]:
    copy = tmp_path_factory.mktemp("damaged")
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    shutil.rmtree(copy / "rank_2")
    (copy / "rank_4" / NAME).unlink()
    cut = copy / "rank_5" / NAME
    cut.write_bytes(cut.read_bytes()[:5000])
    own = copy / "rank_6" / NAME
    changed(own, own, b'"2.11.0+cu130"', b'"2.12.0+cu130"')
    shutil.copytree(copy / "rank_7", copy / "again" / "rank_7")
    (copy / "other" / "rank_8").mkdir(parents=True)
    shutil.copy(copy / "rank_8" / NAME, copy / "other" / "rank_8" / NAME)
    changed(copy / "rank_8" / NAME, copy / "other" / "rank_8" / NAME, b'"node-002"', b'"node-009"')
    (copy / "rank_9" / NAME).write_text(json.dumps({"no": "trace"}))
    (copy / "rank_11" / "notes.txt").write_text("is no session")
    return copy, read_job(str(copy), client=client)


def of_rank(job: Job, rank: int) -> list[tuple[FileGap, str, str]]:
    return [(each.reason, each.host, each.url) for each in job.gaps if each.rank == rank]


def test_the_rest_stands(damaged: tuple[Path, Job]) -> None:
    _, job = damaged
    assert [each.rank for each in job.ranks] == [0, 1, 3, 7, 10, 11]
    assert {each.rank for each in job.gaps} == {2, 4, 5, 6, 7, 8, 9, None}
    assert job.table("by_line").ranks.tolist()[0] == 6
    rows = job.table("stragglers")
    assert set(rows[rows.straggler == "slower_line"]["rank"]) == {1, 10}


def test_a_rank_without_a_file_is_missing(damaged: tuple[Path, Job]) -> None:
    place, job = damaged
    assert of_rank(job, 2) == [(FileGap.MISSING, "", "")]
    assert of_rank(job, 4) == [(FileGap.MISSING, "", str(place / "rank_4"))]


def test_a_file_that_is_cut_short_is_named_with_what_was_found(damaged: tuple[Path, Job]) -> None:
    place, job = damaged
    (gap,) = (each for each in job.gaps if each.rank == 5)
    file = str(place / "rank_5" / NAME)
    assert gap == RankGap(FileGap.UNREADABLE, 5, "", file, gap.detail)
    assert gap.detail.startswith(f"{file} is cut short")
    (no_trace,) = (each for each in job.gaps if each.rank == 9)
    assert no_trace.reason is FileGap.UNREADABLE


def test_a_file_of_another_torch_is_named(damaged: tuple[Path, Job]) -> None:
    _, job = damaged
    (gap,) = (each for each in job.gaps if each.rank == 6)
    assert (gap.reason, gap.host) == (FileGap.OTHER_TORCH, "node-001")
    assert gap.detail == "torch 2.12.0+cu130, where 9 of 10 files have torch 2.11.0+cu130"


def test_of_equal_files_one_stands_and_of_others_none(damaged: tuple[Path, Job]) -> None:
    place, job = damaged
    assert of_rank(job, 7) == [(FileGap.DUPLICATE_RANK, "node-001", str(place / "rank_7" / NAME))]
    files = {(each.reason, each.url) for each in job.gaps if each.rank == 8}
    others = (place / "other" / "rank_8" / NAME, place / "rank_8" / NAME)
    assert files == {(FileGap.DUPLICATE_RANK, str(each)) for each in others}


def test_of_a_group_that_is_not_whole_waits_are_the_least(
    damaged: tuple[Path, Job], job: Job
) -> None:
    _, rest = damaged
    assert rest.table("communication").waiting_ns.isna().all()
    ranks = rest.table("ranks").set_index("rank")
    whole = job.table("ranks").set_index("rank").loc[ranks.index]
    assert ranks.step_waiting_ns.isna().all()
    assert (whole.step_waiting_ns == whole.min_step_waiting_ns).all()
    assert (ranks.min_step_waiting_ns <= whole.step_waiting_ns + 2_000).all()  # set clocks
    assert ranks.min_step_waiting_ns.max() > 100_000


def test_what_is_known_at_least_and_the_rest_add_up(damaged: tuple[Path, Job]) -> None:
    groups = damaged[1].table("groups")
    assert (groups.min_waiting_ns + groups.max_transfer_ns).equals(groups.duration_ns)
    assert groups.incomplete.tolist() == groups.launches.tolist()
    assert groups.last_rank.isna().all()


def test_waits_that_are_the_least_are_a_gap(damaged: tuple[Path, Job], job: Job) -> None:
    _, rest = damaged
    launches = rest.table("groups").launches.sum()
    (gap,) = (each for each in rest.gaps if each.reason is FileGap.INCOMPLETE_GROUP)
    assert gap.detail == (
        f"in {launches} of {launches} launches, of 1 process group, a rank is missing that "
        "may have come last: their waiting is reported as at least"
    )
    assert job.gaps == ()


def test_a_rank_is_behind_those_that_are_there(damaged: tuple[Path, Job]) -> None:
    rows = damaged[1].table("stragglers").set_index("straggler")
    assert rows.loc["late_at_collectives", "rank"] == 3


@pytest.mark.parametrize("width", [100, 80])
def test_a_terminal_tells_them_so(damaged: tuple[Path, Job], width: int) -> None:
    file = io.StringIO()
    print_job(damaged[1], Console(file=file, width=width, color_system=None))
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    for part in ("collectives: not all ranks of a process group are there", "≥ ", "≤ "):
        assert part in text


def test_a_folder_without_a_session_is_an_error_that_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{tmp_path} holds no session of a rank; give the folder"):
        read_job(str(tmp_path))
    with pytest.raises(UsageError, match=r"there is no .*nowhere; check the path"):
        read_job(str(tmp_path / "nowhere"))


def test_where_no_file_can_be_read_it_is_an_error(tmp_path: Path, client: Client) -> None:
    (tmp_path / "a.pt.trace.json").write_text("[]")
    with pytest.raises(UsageError, match=r"no rank of 1 files can be read: .*a.pt.trace.json"):
        read_job(str(tmp_path), client=client)


def test_a_folder_whose_name_is_not_utf_8_is_in_the_tables(
    folder: Path, tmp_path: Path, client: Client
) -> None:
    named = Path(os.fsdecode(bytes(tmp_path) + b"/of\xff"))
    for rank in (0, 1):
        shutil.copytree(folder / f"rank_{rank}", named / f"rank_{rank}")
    (named / "rank_1" / NAME).write_bytes(b"")
    job = read_job(str(named), client=client)
    assert job.table("ranks").recording.tolist() == [rf"{tmp_path}/of\udcff/rank_0/{NAME}"]
    (gap,) = job.table("gaps").recording.dropna().tolist()
    assert gap == rf"{tmp_path}/of\udcff/rank_1/{NAME}"
