"""Of traces that torch's own profiler wrote, what nobody can know is absent, and a gap by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from profiler_ext.cluster import FileGap, Job, read_job
from tests.plain_ranks import Ran, in_group, write

LATE = ((250, 500), (650, 100))


def job_of(folder: Path, client: Client, outcomes: dict[str, Any] | None, **more: Any) -> Job:
    for rank, when in enumerate(LATE):
        write(folder, rank, [Ran(*when, outcomes)], **more)
    return read_job(str(folder), client=client)


def rows(job: Job, name: str) -> list[dict[str, Any]]:
    table = job.table(name)
    return table.astype(object).where(table.notna(), None).to_dict("records")


def test_collectives_without_a_group_have_no_waiting(tmp_path: Path, client: Client) -> None:
    job = job_of(tmp_path, client, None)
    unknown = ("step_waiting_ns", "min_step_waiting_ns", "delay_ns")
    assert [[row[name] for name in unknown] for row in rows(job, "ranks")] == [[None] * 3] * 2
    (group,) = rows(job, "groups")
    known = ("collective", "process_group", "launches", "duration_ns", "exposed_ns")
    assert [group[name] for name in known] == ["all_reduce", None, 2, 600_000, 600_000]
    lacking = ("waiting_ns", "transfer_ns", "min_waiting_ns", "max_transfer_ns", "incomplete")
    assert [group[name] for name in (*lacking, "last_rank", "collectives")] == [None] * 7
    (gap,) = job.gaps
    assert gap.reason is FileGap.NOT_MATCHED
    assert gap.detail.startswith("of 2 of 2 launches no trace tells which collective")
    assert [row["delay_ns"] for row in rows(job, "hosts")] == [None]


def test_collectives_without_a_number_are_matched_by_order_and_size(
    tmp_path: Path, client: Client
) -> None:
    job = job_of(tmp_path, client, in_group())
    waited = [(row["step_waiting_ns"], row["delay_ns"]) for row in rows(job, "ranks")]
    assert waited == [(400_000, 0), (0, 400_000)]
    (group,) = rows(job, "groups")
    assert [group[name] for name in ("waiting_ns", "transfer_ns", "last_rank")] == [
        400_000,
        200_000,
        1,
    ]
    assert job.gaps == ()


def test_what_may_begin_without_others_leaves_the_waiting_known(
    tmp_path: Path, client: Client
) -> None:
    outcomes = in_group() | {"Collective name": "broadcast"}
    job = job_of(tmp_path, client, outcomes)
    assert [row["step_waiting_ns"] for row in rows(job, "ranks")] == [0, 0]
    assert job.gaps == ()


def test_a_host_is_reported_by_the_header_alone(tmp_path: Path, client: Client) -> None:
    name = "node7_123.{rank}456.pt.trace.json"
    job = job_of(tmp_path / "without", client, in_group(), name=name)
    assert [each.host for each in job.ranks] == ["", ""]
    job = job_of(tmp_path / "with", client, in_group(), name=name, host_name="gpu-01")
    assert [each.host for each in job.ranks] == ["gpu-01", "gpu-01"]


def test_traces_that_tell_no_rank_are_a_gap(tmp_path: Path, client: Client) -> None:
    write(tmp_path, 0, [])
    write(tmp_path, 1, [])
    untold = write(tmp_path, 7, [], info={"backend": "nccl"})
    job = read_job(str(tmp_path), client=client)
    assert [each.rank for each in job.ranks] == [0, 1]
    assert [(gap.reason, gap.rank, gap.url) for gap in job.gaps] == [
        (FileGap.NO_RANK, None, str(untold))
    ]


def test_a_rank_without_steps_has_no_time_of_a_step(tmp_path: Path, client: Client) -> None:
    write(tmp_path, 0, [])
    path = write(tmp_path, 1, [])
    path.write_text(json.dumps(json.loads(path.read_text()) | {"traceEvents": []}))
    job = read_job(str(tmp_path), client=client)
    outcomes = ("steps", "step_ns", "work_ns", "slowdown", "delay_ns", "step_waiting_ns")
    assert [[row[name] for name in outcomes] for row in rows(job, "ranks")][1] == [0, *[None] * 5]
    assert {row["fastest_rank"] for row in rows(job, "lines")} == {0}


@pytest.mark.parametrize("name", ["rank-{rank}.json", "trace_{rank}.json"])
def test_traces_are_found_by_any_name(tmp_path: Path, client: Client, name: str) -> None:
    job = job_of(tmp_path, client, in_group(), name=name)
    assert [each.rank for each in job.ranks] == [0, 1]
