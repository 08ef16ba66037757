"""Trials of the gate on GPUs: is a line that got 5% slower found, and no other one blamed?

python -m benchmarks.gate_trials OUT [--gpus N] [--rounds N] [--seconds N] [--small]

A training step has five lines whose work is proportional to a number in that line: a product, an
attention, a reduction that Inductor fuses, a chain of products, and eager work. In a trial with a
flaw the head is the same program with that one number 5% larger, so that the line itself takes
about 5% longer, forward and backward; of the step that is 1% or less. Ten trials have the flaw,
each line twice; in ten more base and head are the same program.

Each run is a process of its own: base and head of a trial in turn, then those of the next trial;
then all over again for the next round, until the rounds are done or the time is up. What a process
does on a GPU is under that GPU's lock, so that nothing else runs there meanwhile; importing and
writing are not. A trial is judged by all rounds of it, and by the first alone:
``each line step.py > +2.5% and > +1us`` must fail at the planted line and at no other.
OUT/trials.json has what was judged, and each run's mean step by line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gate_outcomes import judged, summary
from benchmarks.gate_programs import LINES, write_programs

RECORDED = 10
SKIPPED = 4
AT_ONCE = 5
"""So many processes of a GPU are under way; one of them has its lock."""


@dataclass(frozen=True)
class Trial:
    """A base and a head: which line of the head is slower, if any."""

    number: int
    planted: str | None

    @property
    def name(self) -> str:
        """What its folder is called."""
        return f"{self.number:02}_{self.planted or 'same'}"


TRIALS = tuple(
    Trial(n, LINES[n // 2 % len(LINES)] if n % 2 else None) for n in range(2 * 2 * len(LINES))
)


@dataclass(frozen=True)
class Machine:
    """Where trials run: folders, and how much time is left."""

    work: Path
    gpus: int
    deadline: float

    def record(self, trial: Trial, side: str, number: int, gpu: int) -> Path | None:
        """Run a program once under the profiler; return its session."""
        folder = self.work / "runs" / trial.name / f"{side}_{number}"
        planted = trial.planted if side == "head" else None
        return (
            self.run(planted, folder, gpu, f"gpu_{gpu}")
            if time.monotonic() < self.deadline
            else None
        )

    def run(self, planted: str | None, folder: Path, gpu: int, lock: str) -> Path | None:
        """Run a program under the profiler, on a GPU under a lock; return its session."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        script = self.work / "programs" / (planted or "same") / "step.py"
        steps = ["--skip", str(SKIPPED), "--steps", str(RECORDED)]
        command = ["-m", "profiler_ext", "run", *steps, "-o", str(folder), "--force", str(script)]
        left = max(self.deadline - time.monotonic(), 1)
        with folder.with_suffix(".log").open("w") as log:
            ended = subprocess.Popen(
                [*_pinned(gpu, self.gpus), sys.executable, *command, str(SKIPPED + RECORDED + 1)],
                env=os.environ
                | {
                    "CUDA_VISIBLE_DEVICES": str(gpu),
                    "GATE_TRIALS_LOCK": str(self.work / f"{lock}.lock"),
                    "TORCHINDUCTOR_CACHE_DIR": str(self.work / "inductor"),
                },
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                code = ended.wait(left)
            except subprocess.TimeoutExpired:
                ended.kill()
                ended.wait()
                return None
        return folder if code == 0 else None


def _pinned(gpu: int, gpus: int) -> list[str]:
    """Return what gives a GPU's processes processors of their own."""
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // gpus
    own = cores[gpu * share : (gpu + 1) * share]
    return ["taskset", "-c", ",".join(map(str, own))] if gpus > 1 and own else []


def record_all(machine: Machine, trials: tuple[Trial, ...], rounds: int) -> dict[str, int]:
    """Record all trials round by round; return how many whole rounds each trial has."""
    with ThreadPoolExecutor(2 * AT_ONCE * machine.gpus) as pool:  # fills the caches
        cold = machine.work / "cold"
        planted = dict.fromkeys((None, *(trial.planted for trial in trials)))
        jobs = [
            pool.submit(machine.run, each, cold / (each or "same"), n % machine.gpus, f"cold_{n}")
            for n, each in enumerate(planted)
        ]
        print("cold:", sum(job.result() is not None for job in jobs), "of", len(jobs), flush=True)
    with ThreadPoolExecutor(machine.gpus) as pool:
        done = pool.map(lambda gpu: _record_on(machine, trials, gpu, rounds), range(machine.gpus))
    return {name: count for each in done for name, count in each.items()}


def _record_on(
    machine: Machine, trials: tuple[Trial, ...], gpu: int, rounds: int
) -> dict[str, int]:
    own = [trial for trial in trials if trial.number // 2 % machine.gpus == gpu]
    wanted = [(r, trial, side) for r in range(rounds) for trial in own for side in ("base", "head")]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda each: machine.record(each[1], each[2], each[0], gpu), wanted))
    made = {(t.name, s, r) for (r, t, s), path in zip(wanted, found, strict=True) if path}
    return {trial.name: _whole_rounds(trial.name, made, rounds) for trial in own}


def _whole_rounds(name: str, made: set[tuple[str, str, int]], rounds: int) -> int:
    whole = [all((name, side, r) in made for side in ("base", "head")) for r in range(rounds)]
    return whole.index(False) if False in whole else rounds


def main() -> int:
    """Record and judge all trials; return 1 where one did not come out as it should."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=240, help="for recording")
    parser.add_argument("--trials", type=int, default=len(TRIALS), help="so many of the 20")
    parser.add_argument("--small", action="store_true", help="on the CPU, to try the script")
    options = parser.parse_args()
    work = options.out / "work"
    lines = write_programs(work, options.small)
    machine = Machine(work, options.gpus, time.monotonic() + options.seconds)
    began = time.monotonic()
    trials = TRIALS[: options.trials]
    rounds = record_all(machine, trials, options.rounds)
    print(f"recorded in {time.monotonic() - began:.0f} s: rounds", rounds, flush=True)
    wanted = [
        (t, n) for t in trials for n in sorted({1, rounds[t.name]}) if 0 < n <= rounds[t.name]
    ]
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        found = list(
            pool.map(
                judged,
                [work] * len(wanted),
                [t.name for t, _ in wanted],
                [lines.get(t.planted) for t, _ in wanted],
                [n for _, n in wanted],
            )
        )
    (options.out / "trials.json").write_text(json.dumps(found, indent=1))
    return summary(found)


if __name__ == "__main__":
    shutil.which("taskset") or sys.exit("taskset is needed (util-linux)")
    sys.exit(main())
