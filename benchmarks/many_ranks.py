"""Reads a job of many ranks (made by ``made_ranks``) on Dask: who is found behind, and the cost.

    python -m benchmarks.many_ranks [--ranks 1024] [--workers 2]    # both, with some planted
    python -m benchmarks.many_ranks make DIR [--of RECORDING] [--ranks 1024] [--planted]
    python -m benchmarks.many_ranks read DIR [--workers 1 2 4] [--planted]

``read`` says which of the planted were found and what was found beside them, and what it took:
processor seconds of all processes, and the peak memory of each worker and the client.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure, add_json, tell
from benchmarks.made_ranks import Plan, make, template_of
from benchmarks.recordings import FSDP
from profiler_ext.cluster import Job, read_job
from profiler_ext.cluster.engine import connected
from profiler_ext.exporters.views.summary import records


def found_in(job: Job) -> set[tuple[str, str]]:
    """Return what a job's stragglers are; a host is one, in whatever it is behind."""
    return {
        ("host", row["host"]) if row["rank"] is None else (row["straggler"], f"rank {row['rank']}")
        for row in records(job.columns("stragglers"))
    }


def peak_bytes() -> int:
    """Return the most memory that this process has had."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def cpu_s() -> float:
    """Return the processor time of this process."""
    return time.process_time()


def read(folder: Path, workers: int, plan: Plan) -> tuple[bool, list[Figure]]:
    """Read a job with so many workers, and print what came of it; returns whether it is right."""
    begun, own_s = time.perf_counter(), time.process_time()
    with connected(workers=workers) as client:
        job = read_job(str(folder), client=client)
        rows = {name: len(job.table(name)) for name in ("lines", "skew", "communication")}
        peaks = sorted(client.run(peak_bytes).values())
        spent_s = sum(client.run(cpu_s).values())
    wall_s, own_s = time.perf_counter() - begun, time.process_time() - own_s
    found, expected = found_in(job), plan.expected()
    print(
        f"{workers} workers: {len(job.ranks)} ranks, {len(job.gaps)} gaps, {wall_s:.0f} s, "
        f"processor: workers {spent_s:.0f} s, client {own_s:.0f} s; peak memory: workers "
        f"{', '.join(f'{each >> 20}' for each in peaks)} MiB, client {peak_bytes() >> 20} MiB; "
        f"columns of collectives {job.column_bytes / len(job.ranks):.0f} bytes a rank; rows {rows}"
    )
    print(f"  found {len(found & expected)} of {len(expected)} planted: {sorted(found & expected)}")
    print(f"  not found: {sorted(expected - found)}; invented: {sorted(found - expected)}")
    what = f"{len(job.ranks):,} ranks, {workers} workers"
    return found == expected, [
        Figure(f"{what}: processor time of the workers", spent_s, "s"),
        Figure(f"{what}: processor time of the client", own_s, "s"),
        Figure(f"{what}: peak memory of a worker", peaks[-1] / 2**20, "MiB"),
        Figure(f"{what}: found, of {len(expected)} planted", len(found & expected), ""),
        Figure(f"{what}: invented", len(found - expected), ""),
    ]


def main() -> int:
    """Make a job, or read one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("make", "read", "both"), nargs="?", default="both")
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--of", type=Path, default=FSDP, help="a rank's recording")
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    add_json(parser)
    options = parser.parse_args()
    is_planted = options.planted or options.what == "both"
    plan = Plan.planted(options.ranks) if is_planted else Plan(options.ranks)
    if (options.folder is None) != (options.what == "both"):
        parser.error("make and read need a folder, and both of them have their own")
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        if options.what != "read":
            make(folder, template_of(options.of), plan, options.seed)
        if options.what == "make":
            return 0
        reported = [read(folder, workers, plan) for workers in options.workers]
    tell([figure for _, figures in reported for figure in figures], options.json)
    return 0 if all(is_right for is_right, _ in reported) else 1


if __name__ == "__main__":
    sys.exit(main())
