"""What ``profiler-ext cluster`` prints and writes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from distributed import Client
from rich.console import Console

from profiler_ext import cli
from profiler_ext.cluster import Job, picked, write_job
from profiler_ext.cluster.outputs import job_page
from profiler_ext.cluster.report import print_job
from profiler_ext.errors import UsageError
from tests.browser import open_page


@pytest.fixture(autouse=True)
def reads_in_process(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    @contextmanager
    def at_once(*_: object) -> Iterator[Client]:
        yield client

    monkeypatch.setattr("profiler_ext.cluster.connected", at_once)


@pytest.fixture(autouse=True)
def reads_once(monkeypatch: pytest.MonkeyPatch, job: Job) -> None:
    def read(place: str, **_: object) -> Job:
        return job

    monkeypatch.setattr("profiler_ext.cluster.read_job", read)


def printed(job: Job, width: int, **options: object) -> str:
    file = io.StringIO()
    print_job(job, Console(file=file, width=width, color_system=None), **options)
    return file.getvalue()


@pytest.mark.parametrize("width", [100, 80])
def test_a_job_at_a_glance_fits_the_terminal(job: Job, width: int) -> None:
    text = printed(job, width)
    assert max(map(len, text.splitlines())) <= width
    assert text.startswith("12 ranks · 3 hosts · torch 2.11.0+cu130 · NVIDIA H200 · 2 steps\n")
    for part in ("rank 3 on node-000", "slower at models.py:31", "waiting", "node-002"):
        assert part in text


@pytest.mark.parametrize("by", ["straggler", "line", "group", "host", "rank", "clock", "gap"])
def test_each_table_is_printed_alone(
    by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["cluster", str(tmp_path), "--by", by]) == 0
    out = capsys.readouterr().out
    assert out.startswith("12 ranks") and "Traceback" not in out


def test_json_has_every_table_and_says_what_was_cut(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["cluster", str(tmp_path), "--format", "json", "--top", "2"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["answer"], answer["rank_count"]) == ("job", 12)
    assert len(answer["tables"]["ranks"]) == 2
    cut = {each["where"]: (each["kept"], each["total"]) for each in answer["cuts"]}
    assert cut["tables.ranks"] == (2, 12)
    assert answer["tables"]["stragglers"][0]["rank"] == job.table("stragglers")["rank"][0]


def test_csv_has_all_rows(job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cluster", str(tmp_path), "--format", "csv", "--by", "rank"]) == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert table["rank"].tolist() == list(range(12))
    assert table.columns.tolist() == list(job.table("ranks").columns)


def test_ranks_without_a_folder_to_write_to_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["cluster", str(tmp_path), "--ranks", "0,7"]) == 2
    assert "--ranks needs -o DIR, which writes their trace" in capsys.readouterr().err


def test_a_scheduler_s_workers_are_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--scheduler", "tcp://head:8786", "--memory", "500"]
    assert cli.main(["cluster", str(tmp_path), *given]) == 2
    assert "--workers and --memory are for local processes" in capsys.readouterr().err


def test_a_page_and_a_trace_of_picked_ranks_are_written(job: Job, tmp_path: Path) -> None:
    written = write_job(job, tmp_path / "all", ranks=[3, 1])
    assert [path.name for path in written] == ["report.html", "trace.pftrace"]
    assert written[1].stat().st_size > 10_000


def test_picked_ranks_are_on_the_clock_of_the_job(job: Job) -> None:
    session = picked(job, [5, 3])
    assert session.clocks == (job.clocks[3], job.clocks[5])
    first, second = session.analyses
    assert (first.recording.settings.rank, second.recording.settings.rank) == (3, 5)
    assert first.recording.trace.base_ns == job.ranks[3].base_ns + job.clocks[3].shift_ns


def test_a_rank_that_is_not_there_is_no_trace(job: Job, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no rank 99; the job has 12 from 0 to 11"):
        write_job(job, tmp_path / "all", ranks=[99])
    assert not (tmp_path / "all").exists()


def test_the_page_opens_without_a_request_and_shows_each_rank(job: Job, tmp_path: Path) -> None:
    page_file = tmp_path / "report.html"
    page_file.write_text(job_page(job))
    with open_page() as (page, troubles):
        page.goto(page_file.as_uri())
        assert page.locator(".host i").count() == 12
        assert page.locator("#straggler tbody tr").count() == len(job.stragglers)
        page.set_viewport_size({"width": 900, "height": 900})
        heads = page.locator("#line th:visible").all_inner_texts()
        assert heads == ["line", "code", "median", "slowest", "times", "slowest rank"]
        assert page.locator("#line td:first-child").first.bounding_box()["height"] < 40
        assert page.evaluate("document.documentElement.scrollWidth") == 900
        assert troubles == []
