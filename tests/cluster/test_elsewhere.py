"""A job on S3 (moto's server), GCS (an emulator) and behind the wrapper by which HDFS is read.

It is read from there, and its tables are written there, where the workers are. HDFS itself is not
here: a folder stands in for it, below the same wrapper of a pyarrow file system.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import fsspec
import pandas as pd
import pyarrow.fs
import pytest
from distributed import Client
from fsspec.implementations.arrow import ArrowFSWrapper, HadoopFileSystem

from profiler_ext.cluster import FileGap, Job, read_job, write_by_rank
from profiler_ext.cluster.listing import rank_files
from profiler_ext.errors import UsageError

pytestmark = pytest.mark.whole

RANKS = (0, 1, 2, 3)
NAME = "session.pt.trace.json.gz"


@contextmanager
def s3(_: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0)
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


@contextmanager
def gs(_: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    emulator = importlib.import_module("gcp_storage_emulator.server")
    server = emulator.create_server("127.0.0.1", 0, in_memory=True)
    server.start()
    host, port = server._api._httpd.server_address
    patch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}:{port}")
    patch.setenv("NO_GCE_CHECK", "true")
    fsspec.filesystem("gs").mkdir("runs")
    yield "gs://runs"
    fsspec.filesystem("gs").clear_instance_cache()
    server.stop()


@contextmanager
def hdfs(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    def opened(self: HadoopFileSystem, host: str, port: int, **options: object) -> None:
        assert (host, port) == ("namenode", 8020)
        ArrowFSWrapper.__init__(self, fs=pyarrow.fs.LocalFileSystem(), **options)

    patch.setattr(HadoopFileSystem, "__init__", opened)
    yield f"hdfs://namenode:8020{folder}/runs"
    HadoopFileSystem.clear_instance_cache()


Kind = Callable[[Path, pytest.MonkeyPatch], AbstractContextManager[str]]


@pytest.fixture(scope="module", params=[s3, gs, hdfs], ids=lambda kind: kind.__name__)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    kind: Kind = request.param
    own = tmp_path_factory.mktemp(kind.__name__)
    with pytest.MonkeyPatch.context() as patch, kind(own, patch) as url:
        yield url


@pytest.fixture(scope="module")
def remote(place: str, folder: Path, client: Client) -> Job:
    system, root = fsspec.core.url_to_fs(place)
    for rank in RANKS:
        content = (folder / f"rank_{rank}" / NAME).read_bytes()
        system.makedirs(f"{root}/7/rank_{rank}", exist_ok=True)
        system.pipe_file(f"{root}/7/rank_{rank}/{NAME}", content[:4000] if rank == 2 else content)
    return read_job(f"{place}/7", client=client)


def test_a_job_is_read_from_there(remote: Job, place: str, job: Job) -> None:
    assert [each.rank for each in remote.ranks] == [0, 1, 3]
    assert remote.ranks[0].url == f"{place}/7/rank_0/{NAME}"
    here = job.table("ranks").set_index("rank").loc[[0, 1, 3]]
    assert remote.table("ranks").work_ns.tolist() == here.work_ns.tolist()


def test_a_pattern_picks_some_of_them(remote: Job, place: str) -> None:
    files, _ = rank_files(f"{place}/7/rank_[01]/*.gz")
    assert [each.url for each in files] == [f"{place}/7/rank_{rank}/{NAME}" for rank in (0, 1)]


def test_what_is_cut_short_there_is_named_by_its_url(remote: Job, place: str) -> None:
    (gap,) = (each for each in remote.gaps if each.rank == 2)
    assert gap.reason is FileGap.UNREADABLE
    url = f"{place}/7/rank_2/{NAME}"
    assert (gap.url, gap.detail.startswith(f"{url} is cut short")) == (url, True)


def test_tables_by_rank_are_written_there(remote: Job, place: str, client: Client) -> None:
    write_by_rank(remote, f"{place}/tables", client)
    system, root = fsspec.core.url_to_fs(place)
    names = sorted(system.ls(f"{root}/tables/by_line", detail=False))
    assert [name.rpartition("/")[2] for name in names] == [f"rank_{r}.parquet" for r in (0, 1, 3)]
    whole = pd.concat([pd.read_parquet(system.open(name)) for name in names])
    assert whole.duration_ns.sum() == remote.table("by_line").duration_ns.sum()
    assert set(whole.host) == {"node-000"}


def test_what_is_not_there_is_one_clear_error(place: str) -> None:
    nowhere = place.removesuffix("runs") + "nowhere"
    with pytest.raises(UsageError, match=f"there is no {nowhere}/7; check the path"):
        read_job(f"{nowhere}/7")
