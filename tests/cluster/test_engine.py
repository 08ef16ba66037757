"""Dask's processes: those that cannot read as this one does, or at all, are one clear error."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from distributed import Client

from profiler_ext.cluster import connected
from profiler_ext.cluster.engine import check_versions
from profiler_ext.errors import UsageError


@pytest.fixture
def outcomes(client: Client) -> dict[str, Any]:
    versions: Any = client.get_versions()
    return deepcopy(versions)


def test_what_one_process_tells_of_itself_is_alike(outcomes: dict[str, Any]) -> None:
    assert outcomes["workers"] and outcomes["scheduler"]["packages"]["dask"]
    check_versions(outcomes)


def test_another_dask_on_a_worker_is_reported_with_the_command(outcomes: dict[str, Any]) -> None:
    ((address, worker),) = outcomes["workers"].items()
    here = outcomes["client"]["packages"]["distributed"]
    worker["packages"]["distributed"] = "2025.2.0"
    with pytest.raises(UsageError) as caught:
        check_versions(outcomes)
    assert str(caught.value) == (
        f"the Dask worker {address} has distributed 2025.2.0, expected {here}; use pip install "
        f"distributed=={here} there, or its versions here"
    )


def test_another_python_of_the_scheduler_is_reported(outcomes: dict[str, Any]) -> None:
    outcomes["scheduler"]["packages"]["python"] = "3.14.1.final.0"
    with pytest.raises(UsageError, match=r"has python 3\.14\.1, expected 3\.1"):
        check_versions(outcomes)


def test_a_later_fix_of_python_or_pandas_is_alike(outcomes: dict[str, Any]) -> None:
    (worker,) = outcomes["workers"].values()
    for package in ("python", "pandas"):
        first, second, *_ = worker["packages"][package].split(".")
        worker["packages"][package] = f"{first}.{second}.99"
    check_versions(outcomes)


def test_memory_in_which_no_worker_can_begin_is_refused_before_one_does() -> None:
    expected = "a worker of 60 MiB cannot read anything: .* give it 256 MiB at least"
    with pytest.raises(UsageError, match=expected), connected(memory_bytes=60 << 20):
        pass
