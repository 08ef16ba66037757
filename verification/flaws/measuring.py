"""One flaw in one process: its steps timed in turn without a profiler, then the flawed recorded."""

from __future__ import annotations

import fcntl
import json
import math
import os
import random
import shutil
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import profiler_ext
from profiler_ext.exporters.json_output.answers import findings_answer
from profiler_ext.exporters.json_output.bounds import answer_text

from .catalogue import FLAWS
from .cores import measure_on
from .programs import REMEDIED, TUNED, Sizes, Step, builder, marked_lines

__all__ = [
    "compare",
    "findings_of",
    "found_again",
    "main",
    "measure",
    "measure_remedied",
    "measure_tuned",
    "recorded",
    "sizes_of",
]

ATTEMPTS = 3
STEADY = 1.15
"""Times of one step that differ by a larger factor are not of one state of the machine."""
BLOCKS = 9
BLOCK_S = 0.1
RECORDED = 4
UNRECORDED = 20  # of which the later half gives the step time without profiling


def sizes_of(is_tiny: bool) -> Sizes:
    """Real sizes on the GPU, or tiny ones on the CPU."""
    return Sizes("cpu" if is_tiny else "cuda", is_tiny)


def measure(name: str, sizes: Sizes, out: Path) -> dict[str, Any]:
    """What both variants take, what remedying gains, and the findings of the flawed one."""
    lines = [list(line) for line in sorted(marked_lines(name))]
    row = compare(name, builder(name), sizes, out)
    _check_losses(name, row["first_loss"])
    return {"name": name, "lines": lines, **row}


def compare(
    name: str, make: Callable[[bool, Sizes], Step], sizes: Sizes, out: Path
) -> dict[str, Any]:
    """The same of any pair of steps: of the attempt whose steps took the most equal times.

    On a machine that others share, a step that the CPU sets the pace of took 56 ms when it was
    timed and 30 ms when it was recorded a second later: its gain is no measure of the recording.
    """
    with _alone(out):
        attempts: list[dict[str, Any]] = []
        while not attempts or (
            _apart(attempts[-1]) > STEADY and len(attempts) < sizes.of(ATTEMPTS, 1)
        ):
            attempts.append(_attempt(make, sizes, out / name / f"attempt{len(attempts)}"))
    best = min(attempts, key=_apart)
    _keep(out / name, attempts.index(best), len(attempts))
    return best | {"apart_in_attempts": [round(_apart(each), 3) for each in attempts]}


def _attempt(make: Callable[[bool, Sizes], Step], sizes: Sizes, folder: Path) -> dict[str, Any]:
    """Both steps timed in turn, then the flawed one recorded."""
    steps = {kind: make(kind == "flawed", sizes) for kind in ("flawed", "remedied")}
    first = {kind: _warmed(step) for kind, step in steps.items()}
    counts = {kind: _count(step, sizes) for kind, step in steps.items()}
    blocks: dict[str, list[float]] = {kind: [] for kind in steps}
    for _ in range(sizes.of(BLOCKS, 1)):
        for kind, step in steps.items():
            blocks[kind].append(_block_ms(step, counts[kind], sizes))
    del steps["remedied"]
    session = recorded(steps["flawed"])
    session.save(folder)
    return {"first_loss": first, **_gain(blocks)} | findings_of(session, folder)


def _apart(row: dict[str, Any]) -> float:
    """The factor between the flawed step as it was timed and as it was recorded."""
    ratio: float = row["flawed_ms"] / row["recorded_step_ms"]
    return max(ratio, 1 / ratio)


def _keep(folder: Path, kept: int, attempts: int) -> None:
    """Leave the files of one attempt."""
    for path in (folder / f"attempt{kept}").iterdir():
        path.replace(folder / path.name)
    for attempt in range(attempts):
        shutil.rmtree(folder / f"attempt{attempt}")


def measure_tuned(name: str, sizes: Sizes, out: Path) -> dict[str, Any]:
    """What a tuned step takes, and its findings."""
    with _alone(out):
        step = TUNED[name](sizes)
        _warmed(step)
        count = _count(step, sizes)
        blocks = [_block_ms(step, count, sizes) for _ in range(sizes.of(3, 1))]
        session = recorded(step)
    session.save(out / name)
    return {"name": name, "step_ms": statistics.median(blocks)} | findings_of(session, out / name)


def measure_remedied(name: str, sizes: Sizes, out: Path) -> dict[str, Any]:
    """What a tuned step gains by what is recommended of it, and its findings."""

    def make(flawed: bool, sizes: Sizes) -> Step:
        return (TUNED if flawed else REMEDIED)[name](sizes)

    row = compare(name, make, sizes, out)
    return {"name": name, "step_ms": row["flawed_ms"], **row}


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Wait until no other process of this run uses this GPU; others import torch meanwhile."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    with (out / f"gpu{gpu}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        measure_on(gpu)
        try:
            yield
            if torch.cuda.is_available():
                torch.cuda.synchronize()
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # workers of a data loader hold the file, too


def _check_losses(name: str, first: dict[str, float]) -> None:
    """Both variants compute the same, unless the catalogue says why they do not."""
    flawed, remedied = first["flawed"], first["remedied"]
    is_same = math.isclose(flawed, remedied, rel_tol=0.02, abs_tol=1e-3)
    if not (math.isfinite(flawed) and (is_same or FLAWS[name].differs)):
        raise ValueError(f"the flawed step returned {flawed}, the remedied one {remedied}")


def _warmed(step: Step) -> float:
    """Run until the usual state is reached; return the first result."""
    with step.within():
        first = float(step.run())
        for _ in range(step.warm_up - 1):
            step.run()
    return first


def _count(step: Step, sizes: Sizes) -> int:
    """So many steps make a block: whole cycles, for about BLOCK_S."""
    trial_ms = _block_ms(step, step.cycle, sizes)
    wanted = sizes.of(BLOCK_S * 1e3 / trial_ms, 0.1)
    return step.cycle * math.ceil(min(60, wanted) / step.cycle)


def _block_ms(step: Step, count: int, sizes: Sizes) -> float:
    """Milliseconds a step of a block takes, by events of the device."""
    with step.within():
        if sizes.device == "cpu":
            began = time.perf_counter()
            for _ in range(count):
                step.run()
            return 1e3 * (time.perf_counter() - began) / count
        step.run()
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            step.run()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / count


def _gain(blocks: dict[str, list[float]]) -> dict[str, Any]:
    """Medians of both, and the median of the differences of neighbours with its interval."""
    pairs = list(zip(blocks["flawed"], blocks["remedied"], strict=True))
    differences = [flawed - remedied for flawed, remedied in pairs]
    chance = random.Random(0)
    medians = sorted(
        statistics.median(chance.choices(differences, k=len(differences))) for _ in range(1000)
    )
    return {
        "flawed_ms": statistics.median(blocks["flawed"]),
        "remedied_ms": statistics.median(blocks["remedied"]),
        "gain_ms": statistics.median(differences),
        "gain_interval_ms": [medians[25], medians[974]],
    }


def recorded(step: Step) -> profiler_ext.Session:
    """Record some steps."""
    schedule = torch.profiler.schedule(wait=UNRECORDED, warmup=2, active=RECORDED)
    with step.within(), profiler_ext.profile(schedule=schedule, values=True) as prof:
        for _ in range(UNRECORDED + 2 + RECORDED):
            step.run()
            prof.step()
    session: profiler_ext.Session = prof.session
    return session


def findings_of(session: profiler_ext.Session, folder: Path) -> dict[str, Any]:
    """The findings of a session, which are kept in its folder, too."""
    answer = json.loads(answer_text(findings_answer(session)))
    (folder / "findings.json").write_text(json.dumps(answer, indent=1))
    findings = [
        {
            "rule": each["rule"],
            "file": Path(each["location"]["file"] or "").name,
            "line": each["location"]["line"],
            "saving_ms": each["est_saving_ns"] / 1e6,
            "saving_per": each["saving_per"],
            "summary": each["summary"],
        }
        for each in answer["findings"]
    ]
    recorded_ms = (answer["unprofiled_step_ns"] or answer["step_ns"]) / 1e6
    return {"recorded_step_ms": recorded_ms, "findings": findings}


def found_again(row: dict[str, Any], out: Path) -> dict[str, Any]:
    """A row with the findings that the rules of today have in its recorded session."""
    folder = out / row["name"]
    return row if "failure" in row else row | findings_of(profiler_ext.load(folder), folder)


Measure = Callable[[str, Sizes, Path], dict[str, Any]]


def main(name: str, measuring: Measure, is_tiny: bool, out: Path) -> None:
    """Write the row of one flaw, or of its failure."""
    began = time.perf_counter()
    profiler_ext.enable()
    try:
        row = measuring(name, sizes_of(is_tiny), out)
    except Exception as error:
        traceback.print_exc()
        row = {"name": name, "failure": f"{type(error).__name__}: {error}"[:300]}
    row["took_s"] = time.perf_counter() - began
    (out / f"{name}.json").write_text(json.dumps(row, indent=1))
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    sys.stdout.flush()
