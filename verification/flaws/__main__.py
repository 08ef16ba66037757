"""``python -m verification.flaws``: runs flaws on GPUs and judges what the findings say of them.

    python -m verification.flaws
        [--set developing|held_out|held_out_2|...|held_out_14|all] [--tuned]
        [--only NAME ...] [--parallel GPUS] [--ahead PROCESSES] [--again] [--tiny] [--out DIR]

Each flaw runs in a process of its own. Its flawed and its remedied step are timed in turn without a
profiler, then the flawed one is recorded. DIR has a row in JSON and the session of each, and the
table, which is printed too. ``--tuned`` times steps at their best settings, of which nothing large
may be said; with ``--remedied`` those of which something is said, in turn with its remedy.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from verification.rows import gpus_of

from . import split
from .catalogue import FLAWS
from .cores import wait_elsewhere
from .judging import accepted_rules, judged, table, tuned_table

TIMEOUT_S = 240
TINY = "Tiny sizes on a CPU: their times mean nothing.\n"


def main() -> int:
    """Run what is asked for; 1 where anything failed."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.one:
        wait_elsewhere(options.parallel)
        from . import measuring

        tuned = measuring.measure_remedied if options.remedied else measuring.measure_tuned
        measure = tuned if options.tuned else measuring.measure
        measuring.main(options.one, measure, options.tiny, options.out)
        return 0
    rows = _read_again(options) if options.again else _run(_names(options), options)
    if options.tuned:
        text = tuned_table(rows)
    else:
        accepted = accepted_rules()
        rows = [judged(row, accepted) for row in rows]
        text = table(rows)
    stem = ("remedied" if options.remedied else "tuned") if options.tuned else options.set
    (options.out / f"{stem}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (options.out / f"{stem}.md").write_text(text)
    print(text + TINY * options.tiny)
    return 1 if any("failure" in row for row in rows) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="verification.flaws", description=__doc__)
    parser.add_argument("--set", choices=(*split.SETS, "all"), default="developing")
    parser.add_argument("--tuned", action="store_true", help="the tuned steps in place of flaws")
    parser.add_argument("--remedied", action="store_true", help="tuned steps and their remedies")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=())
    parser.add_argument("--parallel", type=int, metavar="GPUS", default=1)
    parser.add_argument(
        "--ahead",
        type=int,
        default=1,
        metavar="PROCESSES",
        help="processes for each GPU: one measures, others import on other cores",
    )
    parser.add_argument(
        "--again", action="store_true", help="judge the sessions in DIR by the rules of today"
    )
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, on the CPU")
    parser.add_argument("--out", type=Path, default=Path("out/flaws"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def _names(options: argparse.Namespace) -> list[str]:
    if options.tuned:
        from .programs import REMEDIED, TUNED

        names = list(REMEDIED if options.remedied else TUNED)
    else:
        names = list(FLAWS) if options.set == "all" else split.read()[options.set]
    unknown = sorted(set(options.only) - set(names))
    if unknown:
        raise SystemExit(f"not among {len(names)} names of this set: {', '.join(unknown)}")
    return [name for name in names if not options.only or name in options.only]


def _run(names: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of these names, each from a process of its own; a GPU measures one at a time."""
    gpus: queue.Queue[str] = queue.Queue()
    for gpu in gpus_of(options.parallel) * options.ahead:
        gpus.put(gpu)

    def run(name: str) -> dict[str, Any]:
        gpu = gpus.get()
        try:
            return _row(name, gpu, options)
        finally:
            gpus.put(gpu)

    with ThreadPoolExecutor(gpus.qsize()) as pool:
        return list(pool.map(run, names))


def _read_again(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of a run before, with today's findings of their sessions; it needs no GPU."""
    from .measuring import found_again

    paths = [options.out / f"{name}.json" for name in _names(options)]
    rows = [json.loads(path.read_text()) for path in paths if path.exists()]
    return [found_again(row, options.out) for row in rows]


def _row(name: str, gpu: str, options: argparse.Namespace) -> dict[str, Any]:
    out: Path = options.out
    (out / f"{name}.json").unlink(missing_ok=True)
    words = [sys.executable, "-W", "ignore", "-m", "verification.flaws", "--one", name]
    words += (
        ["--out", str(out), "--parallel", str(options.parallel)]
        + ["--tiny"] * options.tiny
        + ["--tuned"] * options.tuned
    )
    words += ["--remedied"] * options.remedied
    environment = {
        **os.environ,
        "TEARDOWN_CUPTI": "1",
        "PROFILER_EXT_LEARN": "0",
    }
    if not options.tiny:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    try:
        with (out / f"{name}.log").open("w") as log:
            done = subprocess.run(
                words, env=environment, stdout=log, stderr=log, check=False, timeout=TIMEOUT_S
            )
        row: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
        if done.returncode:
            row = {"name": name, "failure": f"the process ended with {done.returncode}"}
    except subprocess.TimeoutExpired:
        row = {"name": name, "failure": f"not done within {TIMEOUT_S} s"}
    except FileNotFoundError:
        row = {"name": name, "failure": f"the process ended with {done.returncode}, without a row"}
    print(f"{name}: {row.get('failure') or format(row['took_s'], '.1f') + ' s'}", file=sys.stderr)
    return row


if __name__ == "__main__":
    sys.exit(main())
