"""One cluster within the process, and one small job, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

from profiler_ext.cluster import Job, read_job
from tests.cluster.jobs import PLAN, fsdp2, in_process, job_of


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    with in_process() as made:
        yield made


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return job_of(tmp_path_factory.mktemp("job"), fsdp2(), PLAN)


@pytest.fixture(scope="session")
def job(folder: Path, client: Client) -> Job:
    return read_job(str(folder), client=client)
