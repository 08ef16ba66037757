"""What a job says of two ranks is what merging says of them, to the nanosecond."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from distributed import Client

from profiler_ext import load
from profiler_ext.cluster import Job, dask_table, read_job, write_by_rank
from profiler_ext.cluster.reading import SUMMED
from profiler_ext.sessions.merging import MergedSession
from tests.cluster.jobs import NAME, recording_of


@pytest.fixture(scope="module", params=["ddp", "fsdp2"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, client: Client
) -> tuple[Job, MergedSession]:
    folder = tmp_path_factory.mktemp(request.param)
    for rank in (0, 1):
        (folder / f"rank_{rank}").mkdir()
        shutil.copy(recording_of(request.param, rank), folder / f"rank_{rank}" / NAME)
    merged = load(folder)
    assert isinstance(merged, MergedSession)
    return read_job(str(folder), client=client), merged


def test_every_table_is_that_of_merged_sessions(both: tuple[Job, MergedSession]) -> None:
    job, merged = both
    for name in (*SUMMED, "communication", "skew"):
        expected = merged.table(name)
        assert len(expected) or name == "skew", name
        pd.testing.assert_frame_equal(job.table(name), expected, obj=name)


def test_clocks_are_set_as_for_merged_sessions(both: tuple[Job, MergedSession]) -> None:
    job, merged = both
    assert job.clocks == merged.clocks
    assert job.clocks[1].collectives > 0


def test_the_parts_of_communication_add_up(both: tuple[Job, MergedSession]) -> None:
    job, merged = both
    groups, whole = job.table("groups"), merged.communication()
    for name in ("duration_ns", "exposed_ns", "overlapped_ns", "waiting_ns", "transfer_ns"):
        assert groups[name].sum() == whole[name].sum()
    assert groups.waiting_ns.sum() > 0
    assert (groups.waiting_ns + groups.transfer_ns).tolist() == groups.duration_ns.tolist()


def test_parquet_by_rank_has_the_rows_of_each_rank(
    both: tuple[Job, MergedSession], tmp_path: Path, client: Client
) -> None:
    job, merged = both
    write_by_rank(job, str(tmp_path), client)
    table, expected = pd.read_parquet(tmp_path / "attribution"), merged.attribution()
    assert table.groupby("rank").size().to_dict() == expected.groupby("rank").size().to_dict()
    assert table.duration_ns.sum() == expected.duration_ns.sum()


def test_a_dask_frame_has_the_rows_of_all_ranks_on_one_clock(
    both: tuple[Job, MergedSession], client: Client
) -> None:
    job, merged = both
    found = client.compute(dask_table(job, "launches")).result()
    expected = merged.launches()
    assert found["start_ns"].tolist() == expected["start_ns"].tolist()
    assert found["rank"].tolist() == expected["rank"].tolist()
