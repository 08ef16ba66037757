"""A job on S3 (moto's server): read from there, and its tables written there, where workers are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pandas as pd
import pytest
from distributed import Client

from profiler_ext.cluster import FileGap, Job, read_job, write_by_rank
from profiler_ext.errors import UsageError

RANKS = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0)
    with pytest.MonkeyPatch.context() as patch:
        server.start()
        host, port = server.get_host_and_port()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "any")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.filesystem("s3").mkdir("runs")
        yield "s3://runs"
        fsspec.filesystem("s3").clear_instance_cache()
        server.stop()


@pytest.fixture(scope="module")
def remote(bucket: str, folder: Path, client: Client) -> Job:
    system = fsspec.filesystem("s3")
    for rank in RANKS:
        name = "session.pt.trace.json.gz"
        content = (folder / f"rank_{rank}" / name).read_bytes()
        system.pipe_file(f"runs/7/rank_{rank}/{name}", content[:4000] if rank == 2 else content)
    return read_job(f"{bucket}/7", client=client)


def test_a_job_is_read_from_s3(remote: Job, job: Job) -> None:
    assert [each.rank for each in remote.ranks] == [0, 1, 3]
    assert remote.ranks[0].url == "s3://runs/7/rank_0/session.pt.trace.json.gz"
    here = job.table("ranks").set_index("rank").loc[[0, 1, 3]]
    assert remote.table("ranks").work_ns.tolist() == here.work_ns.tolist()


def test_what_is_cut_short_there_is_named_by_its_url(remote: Job) -> None:
    (gap,) = (each for each in remote.gaps if each.rank == 2)
    assert gap.reason is FileGap.UNREADABLE
    url = "s3://runs/7/rank_2/session.pt.trace.json.gz"
    assert (gap.url, gap.found.startswith(f"{url} is cut short")) == (url, True)


def test_tables_by_rank_are_written_there(remote: Job, bucket: str, client: Client) -> None:
    write_by_rank(remote, f"{bucket}/tables", client)
    names = fsspec.filesystem("s3").ls("runs/tables/by_line")
    assert [name.rpartition("/")[2] for name in names] == [f"rank_{r}.parquet" for r in (0, 1, 3)]
    whole = pd.concat([pd.read_parquet(f"s3://{name}") for name in names])
    assert (
        whole.groupby("rank").duration_ns.sum().sum() == remote.table("by_line").duration_ns.sum()
    )
    assert set(whole.host) == {"node-000"}


def test_a_bucket_that_is_not_there_is_one_clear_error(bucket: str) -> None:
    with pytest.raises(UsageError, match="there is no s3://nowhere/7; check the path"):
        read_job("s3://nowhere/7")
