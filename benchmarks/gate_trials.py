"""Trials of the gate on GPUs: is a line that got 5% slower found, and no other one blamed?

python benchmarks/gate_trials.py OUT [--gpus N] [--rounds N] [--seconds N] [--small]

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
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from profiler_ext.comparison.words import Account
from profiler_ext.gate.judging import judge
from profiler_ext.gate.words import Outcome
from profiler_ext.sessions.comparing import ComparedSessions, diff

CONDITION = "each line step.py > +2.5% and > +1us"
STEP = """\
import fcntl, os, sys
from functools import reduce
import torch
import torch._inductor.compile_fx  # here and not under the lock, where all others would wait
import torch.nn.functional as F
from torch import nn

ROWS, WIDTH, DEVICE = {rows}, {width}, "{device}"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        h = F.gelu(self.up(self.norm(x)))
        return x + self.down(h)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(3)))
        self.wide = nn.Parameter(torch.randn(WIDTH, 4 * WIDTH) / 32)
        self.square = nn.Parameter(nn.init.orthogonal_(torch.empty(WIDTH, WIDTH)))

    def forward(self, x, rows, heads, table):
        x = self.blocks(x)
        loss = x.float().square().mean()
        loss = loss + (rows[:{product}] @ self.wide).float().square().mean()
        loss = loss + F.scaled_dot_product_attention(*heads[:, :{attention}]).float().mean()
        loss = loss + torch.softmax(table[:{reduction}], -1).square().sum()
        loss = loss + reduce(torch.mm, [self.square] * {chain}, x).float().square().mean()
        return loss


def main(model, steps):
    model = model.to(DEVICE)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(ROWS, WIDTH, device=DEVICE)
    rows = torch.randn({products}, WIDTH, device=DEVICE, dtype=torch.bfloat16)
    heads = torch.randn(3, {batch}, 8, {tokens}, 64, device=DEVICE, dtype=torch.bfloat16)
    table = torch.randn({table}, 16 * WIDTH, device=DEVICE, requires_grad=True)
    heads.requires_grad_()
    for _ in range(steps):
        batch = reduce(lambda h, _: h.cos(), range({eager}), x)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = compiled(batch, rows, heads, table)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        heads.grad = table.grad = None
    print(loss.item())


torch.manual_seed(0)
model = Model()
with open(os.environ["GATE_TRIALS_LOCK"], "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    main(model, int(sys.argv[1]))
"""
COMMON = {"rows": 8400, "width": 1024, "device": "cuda"}
COMMON |= {"products": 23232, "batch": 44, "tokens": 1024, "table": 8800}
BASE = {"product": 21120, "attention": 40, "reduction": 8000, "chain": 20, "eager": 20}
HEAD = {"product": 22176, "attention": 42, "reduction": 8400, "chain": 21, "eager": 21}
"""Slices stay slices, and the product has whole waves of tiles: 1,056 rows fill 132 processors."""
SMALL = {"rows": 168, "width": 32, "device": "cpu"}
SMALL |= {"products": 176, "batch": 44, "tokens": 16, "table": 176}
SMALL_BASE = BASE | {"product": 160, "reduction": 160}
SMALL_HEAD = HEAD | {"product": 168, "reduction": 168}
LINES = tuple(BASE)
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


def write_programs(work: Path, is_small: bool) -> dict[str | None, int]:
    """Write the base, and a head for each line; return the number of the line that is planted."""
    common, base, head = (SMALL, SMALL_BASE, SMALL_HEAD) if is_small else (COMMON, BASE, HEAD)
    text = STEP.format(**common, **base)
    numbers: dict[str | None, int] = {}
    for planted in (None, *LINES):
        own = STEP.format(**common, **base | ({planted: head[planted]} if planted else {}))
        path = work / "programs" / (planted or "same") / "step.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(own)
        differing = [
            n
            for n, (a, b) in enumerate(zip(text.splitlines(), own.splitlines(), strict=True), 1)
            if a != b
        ]
        assert len(differing) == bool(planted), (planted, differing)
        numbers |= {planted: differing[0]} if differing else {}
    return numbers


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


def judged(work: Path, trial: Trial, line: int | None, rounds: int) -> dict[str, object]:
    """Return what the gate says of a trial, with so many rounds of it."""
    sides = [
        [work / "runs" / trial.name / f"{side}_{n}" for n in range(rounds)]
        for side in ("base", "head")
    ]
    compared = diff(*sides)
    (result,) = judge(compared.comparison, [CONDITION]).results
    failed = [each.name for each in result.of(Outcome.FAILED)]
    (planted,) = [each for each in result.judged if each.name == f"step.py:{line}"] or (None,)
    return {
        "trial": trial.name,
        "rounds": rounds,
        "planted": f"step.py:{line}" if line else None,
        "failed": failed,
        "verdict": verdict(failed, f"step.py:{line}" if line else None),
        "planted_change": planted
        and {
            "base_ns": planted.base,
            "fraction": planted.fraction,
            "interval": planted.interval and [planted.interval.low_ns, planted.interval.high_ns],
        },
        "unclear": [each.name for each in result.of(Outcome.UNCLEAR)],
        "too_few": len(result.of(Outcome.TOO_FEW)),
        "device": _change(compared),
        "lines_of_runs_ns": _lines_of_runs(compared),
    }


def verdict(failed: list[str], planted: str | None) -> str:
    """Return what came of a trial in a word."""
    if planted is None:
        return "false alarm" if failed else "quiet"
    if planted not in failed:
        return "missed" if not failed else "misplaced"
    return "found" if failed == [planted] else "found, and more"


def _change(compared: ComparedSessions) -> dict[str, object]:
    change = compared.comparison.device
    return {"base_ns": change.base_per_step_ns, "fraction": change.fraction}


def _lines_of_runs(compared: ComparedSessions) -> dict[str, dict[str, list[float]]]:
    """Return the mean step of each run by line, so that the noise can be looked at."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, side in zip(("base", "head"), compared.comparison.matched.sides, strict=True):
        of_line: dict[str, list[float]] = {}
        steps = Counter(side.run_of_step.tolist())
        parts = zip(side.parts.subject.tolist(), side.parts.step.tolist(), strict=True)
        for (subject, step), ns in zip(parts, side.parts.duration_ns.tolist(), strict=True):
            at = side.parts.subjects[subject]
            line = f"{at.file}:{at.line}" if at.account == Account.DEVICE else str(at.account)
            run = int(side.run_of_step[step])
            of_line.setdefault(line, [0.0] * len(side.runs))[run] += ns / steps[run]
        found[name] = of_line
    return found


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
                [t for t, _ in wanted],
                [lines.get(t.planted) for t, _ in wanted],
                [n for _, n in wanted],
            )
        )
    (options.out / "trials.json").write_text(json.dumps(found, indent=1))
    return _summary(found)


def _summary(found: list[dict[str, object]]) -> int:
    for is_first in (True, False):
        own = [each for each in found if (each["rounds"] == 1) is is_first]
        counts = Counter((("same", "5% in a line")[bool(e["planted"])], e["verdict"]) for e in own)
        print("one run of each side" if is_first else "all rounds", dict(counts))
    for each in found:
        change = each["planted_change"]
        fraction = f"{change['fraction']:+.2%}" if isinstance(change, dict) else ""
        print(each["trial"], each["rounds"], each["verdict"], each["failed"], fraction)
    good = {"found", "quiet"}
    return int(not found or any(each["verdict"] not in good for each in found))


if __name__ == "__main__":
    shutil.which("taskset") or sys.exit("taskset is needed (util-linux)")
    sys.exit(main())
