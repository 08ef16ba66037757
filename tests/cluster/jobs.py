"""Small jobs for the tests, made of a recording of an H200 as benchmarks.made_ranks makes large."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distributed import Client, LocalCluster

from benchmarks.made_ranks import Plan, Template, make, template_of

CASES = Path(__file__).parents[1] / "fixtures" / "h200" / "cases"
NAME = "session.pt.trace.json.gz"
PLAN = Plan(12, of_host=4, slow_line=(1, 10), sleeper=3)


def recording_of(case: str, rank: int) -> Path:
    return CASES / f"{case}.rank_{rank}.{NAME}"


def fsdp2() -> Template:
    return template_of(recording_of("fsdp2", 1))


def job_of(folder: Path, template: Template, plan: Plan) -> Path:
    make(folder, template, plan)
    return folder


@contextmanager
def in_process() -> Iterator[Client]:
    """Give a client of a cluster within this process, which is quick to start."""
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
