"""``python -m verification.replays``: do replayed kernels stand where launched ones do?

    python -m verification.replays [--only NAME ...] [--warm] [--gpus N] [--again] [--tiny]
                                   [--out DIR]

Each program runs in a process of its own: its step is recorded as it launches, then the program
captures its CUDA graphs, and their replays are recorded. The first says where each kernel belongs.
DIR has a row in JSON and both sessions of each, and the table. ``--warm`` runs each again with the
caches of its first run. ``--again`` judges the sessions in DIR by the rules of today. ``--tiny``
runs on the CPU: captures are real, what is launched is simulated (``simulating``), so it shows
whether programs run and where their ops stand, and nothing about a GPU.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

from verification.rows import gpus_of, row_of_process

from .judging import table
from .programs import PROGRAMS

TIMEOUT_S = 170  # of a GPU; the CPU may be shared


def main() -> int:
    """Run or read what is asked for; 1 where anything failed."""
    parser = argparse.ArgumentParser(prog="verification.replays", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[*PROGRAMS], choices=PROGRAMS)
    parser.add_argument("--warm", action="store_true", help="each once more, from its caches")
    parser.add_argument("--gpus", type=int, default=1, help="processes, each on a GPU of its own")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, on the CPU")
    parser.add_argument("--out", type=Path, default=Path("out/replays"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.one:
        from .measuring import measure
        from .served import as_rank

        measure(options.one, options.tiny, as_rank(options.out))
        return 0
    devices: Queue[str] = Queue()
    for device in gpus_of(options.gpus):
        devices.put(device)
    run = _read_again if options.again else _run
    with ThreadPoolExecutor(options.gpus) as pool:
        rows = [*pool.map(lambda name: run(name, options, devices), options.only)]
    text = table([row for own in rows for row in own])
    (options.out / "replays.md").write_text(text)
    print(text)
    return 1 if any("failure" in row for own in rows for row in own) else 0


def _run(name: str, options: argparse.Namespace, devices: Queue[str]) -> list[dict[str, Any]]:
    """Run a program with empty caches, and again with what it left there if that is wanted."""
    device = devices.get()
    cache = options.out / "caches" / name
    shutil.rmtree(cache, ignore_errors=True)
    try:
        rows = [_run_once(name, options, options.out, cache, device)]
        if options.warm and "verdict" in rows[0]:
            rows.append(_run_once(name, options, options.out / "warm", cache, device))
            rows[1]["name"] = f"{name}, warm"
    finally:
        devices.put(device)
    return rows


def _run_once(
    name: str, options: argparse.Namespace, out: Path, cache: Path, device: str
) -> dict[str, Any]:
    words = ["verification.replays", "--one", name, *["--tiny"] * options.tiny]
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(cache.resolve())}
    environment["CUDA_VISIBLE_DEVICES"] = device
    row = row_of_process(name, words, out, environment, TIMEOUT_S)
    print(table([row]).splitlines()[2], flush=True)
    return row


def _read_again(name: str, options: argparse.Namespace, _: Queue[str]) -> list[dict[str, Any]]:
    from .measuring import judged

    rows = []
    for out in (options.out, options.out / "warm"):
        path = out / f"{name}.json"
        if path.exists():
            row = json.loads(path.read_text())
            own = name if out is options.out else f"{name}, warm"
            rows.append({**row, "name": own})
            if "verdict" in row:
                rows[-1]["verdict"] = judged(name, out)
    return rows or [{"name": name, "failure": "it was not run"}]


if __name__ == "__main__":
    sys.exit(main())
