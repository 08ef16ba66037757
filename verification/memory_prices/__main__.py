"""``python -m verification.memory_prices``: what memory recommendations claim, and what is so.

    python -m verification.memory_prices [--only NAME ...] [--again] [--jobs N] [--out DIR]

Each program runs in a process of its own. It is recorded with ``memory=True``; then the program as
it is and the edited one take turns twice without a profiler (A B A B), and the peak of the
allocator and the time of a step are measured. DIR has a row in JSON and the session of each, and
the table. ``--again`` judges the sessions in DIR by the rules of today.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .judging import claims_of, table
from .programs import TRIALS

TIMEOUT_S = 150
BY_NAME = {each.name: each for each in TRIALS}


def main() -> int:
    """Run or read what is asked for; 1 where anything failed."""
    parser = argparse.ArgumentParser(prog="verification.memory_prices", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[*BY_NAME])
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="processes; one at a time measures")
    parser.add_argument("--out", type=Path, default=Path("out/memory_prices"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.one:
        from .measuring import measure

        measure(BY_NAME[options.one], options.out)
        return 0
    run = _read_again if options.again else _run
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = [*pool.map(lambda name: run(name, options), options.only)]
    text = table(rows)
    (options.out / "memory_prices.md").write_text(text)
    print(text)
    return 1 if any("failure" in row for row in rows) else 0


def _run(name: str, options: argparse.Namespace) -> dict[str, Any]:
    words = [sys.executable, "-W", "ignore", "-m", "verification.memory_prices", "--one", name]
    path: Path = options.out / f"{name}.json"
    path.unlink(missing_ok=True)
    environment = {**os.environ, "TEARDOWN_CUPTI": "1", "PROFILER_EXT_LEARN": "0"}
    with (options.out / f"{name}.log").open("w") as log:
        try:
            subprocess.run(
                [*words, "--out", str(options.out)],
                env=environment, stdout=log, stderr=log, check=False, timeout=TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"name": name, "failure": f"not done within {TIMEOUT_S} s"}
    if not path.exists():
        return {"name": name, "failure": "the process ended without a row"}
    row: dict[str, Any] = json.loads(path.read_text())
    print(table([row]).splitlines()[2], flush=True)
    return row


def _read_again(name: str, options: argparse.Namespace) -> dict[str, Any]:
    path = options.out / f"{name}.json"
    if not path.exists():
        return {"name": name, "failure": "it was not run"}
    row: dict[str, Any] = json.loads(path.read_text())
    return row | {"claims": claims_of(options.out / name)}


if __name__ == "__main__":
    sys.exit(main())
