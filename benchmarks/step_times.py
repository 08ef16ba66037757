"""Holds the times of our steps against loops that time themselves.

python -m benchmarks.step_times [NAME ...] [--ranks 2] [--out DIR]

Each loop of ``loops.py`` runs twice in processes of their own: by itself, timed by its own clock,
and under ``profiler-ext run``. Compared are the step in training that our title has with the
loop's own (``off``), the mean of the steps before the recording with the program's clock over the
same steps (``same``: on a busy host two runs of a loop differ by more), each recorded step
with their mean, and the idle part of the first two recorded steps with that of all ten. A first run
of all at once (``--warm``) fills torch's caches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.loops import LOOPS, OF_RANKS, STEP_ON
from profiler_ext.errors import ProfilerExtError
from profiler_ext.findings import find
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.vocabulary import Scope
from profiler_ext.sessions.session import load

ROOT = Path(__file__).parents[1]
SKIP, STEPS = 40, 10
HEAD = (
    "loop",
    "own ms",
    "spread",
    "title ms",
    "off",
    "same",
    "recorded ms",
    "most off",
    "idle 2",
    "idle 10",
)


def main() -> None:
    """Run the loops that are asked for, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--ranks", type=int, default=0, help="run the loops of several ranks")
    parser.add_argument("--warm", action="store_true", help="only fill torch's caches, all at once")
    parser.add_argument("--out", type=Path, help="where to keep the sessions")
    asked = parser.parse_args()
    names = asked.names or list(OF_RANKS if asked.ranks else LOOPS)
    if asked.warm:
        started = [_started(_command(name, asked.ranks, "--steps", "4")) for name in names]
        for each in started:
            each.communicate()
        return
    print("| " + " | ".join(HEAD) + " |\n|" + " --- |" * len(HEAD), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            print(_row(name, asked.ranks, (asked.out or Path(folder)) / name), flush=True)


def _row(name: str, ranks: int, folder: Path) -> str:
    timed = _started(_command(name, ranks, "--timed"))
    text = timed.communicate()[0]
    own = next((json.loads(line) for line in text.splitlines() if line.startswith("{")), None)
    recorded = _started(_recording(name, ranks, folder))
    printed = recorded.communicate()[0]
    try:
        session = load(folder / "rank_0" if ranks else folder)
    except ProfilerExtError as error:
        return f"| {name} | {own} | no session: {error} {printed[-400:]} {text[-300:]} |"
    marks = next((json.loads(line) for line in printed.splitlines() if line.startswith("{")), None)
    # The step after the last of these begins with the profiler's own start.
    same_ns = (marks["marks_ns"][SKIP - 2] - marks["marks_ns"][1]) / (SKIP - 3) if marks else 0.0
    return _measured(name, own["step_ns"] if own else [], same_ns, session.analysis)


def _measured(name: str, own_ns: list[float], same_ns: float, analysis: Analysis) -> str:
    own = statistics.median(own_ns) if own_ns else float("nan")
    spread = (max(own_ns) - min(own_ns)) / own if own_ns else float("nan")
    title_ns = find(analysis).unprofiled_step_ns
    before_ns = analysis.recording.settings.unprofiled_steps_ns
    walls = [step.wall_ns for step in analysis.steps]
    mean = statistics.fmean(walls)
    most = max(abs(each - mean) / mean for each in walls)
    cells = (
        name,
        f"{own / 1e6:.2f}",
        f"{spread:.1%}",
        "-" if title_ns is None else f"{title_ns / 1e6:.2f}",
        "-" if title_ns is None else f"{title_ns / own - 1:+.1%}",
        f"{statistics.fmean(before_ns) / same_ns - 1:+.1%}" if before_ns and same_ns else "-",
        " ".join(f"{each / 1e6:.1f}" for each in walls),
        f"{most:.1%}",
        f"{_idle(analysis, 2):.1%}",
        f"{_idle(analysis, len(walls)):.1%}",
    )
    return f"| {' | '.join(cells)} |"


def _idle(analysis: Analysis, steps: int) -> float:
    numbers = {step.number for step in analysis.steps[:steps]}
    lines = [line for line in analysis.breakdown if line.step in numbers]
    idle_ns = sum(line.duration_ns for line in lines if line.scope == Scope.IDLE)
    return idle_ns / sum(line.duration_ns for line in lines)


def _command(name: str, ranks: int, *words: str) -> list[str]:
    return [*_launcher(ranks), "benchmarks/loops.py", name, *words]


def _launcher(ranks: int) -> list[str]:
    torchrun = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--standalone"]
    return [sys.executable, *(torchrun if ranks else [])]


def _recording(name: str, ranks: int, folder: Path) -> list[str]:
    step_on = STEP_ON.get(name)
    asked = [
        *("run", "--force", "--skip", str(SKIP), "--steps", str(STEPS), "-o", str(folder)),
        *(["--step-on", step_on] if step_on else []),
        *("benchmarks/loops.py", name, "--steps", str(SKIP + STEPS + 3)),
    ]
    return [*_launcher(ranks), "-m", "profiler_ext", *asked]


def _started(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


if __name__ == "__main__":
    main()
