"""What a long run holds: memory, objects, files and descriptors over 100,000 steps.

Each program of ``long_programs.py`` runs under ``profiler-ext run`` as its row in ``RUNS`` says,
and once without. Both say at equal distances what they hold. Told are the growth in the second half
of the run, where all that is bounded has reached its bound, and what is held at the end: by capture
(all that can be reached from it), by the process, on disk.

    python -m benchmarks.long_runs [--only steps] [--fraction 0.1] [--json FILE]

Lines are watched where Python is 3.12 or newer.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import Figure, add_json, tell
from benchmarks.long_programs import SAMPLE
from benchmarks.processes import MIB

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Run:
    """A program, and how it is run.

    Attributes:
        program: its name.
        steps: how many.
        profiled: what ``profiler-ext run`` is asked for.
        options: what the program is.
    """

    program: str
    steps: int
    profiled: tuple[str, ...]
    options: tuple[str, ...] = ()


_EVERY = ("--skip", "10", "--keep", "5", "--every")
RUNS = (
    Run("steps", 100_000, (*_EVERY, "1000")),
    Run("slow", 20_000, ("--skip", "10", "--keep", "5", "--slow", "3")),
    Run("recompiles", 4_000, (*_EVERY, "100")),
    Run("shapes", 2_000, (*_EVERY, "100"), ("--each", "10")),
    Run("loaders", 5_000, (*_EVERY, "500"), ("--each", "50")),
    Run("eager", 50_000, (*_EVERY, "500")),
    Run("autograd", 20_000, (*_EVERY, "200")),
)
Sample = dict[str, Any]


def samples(run: Run, fraction: float, folder: Path, *, is_profiled: bool) -> list[Sample]:
    """Run a program; return what it said it holds.

    Args:
        run: the program, and how it is run.
        fraction: so much of its steps.
        folder: an empty folder, for all that is written.
        is_profiled: it runs under ``profiler-ext run``.
    """
    written, temporary = folder / "out", folder / "tmp"
    temporary.mkdir(parents=True)
    ours = ["-m", "profiler_ext", "run", *run.profiled, "-o", str(written)] if is_profiled else []
    count = str(max(int(run.steps * fraction), 100))
    arguments = [
        "--steps",
        count,
        "--folder",
        str(written),
        "--folder",
        str(temporary),
        *run.options,
    ]
    env = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TMPDIR": str(temporary),
    }
    command = [sys.executable, *ours, "-m", "benchmarks.long_programs", run.program, *arguments]
    done = subprocess.run(command, env=os.environ | env, check=True, text=True, capture_output=True)
    lines = done.stderr.splitlines()
    return [json.loads(line.removeprefix(SAMPLE)) for line in lines if line.startswith(SAMPLE)]


def growth(found: Sequence[Sample], what: str) -> float:
    """Return by how much something grew for each thousand steps of the second half of a run.

    Args:
        found: what was held, in order.
        what: of which of it.
    """
    later = found[len(found) // 2 :]
    slope = np.polyfit([each["step"] for each in later], [each[what] for each in later], 1)[0]
    return float(slope) * 1000


def show(found: Sequence[Sample]) -> None:
    """Print some of what was held."""
    for at in np.linspace(0, len(found) - 1, min(_SHOWN, len(found))).astype(int):
        each = found[at]
        print(
            f"  step {each['step']:>7,}: {each['resident'] / MIB:6.1f} MiB resident, "
            f"{each['objects']:>9,} objects, {each['ours']:>6,} of ours, "
            f"{each['capture'] / MIB:6.2f} MiB in capture, {each['disk'] / MIB:5.2f} MiB in "
            f"{each['files']} files, {each['descriptors']} descriptors, {each['threads']} threads",
            flush=True,
        )


def figures(run: Run, ours: Sequence[Sample], plain: Sequence[Sample]) -> list[Figure]:
    """Return what a run grew by, and what it held at its end.

    Args:
        run: the program.
        ours: what it held under ``profiler-ext run``.
        plain: what it held without.
    """
    name, steps = run.program, f"{ours[-1]['step']:,} steps"
    return [
        Figure(f"{name}: resident, growth in 1,000 steps", growth(ours, "resident") / MIB, "MiB"),
        Figure(f"{name}: the same without profiler_ext", growth(plain, "resident") / MIB, "MiB"),
        Figure(f"{name}: in capture, growth in 1,000 steps", growth(ours, "capture") / MIB, "MiB"),
        Figure(f"{name}: in capture, after {steps}", ours[-1]["capture"] / MIB, "MiB"),
        Figure(f"{name}: most on disk", max(each["disk"] for each in ours) / MIB, "MiB"),
    ]


def main() -> None:
    """Run them, and print what they held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [run.program for run in RUNS]
    parser.add_argument("--only", choices=names, action="append", help="all, if none is given")
    parser.add_argument("--fraction", type=float, default=1.0, help="so much of the steps")
    add_json(parser)
    options = parser.parse_args()
    found: list[Figure] = []
    for run in RUNS:
        if run.program not in (options.only or names):
            continue
        sides = []
        for is_profiled in (True, False):
            with tempfile.TemporaryDirectory(prefix="long-run-") as folder:
                place = Path(folder)
                sides.append(samples(run, options.fraction, place, is_profiled=is_profiled))
            print(f"{run.program}, {'with' if is_profiled else 'without'} profiler_ext", flush=True)
            show(sides[-1])
        found += figures(run, *sides)
    tell(found, options.json)


if __name__ == "__main__":
    main()
