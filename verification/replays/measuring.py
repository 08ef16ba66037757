"""One program in one process: recorded as it launches, and as it replays."""

from __future__ import annotations

import json
import traceback
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

import profiler_ext
from profiler_ext.attribution.analysis import attribute
from profiler_ext.kineto.names import is_graph_launch
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.recording import Recording
from profiler_ext.sessions.merging import load
from verification.flaws.programs.program import Sizes

from .judging import Kernel, Part, judge
from .programs import BRANCHES, PROGRAMS, SkippedError, Step
from .simulating import simulated, with_launches

__all__ = ["judged", "measure"]

STEPS = 3


def measure(name: str, is_tiny: bool, out: Path) -> None:
    """Write the row of a program, and its sessions."""
    row: dict[str, Any] = {"name": name}
    sizes = Sizes("cpu" if is_tiny else "cuda", is_tiny)
    try:
        with ExitStack() as stack:
            if is_tiny:
                stack.enter_context(simulated())
            profiler_ext.enable(cpu_events=False) if is_tiny else profiler_ext.enable()
            program = PROGRAMS[name](sizes)
            for side in ("launched", "replayed"):
                _recorded(next(program), is_tiny, out / f"{name}.{side}")
        row["verdict"] = judged(name, out)
    except SkippedError as error:
        row["skipped"] = str(error)
    except Exception as error:
        traceback.print_exc()
        row["failure"] = f"{type(error).__name__}: {error}"[:300]
    (out / f"{name}.json").write_text(json.dumps(row, indent=1))


def _recorded(step: Step, is_tiny: bool, folder: Path) -> None:
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    with profiler_ext.profile() as prof:
        for at in range(STEPS):
            step()
            if at < STEPS - 1:
                prof.step()
        torch.cuda.synchronize()
    if is_tiny:
        _save_simulated(prof.session.recording, folder)
    else:
        prof.session.save(folder)


def _save_simulated(recording: Recording, folder: Path) -> None:
    from profiler_ext.kineto.recording import write_recording

    folder.mkdir(parents=True, exist_ok=True)
    write_recording(folder / "session.pt.trace.json.gz", with_launches(recording))


def judged(name: str, out: Path) -> dict[str, Any]:
    """Return the verdict on the sessions of a program, by the rules of today."""
    launched, replayed = (
        kernels_of(attribute(load(out / f"{name}.{side}").recording))
        for side in ("launched", "replayed")
    )
    return judge(launched[-1], replayed, name in BRANCHES)


def kernels_of(analysis: Analysis) -> list[list[Kernel]]:
    """Return what each step ran, in order of time."""
    events, launches, shares = analysis.recording.trace.events, analysis.launches, analysis.shares
    correlations = events.correlation.filled(-1).tolist()
    replays = {correlations[row] for row in range(len(events)) if is_graph_launch(events.name[row])}
    parts: dict[int, set[Part]] = defaultdict(set)
    for launch, at in zip(shares.launch.tolist(), shares.place.tolist(), strict=True):
        place = analysis.places[at]
        line = None if place.line is None else f"{place.file}:{place.line}"
        parts[launch].add(Part(line, place.module, str(place.phase)))
    steps: dict[int, list[Kernel]] = defaultdict(list)
    for launch in launches.start_ns.argsort(kind="stable").tolist():
        shape = events.launch_shape[int(launches.event[launch])]
        kernel = Kernel(
            launches.name[launch].partition(" (")[0],
            shape.partition("],[")[0],
            int(launches.duration_ns[launch]),
            frozenset(parts[launch]),
            launches.gap[launch],
            int(launches.correlation.filled(-1)[launch]) in replays,
        )
        steps[int(launches.step.filled(-1)[launch])].append(kernel)
    return [steps[at] for at in sorted(steps) if at >= 0]
