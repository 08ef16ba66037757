"""What capture costs a program that is never profiled: a start, a cold compile, memory.

Each pair is one process with capture and one without, ``warm`` from AOTAutograd's cache, ``fx``
from the FX graph cache alone, ``cold`` from neither. With ``--cores`` both run at once, each on a
core of its own, which they swap from pair to pair, so that what the host does meets both; else in
turn. Compared is the processor time of the process and its children after ``import torch``. Three
more processes of each kind tell what is spent within the hooks, as a part of their own time.

    python -m benchmarks.capture_cost [--only warm] [--cores 0,2,4,6] [--device cuda] [--pairs 10]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

from benchmarks.figures import Figure, add_json, figure_of, tell
from benchmarks.first_step import HELD, TIMED, add_program, arguments
from benchmarks.pairs import WITH, WITHOUT, compared

KINDS = ("warm", "fx", "cold", "memory")
_TIMED_RUNS, _FILLING_THREADS = 3, 4
_PARTS = ("first step", "start")


def in_child(
    options: argparse.Namespace,
    kind: str,
    side: str,
    cache: Path,
    core: int | None = None,
    threads: int = 1,
) -> dict[str, Any]:
    """Run one process, on a core of its own where one is given, which compiles on threads."""
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    env |= {"TORCHINDUCTOR_COMPILE_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(sys.path)}
    env |= {"TORCHINDUCTOR_AUTOGRAD_CACHE": "0"} if kind == "fx" else {}
    env |= {"PYTHONDONTWRITEBYTECODE": ""}  # what is installed has its bytecode
    # More threads than cores wait for one another, and waiting counts as processor time.
    env |= {"OMP_NUM_THREADS": "1"} if options.cores else {}
    command = [sys.executable, "-m", "benchmarks.first_step", "--side", side]
    pinned = ["taskset", "-c", str(core)] if core is not None else []
    done = subprocess.run(
        [*pinned, *command, *arguments(options)],
        env=env,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


_Cores = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Runs:
    """The processes of all kinds, and where they run.

    Attributes:
        options: the command line's.
        folder: has the caches.
        cores: pairs of cores that are free; ``None`` twice where none are given.
        ends: no pair begins after it, on the clock of ``time.monotonic``.
    """

    options: argparse.Namespace
    folder: Path
    cores: Queue[_Cores]
    ends: float

    def fill(self, kind: str, side: str) -> None:
        """Fill the caches that a kind starts from; of ``cold`` only the disk's are."""
        # What was compiled without capture has no record, so each side has caches of its own.
        in_child(self.options, kind, side, self._cache(kind, side, -1), threads=_FILLING_THREADS)

    def pair(self, kind: str, number: int) -> dict[str, dict[str, Any]] | None:
        """Run one pair; return nothing where time is up."""
        with self._two_cores() as cores:
            return None if time.monotonic() > self.ends else self._both(kind, number, cores)

    def timed(self, kind: str, number: int) -> dict[str, Any] | None:
        """Run one process that tells what is spent within hooks; nothing where time is up."""
        cache = self._cache(kind, TIMED if kind == "cold" else WITH, number)
        with self._two_cores() as (core, _):
            if time.monotonic() > self.ends:
                return None
            return in_child(self.options, kind, TIMED, cache, core)

    @contextmanager
    def _two_cores(self) -> Iterator[_Cores]:
        cores = self.cores.get()
        try:
            yield cores
        finally:
            self.cores.put(cores)

    def _both(self, kind: str, number: int, cores: _Cores) -> dict[str, dict[str, Any]]:
        def run(side: str, core: int | None) -> dict[str, Any]:
            return in_child(self.options, kind, side, self._cache(kind, side, number), core)

        sides = (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH)
        with ThreadPoolExecutor(1 if cores[0] is None else 2) as pool:
            return dict(zip(sides, pool.map(run, sides, cores), strict=True))

    def _cache(self, kind: str, side: str, number: int) -> Path:
        own = f"{kind}-{side}"
        return self.folder / (f"{own}-{number}" if kind == "cold" else own)


def paired(options: argparse.Namespace, kinds: list[str], folder: Path) -> list[Figure]:
    """Run the pairs of some kinds, and return what they show."""
    cores: Queue[_Cores] = Queue()
    for two in _twos(options.cores):
        cores.put(two)
    runs = Runs(options, folder, cores, time.monotonic() + options.seconds)
    both_sides = [(kind, side) for kind in kinds for side in (WITH, WITHOUT)]
    with ThreadPoolExecutor(cores.qsize()) as pool:
        list(pool.map(lambda job: runs.fill(*job), both_sides))
        hooks = _child_figures(pool, "within hooks", runs.timed, kinds, _TIMED_RUNS)
        pairs = _child_figures(pool, "pair", runs.pair, kinds, options.pairs)
    return [each for kind in kinds for each in shown(kind, pairs[kind], hooks[kind])]


def _child_figures(
    pool: Executor, what: str, run: Callable[[str, int], Any], kinds: list[str], count: int
) -> dict[str, list[Any]]:
    """Run each kind so many times, and print what each run told as it comes."""
    jobs = [(kind, number) for number in range(count) for kind in kinds]
    figures_by_kind: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for (kind, number), figures_of_child in zip(
        jobs, pool.map(run, *zip(*jobs, strict=True)), strict=True
    ):
        figures_by_kind[kind] += [figures_of_child] if figures_of_child else []
        print(f"{kind}, {what} {number}: {json.dumps(_rounded(figures_of_child))}", flush=True)
    return figures_by_kind


def _twos(cores: list[int]) -> list[_Cores]:
    return list(zip(cores[::2], cores[1::2], strict=False)) or [(None, None)]


def _rounded(figures_of_child: Any) -> Any:
    if isinstance(figures_of_child, dict):
        return {what: _rounded(each) for what, each in figures_of_child.items()}
    return round(figures_of_child, 4) if isinstance(figures_of_child, float) else figures_of_child


def shown(
    kind: str, pairs: list[dict[str, dict[str, Any]]], hooks: list[dict[str, Any]]
) -> list[Figure]:
    """Return the figures of one kind.

    Args:
        kind: which caches there were.
        pairs: what both sides told, pair by pair.
        hooks: what those told whose hooks were timed.
    """
    if not pairs:
        return []
    figures = []
    for part in _PARTS:
        two = [(each[WITH][part], each[WITHOUT][part]) for each in pairs]
        figures.append(compared(f"{kind}: {part}, with capture", [a / b for a, b in two]))
        figures.append(figure_of(f"{kind}: {part}, without", [b for _, b in two], "s"))
        figures.append(
            figure_of(f"{kind}: {part}, more with capture", [a - b for a, b in two], "s")
        )
    enabled = [each[WITH]["enable"] for each in pairs]
    figures.append(figure_of(f"{kind}: enable()", enabled, "s"))
    if hooks:
        figures.append(figure_of(f"{kind}: within hooks", [each["hooks"] for each in hooks], "s"))
        parts = [each["hooks"] / (each["first step"] - each["hooks"]) for each in hooks]
        figures.append(
            figure_of(f"{kind}: within hooks, of the rest", [p * 100 for p in parts], "%")
        )
    return figures


def remember(options: argparse.Namespace, folder: Path) -> list[Figure]:
    """Return what is held for each FX node after a cold and a warm start, and what is stored."""
    figures = []
    for state in ("cold", "warm"):
        figures_of_child = in_child(options, "memory", HELD, folder / "memory")
        nodes = sum(figures_of_child["nodes"])
        per = {
            f"{name} a profile asks": figures_of_child[f"held {name}"] / nodes
            for name in ("before", "after")
        }
        per["record on the artifact"] = sum(figures_of_child["record bytes"]) / nodes
        figures += [Figure(f"{state}: {what}, a node", each, "B") for what, each in per.items()]
    stored = list((folder / "memory" / "profiler_ext").rglob("*.pxpr"))
    total = sum(file.stat().st_size for file in stored)
    return [*figures, Figure("store, a node", total / nodes, "B", len(stored))]


def main() -> None:
    """Run what is asked for, or be one of its processes."""
    options = _options()
    kinds = options.only or list(KINDS)
    with tempfile.TemporaryDirectory(prefix="capture-cost-") as folder:
        of_pairs = [kind for kind in kinds if kind != "memory"]
        figures = paired(options, of_pairs, Path(folder)) if of_pairs else []
        figures += remember(options, Path(folder)) if "memory" in kinds else []
    tell(figures, options.json)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=KINDS, action="append", help="all, if none is given")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--cores", type=_cores, default=[], help="two for each pair at a time")
    parser.add_argument("--seconds", type=float, default=3600, help="no pair begins after them")
    add_program(parser)
    add_json(parser)
    return parser.parse_args()


def _cores(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


if __name__ == "__main__":
    main()
