"""Worker processes: one that is killed costs nothing but time, and nobody else can reach them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profiler_ext.cluster import Job, connected
from profiler_ext.errors import MissingExtraError, UsageError
from tests.patience import patience_s

pytestmark = pytest.mark.whole

PROGRAM = Path(__file__).with_name("processes.py")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=patience_s(300),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_killed_worker_costs_no_rank_and_no_nanosecond(
    outcomes: dict[str, Any], job: Job
) -> None:
    assert (outcomes["killed"], outcomes["gaps"]) == (1, 0)
    for name, text in outcomes["tables"].items():
        assert text == job.table(name).to_csv(), name


def test_workers_listen_on_the_loopback_address_alone_and_encrypted(
    outcomes: dict[str, Any],
) -> None:
    assert outcomes["listening"] == ["127.0.0.1"]
    assert outcomes["schemes"] == ["tls"]


def test_without_a_scheduler_it_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler_ext.cluster.engine._WAIT_S", 1)
    with (
        pytest.raises(UsageError, match=r"there is no Dask scheduler at tcp://127.0.0.1:9: "),
        connected("tcp://127.0.0.1:9"),
    ):
        pass


def test_without_dask_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    command = r"run: pip install 'profiler-ext\[cluster\]'"
    with pytest.raises(MissingExtraError, match=command), connected():
        pass
