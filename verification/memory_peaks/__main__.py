"""``python -m verification.memory_peaks``: is the peak the allocator's, and what of it is named?

    python -m verification.memory_peaks [--cases] [--only NAME ...] [--gpus N] [--jobs N]
                                        [--minutes M] [--again] [--tiny] [--out DIR]

Each program runs in a process of its own; bytes are measured and no times, so ``--jobs`` of them
may share a GPU. After warm-up it takes one step that is not recorded and three that are, with
``memory=True``; of each the allocator's own peak is read. DIR has a row in JSON and the session of
each, and the table: by how much the peak is off, what part of it has a kind, a line or an owner, a
line, a module, a reason why it lives, and the largest blocks that have none, by what is known of
them.

``--cases`` runs those of allocators and of several devices instead; some need two GPUs. A program
that has a row in DIR is not run again unless ``--only`` names it; with ``--minutes`` none is
started after so many, and the same command goes on. ``--again`` reads the sessions in DIR by the
rules of today. ``--tiny`` runs all on the CPU, where the allocator keeps no count.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from verification.rows import gpus_of

from .cases import CASES
from .judging import row_of, table
from .programs import PROGRAMS, Program

TIMEOUT_S = 240
PORT = 29_400
BY_NAME = {each.name: each for each in (*PROGRAMS, *CASES)}
Row = dict[str, Any]


def main() -> int:
    """Run or read what is asked for; 1 where anything failed."""
    options = _parsed()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.one:
        from .measuring import measure

        program, rank = BY_NAME[options.one], int(os.environ.get("RANK", "0"))
        measure(program, options.tiny, options.out, _names(program)[rank])
        return 0
    chosen = [BY_NAME[name] for name in options.only or _default(options)]
    if options.again:
        rows = [_read_again(name, options.out) for each in chosen for name in _names(each)]
    else:
        rows = _run_all(chosen, options)
    text = table(rows)
    (options.out / f"{'cases' if options.cases else 'memory_peaks'}.md").write_text(text)
    print(text)
    return 1 if any("failure" in row for row in rows) else 0


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="verification.memory_peaks", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[*BY_NAME])
    parser.add_argument("--cases", action="store_true")
    parser.add_argument("--gpus", type=int, default=1, help="that programs are spread over")
    parser.add_argument("--jobs", type=int, default=1, help="programs side by side on each GPU")
    parser.add_argument("--minutes", type=float, default=60.0, help="none is started after that")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, on the CPU")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out = options.out or Path("out", "memory_peaks" + "_tiny" * options.tiny)
    return options


def _default(options: argparse.Namespace) -> list[str]:
    return [each.name for each in (CASES if options.cases else PROGRAMS)]


def _names(program: Program) -> list[str]:
    """A row for each rank."""
    if program.ranks == 1:
        return [program.name]
    return [f"{program.name}_rank{rank}" for rank in range(program.ranks)]


def _run_all(chosen: list[Program], options: argparse.Namespace) -> list[Row]:
    """Those of one GPU side by side, then those of several GPUs, one after the other."""
    ends = time.monotonic() + 60 * options.minutes
    gpus = gpus_of(options.gpus)
    free: queue.Queue[str] = queue.Queue()
    for gpu in gpus * options.jobs:
        free.put(gpu)

    def run(program: Program) -> list[Row]:
        gpu = free.get()
        try:
            return _run(program, [gpu], options, ends)
        finally:
            free.put(gpu)

    alone = [each for each in chosen if each.ranks * each.devices == 1]
    with ThreadPoolExecutor(options.gpus * options.jobs) as pool:
        found = dict(zip((each.name for each in alone), pool.map(run, alone), strict=True))
    for each in chosen:
        if each.name not in found:
            found[each.name] = _run(each, gpus, options, ends)
    return [row for each in chosen for row in found[each.name]]


def _run(program: Program, gpus: list[str], options: argparse.Namespace, ends: float) -> list[Row]:
    paths = [options.out / f"{name}.json" for name in _names(program)]
    had = [json.loads(path.read_text()) for path in paths if path.exists()]
    if not options.only and len(had) == len(paths) and not any("failure" in row for row in had):
        return had
    needed = program.ranks * program.devices
    if needed > len(gpus) and not options.tiny:
        return _without(program, f"not run: it needs {needed} GPUs")
    if time.monotonic() > ends:
        return _without(program, "not run: no time was left")
    for path in paths:
        path.unlink(missing_ok=True)
    rows = _results(program, _in_processes(program, gpus, options), options.out)
    for row in rows:
        print(table([row]).splitlines()[2], flush=True)
    return rows


def _without(program: Program, why: str) -> list[Row]:
    return [{"name": name, "failure": why} for name in _names(program)]


def _in_processes(program: Program, gpus: list[str], options: argparse.Namespace) -> bool:
    """Run a process for each rank; return whether all ended in time."""
    words = [sys.executable, "-W", "ignore", "-m", "verification.memory_peaks"]
    words += ["--one", program.name, "--out", str(options.out)] + ["--tiny"] * options.tiny
    # Of programs side by side each has the port of its GPU
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(PORT + int(gpus[0]))}
    shared |= {"TEARDOWN_CUPTI": "1", "PROFILER_EXT_LEARN": "0"}
    shared |= {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    children = []
    for rank in range(program.ranks):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(program.ranks)}
        own = own if program.ranks > 1 else {}
        environment = {**os.environ, **shared, **own, **program.environment}
        with (options.out / f"{_names(program)[rank]}.log").open("w") as log:
            children.append(subprocess.Popen(words, env=environment, stdout=log, stderr=log))
    ends = time.monotonic() + TIMEOUT_S
    try:
        for child in children:
            child.wait(max(ends - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        return False
    finally:
        for child in children:
            child.kill()
    return True


def _results(program: Program, is_done: bool, out: Path) -> list[Row]:
    why = "the process ended without a row" if is_done else f"not done within {TIMEOUT_S} s"
    return [
        json.loads((out / f"{name}.json").read_text())
        if (out / f"{name}.json").exists()
        else {"name": name, "failure": why}
        for name in _names(program)
    ]


def _read_again(name: str, out: Path) -> Row:
    path = out / f"{name}.json"
    if not path.exists():
        return {"name": name, "failure": "it was not run"}
    row: Row = json.loads(path.read_text())
    return row if "failure" in row else row | row_of(out / name)


if __name__ == "__main__":
    sys.exit(main())
