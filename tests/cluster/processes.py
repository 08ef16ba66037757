"""A program that reads a job on worker processes, one of which is killed in the middle.

python processes.py DIR    prints what came of it as JSON; it is a file, as workers start anew
"""

from __future__ import annotations

import json
import os
import signal
import sys

import psutil

from profiler_ext.cluster import connected, gathering, read_job

WORKERS = 2
gathering._MIN_PORTIONS_PER_WORKER = 1  # six of the twelve files are read together


def main() -> None:
    killed: list[int] = []
    with connected(workers=WORKERS) as client:
        pids = client.run(os.getpid)
        listening = sorted(
            {
                each.laddr.ip
                for pid in (os.getpid(), *pids.values())
                for each in psutil.Process(pid).net_connections("tcp")
                if each.status == psutil.CONN_LISTEN
            }
        )

        def kill_one(what: str, done: int, of: int) -> None:
            if what == "ranks read" and done >= of // 2 and not killed:
                killed.append(next(iter(pids.values())))
                os.kill(killed[0], signal.SIGKILL)

        job = read_job(sys.argv[1], client=client, progress=kill_one)
        schemes = sorted({address.partition(":")[0] for address in pids})
    outcomes = {
        name: job.table(name).to_csv() for name in ("by_line", "communication", "skew", "ranks")
    }
    print(
        json.dumps(
            {
                "tables": outcomes,
                "killed": len(killed),
                "gaps": len(job.gaps),
                "listening": listening,
                "schemes": schemes,
            }
        )
    )


if __name__ == "__main__":
    main()
