"""Who is behind is found, and nobody else: in made jobs, and in hand-made times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from distributed import Client

from benchmarks.made_ranks import Plan
from benchmarks.many_ranks import found_in
from profiler_ext.cluster import Job, read_job
from profiler_ext.cluster.stragglers import (
    RankStats,
    Straggler,
    StragglerKind,
    slowdowns,
    stragglers,
)
from profiler_ext.records.vocabulary import IdleCause
from tests.cluster.jobs import PLAN, fsdp2, job_of

STEP_NS = 1_000_000.0


def rank_stats(work_ns: list[list[float]], delay_ns: list[float], hosts: str) -> RankStats:
    return RankStats(np.array(work_ns), np.array(delay_ns), STEP_NS, list(hosts))


def test_each_planted_straggler_is_found_and_none_is_invented(job: Job) -> None:
    assert found_in(job) == PLAN.expected() != set()


def test_why_a_rank_comes_late_is_reported(job: Job) -> None:
    rows = job.table("stragglers").set_index("straggler")
    assert rows.loc["late_at_collectives", "cause"] in tuple(IdleCause)
    assert set(rows.loc["slower_line", "line"]) == {31}


def test_where_none_is_planted_none_is_found(tmp_path: Path, client: Client) -> None:
    folder = job_of(tmp_path, fsdp2(), Plan(8))
    assert read_job(str(folder), client=client).stragglers == ()


def test_a_host_that_is_slower_is_reported_as_one(tmp_path: Path, client: Client) -> None:
    plan = Plan(12, of_host=4, slow_host=1)
    job = read_job(str(job_of(tmp_path, fsdp2(), plan)), client=client)
    assert found_in(job) == {("host", "node-001")}
    assert job.table("stragglers").ranks.tolist() == [4]
    assert job.table("hosts").host.tolist()[0] == "node-001"


def test_lines_have_their_slowest_median_and_fastest_rank(job: Job) -> None:
    line = job.table("lines").iloc[0]
    assert line.slowest_rank in PLAN.slow_line
    assert line.slowest_host == f"node-00{line.slowest_rank // 4}"
    assert line.fastest_ns <= line.median_ns < line.slowest_ns / 5
    assert {line.median_rank, line.fastest_rank}.isdisjoint(PLAN.slow_line)


def test_clocks_of_hosts_are_found(job: Job) -> None:
    clocks = job.table("clocks")
    assert clocks.shift_ns.abs().max() > 100_000
    assert clocks.residual_ns.max() <= 2_000  # the ends were made to a double's precision


def test_a_slower_device_is_reported_once_and_not_line_by_line() -> None:
    lines = [[100_000.0] * 7 + [150_000.0], [50_000.0] * 7 + [75_000.0]]
    found = stragglers(rank_stats(lines, [0.0] * 7 + [75_000.0], "aabbccdd"))
    expected = Straggler(StragglerKind.SLOWER_DEVICE, "d", (7,), False, 75_000.0, 1.5)
    assert found == [expected]


def test_a_line_that_is_slower_makes_no_slower_device() -> None:
    lines = [[50_000.0] * 7 + [150_000.0], [100_000.0] * 8]
    (found,) = stragglers(rank_stats(lines, [0.0] * 7 + [100_000.0], "aabbccdd"))
    assert (found.kind, found.ranks, found.line) == (StragglerKind.SLOWER_LINE, (7,), 0)
    assert slowdowns(np.array(lines)).tolist() == [1.0] * 8


def test_what_takes_less_than_a_hundredth_of_a_step_is_not_reported() -> None:
    lines = [[1_000.0] * 7 + [9_000.0]]
    assert stragglers(rank_stats(lines, [0.0] * 7 + [9_000.0], "aabbccdd")) == []


def test_of_three_ranks_nobody_is_reported() -> None:
    assert stragglers(rank_stats([[1e5, 1e5, 9e5]], [0.0, 0.0, 8e5], "abc")) == []


def test_two_ranks_that_are_late_are_both_reported_though_one_is_last() -> None:
    found = stragglers(rank_stats([[1e5] * 8], [0.0] * 6 + [2e5, 1e5], "abcdefgh"))
    assert [(each.ranks, each.excess_ns) for each in found] == [((6,), 2e5), ((7,), 1e5)]
