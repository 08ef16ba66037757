"""Reads a job of many ranks (made by ``made_ranks``) on Dask: who is found behind, and the cost.

    python -m benchmarks.many_ranks make DIR --of RECORDING [--ranks 1024] [--planted]
    python -m benchmarks.many_ranks read DIR [--workers 1 2 4] [--planted]

``read`` says which of the planted were found and what was found beside them, and what it took:
processor seconds of all processes, and the peak memory of each worker and the client.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

from benchmarks.made_ranks import Plan, make, template_of
from profiler_ext.cluster import Job, read_job
from profiler_ext.cluster.engine import connected
from profiler_ext.exporters.display_text import records


def found_in(job: Job) -> set[tuple[str, str]]:
    """Return what a job's stragglers are; a host is one, in whatever it is behind."""
    return {
        ("host", row["host"]) if row["rank"] is None else (row["straggler"], f"rank {row['rank']}")
        for row in records(job.table("stragglers"))
    }


def peak_bytes() -> int:
    """Return the most memory that this process has had."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def cpu_s() -> float:
    """Return the processor time of this process."""
    return time.process_time()


def read(folder: Path, workers: int, plan: Plan) -> bool:
    """Read a job with so many workers, and print what came of it."""
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
    return found == expected


def main() -> int:
    """Make a job, or read one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("make", "read"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--of", type=Path, help="a rank's recording")
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    plan = Plan.planted(options.ranks) if options.planted else Plan(options.ranks)
    if options.what == "make":
        make(options.folder, template_of(options.of), plan, options.seed)
        return 0
    held = [read(options.folder, workers, plan) for workers in options.workers]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
