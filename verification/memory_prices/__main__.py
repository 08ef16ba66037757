"""``python -m verification.memory_prices``: what memory recommendations claim, and what is so.

    python -m verification.memory_prices [--set fitted|mended|unfitted] [--only NAME ...] [--again]
                                         [--jobs N] [--tiny] [--try] [--out DIR]

Each program runs in a process of its own. It is recorded with ``memory=True``; then the program as
it is and the edited one take turns twice without a profiler (A B A B), and the peak of the
allocator and the time of a step are measured. DIR has a row in JSON and the session of each, and
the table. ``--again`` judges the sessions in DIR by the rules of today.

Rules were made or mended by the trials of the first two sets, and by none of ``--set unfitted``.
``--tiny`` runs both forms of each on the CPU, to see that they run and compute the same. ``--try``
runs ``profiler-ext try --memory`` on the programs as they are instead, and prints what each remedy
saved beside what was claimed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .judging import BY_NAME, claims_of, table, tiny_table, tried_table
from .mended import MENDED
from .programs import TRIALS, Trial
from .unfitted import UNFITTED

TIMEOUT_S = 150
TRY_S = 280  # for all runs of a program's remedies
TRAINED = 400
TRIED = ("gpt_blocks", "vit_blocks", "llama_foreach", "llama_lengths", "llama_zeroed", "t5")
SETS = {"fitted": TRIALS, "mended": MENDED, "unfitted": UNFITTED}


def main() -> int:
    """Run or read what is asked for; 1 where anything failed."""
    parser = argparse.ArgumentParser(prog="verification.memory_prices", description=__doc__)
    parser.add_argument("--set", choices=[*SETS], default="fitted")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[*BY_NAME])
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="processes; one at a time measures")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, on the CPU")
    parser.add_argument("--try", dest="tries", action="store_true", help="profiler-ext try")
    parser.add_argument("--out", type=Path, default=Path("out/memory_prices"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.one:
        from .measuring import measure

        measure(BY_NAME[options.one], options.out)
        return 0
    if options.train:
        return _train(BY_NAME[options.train], options.tiny)
    names = options.only or (TRIED if options.tries else [e.name for e in SETS[options.set]])
    rows, text = _rows(names, options)
    (options.out / "memory_prices.md").write_text(text)
    print(text)
    return 1 if any("failure" in row for row in rows) else 0


def _rows(names: Sequence[str], options: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    if options.tries:
        rows = [_try(name, options) for name in names]
        return rows, tried_table(rows)
    if options.tiny:
        from .measuring import run_tiny

        rows = [run_tiny(BY_NAME[name]) for name in names]
        return rows, tiny_table(rows)
    run = _read_again if options.again else _run
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = [*pool.map(lambda name: run(name, options), names)]
    return rows, table(rows)


def _try(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run ``profiler-ext try --memory`` on a program as it is."""
    folder: Path = options.out / f"try_{name}"
    words = ["-m", "profiler_ext", "try", "--memory", "--no-diff", "--pairs", "2", "--force"]
    words += ["--limit", str(TRY_S), "-o", str(folder), "--"]
    words += ["-m", "verification.memory_prices", "--train", name, *["--tiny"] * options.tiny]
    with (options.out / f"try_{name}.log").open("w") as log:
        done = subprocess.run([sys.executable, *words], stdout=log, stderr=log, check=False)
    path = folder / "try.json"
    if done.returncode or not path.exists():
        return {"name": name, "failure": f"it ended with {done.returncode}; see {log.name}"}
    return {"name": name, "tried": json.loads(path.read_text())["rows"]}


def _train(trial: Trial, is_tiny: bool) -> int:
    """The script that ``try`` measures, and ends when it has measured enough."""
    import torch

    with torch.device("cpu" if is_tiny else "cuda"):
        step = trial.make(None, is_tiny)
    for _ in range(TRAINED):
        step()
    return 0


def _run(name: str, options: argparse.Namespace) -> dict[str, Any]:
    words = [sys.executable, "-W", "ignore", "-m", "verification.memory_prices", "--one", name]
    path: Path = options.out / f"{name}.json"
    path.unlink(missing_ok=True)
    shared = {"TEARDOWN_CUPTI": "1", "PROFILER_EXT_LEARN": "0"}
    children, ranks = [], BY_NAME[name].ranks
    with (options.out / f"{name}.log").open("w") as log:
        for rank in range(ranks):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
            own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
            environment = {**os.environ, **shared, **(own if ranks > 1 else {})}
            command = [*words, "--out", str(options.out)]
            children.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        try:
            for child in children:
                child.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return {"name": name, "failure": f"not done within {TIMEOUT_S} s"}
        finally:
            for child in children:
                child.kill()
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
