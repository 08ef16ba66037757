"""One trial in one process: recorded, then the program and the edited one in turn."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import statistics
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import torch

import profiler_ext

from .judging import as_claim, chosen, claims_of
from .programs import Claim, Step, Trial

__all__ = ["measure", "run_tiny"]

WARM_UP = 2
UNRECORDED = 5
"""Steps before the recorded ones, with no profiler: without them no time is claimed."""
TIMED = 5


def measure(trial: Trial, out: Path) -> None:
    """Write the row of a trial; of several ranks the first one writes it."""
    rank = int(os.environ.get("RANK", "0"))
    name = f"{trial.name}_rank{rank}" if rank else trial.name
    row: dict[str, Any] = {"name": trial.name}
    # One process at a time uses the device; ranks wait for each other
    device = (out / f"device{rank}.lock").open("w")
    try:
        with _ranks(trial, rank):
            _record(trial, out / name, device)
            row["claims"] = claims_of(out / name)
            claim = chosen(trial, row["claims"])
            if claim is not None:
                fcntl.flock(device, fcntl.LOCK_EX)
                row |= _in_turn(trial, as_claim(claim))
    except Exception as error:
        traceback.print_exc()
        row["failure"] = f"{type(error).__name__}: {error}"[:300]
    (out / f"{name}.json").write_text(json.dumps(row, indent=1))


@contextmanager
def _ranks(trial: Trial, rank: int) -> Iterator[None]:
    if trial.ranks == 1:
        yield
        return
    if torch.cuda.device_count() < trial.ranks:
        raise RuntimeError(f"it needs {trial.ranks} GPUs")
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    yield
    torch.distributed.destroy_process_group()


def run_tiny(trial: Trial) -> dict[str, Any]:
    """Run both forms of a trial on the CPU, and what judges a recording of the first.

    The allocator of the CPU keeps no peak, so no bytes are compared: the losses are.
    """
    profiler_ext.enable()
    try:
        step = trial.make(None, True)
        losses = [[float(step()) for _ in range(2)]]
        with profiler_ext.profile(memory=True) as prof:
            step()
        found = prof.session.memory_recommendations
        stand_in = Claim(trial.blocks or None, (("chunks", 2), ("larger batch", 4)))
        step = trial.make(stand_in, True)
        losses.append([float(step()) for _ in range(2)])
    except Exception as error:
        traceback.print_exc()
        return {"name": trial.name, "failure": f"{type(error).__name__}: {error}"[:300]}
    finally:
        profiler_ext.disable()
        torch.compiler.reset()
    return {"name": trial.name, "losses": losses, "rules": [each.rule for each in found.ranked]}


def _forget() -> None:
    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()


def _record(trial: Trial, folder: Path, device: IO[str]) -> None:
    """Record a session; what the profiler does after the last step needs no device."""
    profiler_ext.enable()
    options: dict[str, Any] = {"record_shapes": True} if trial.shapes else {}
    fcntl.flock(device, fcntl.LOCK_EX)
    step = _made(trial, None)
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    before = max(UNRECORDED, trial.steps)
    schedule = torch.profiler.schedule(wait=before, warmup=1, active=trial.steps)
    with profiler_ext.profile(memory=True, schedule=schedule, **options) as prof:
        for at in range(before + 1 + trial.steps):
            step()
            if at < before + trial.steps:
                prof.step()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        fcntl.flock(device, fcntl.LOCK_UN)
    prof.session.save(folder)
    profiler_ext.disable()
    del step, prof
    _forget()


def _made(trial: Trial, claim: Claim | None) -> Step:
    with torch.device("cuda"):
        return trial.make(claim, False)


def _in_turn(trial: Trial, claim: Claim) -> dict[str, Any]:
    """A B A B: the peak, and the least of the medians of steps."""
    sides: dict[str, list[dict[str, int]]] = {"as_it_is": [], "edited": []}
    for _ in range(2):
        for side, edit in (("as_it_is", None), ("edited", claim)):
            sides[side].append(_measured(trial, edit))
    return {
        side: {
            "peak_bytes": max(each["peak_bytes"] for each in runs),
            "step_ns": min(each["step_ns"] for each in runs),
            "runs": runs,
        }
        for side, runs in sides.items()
    }


def _measured(trial: Trial, claim: Claim | None) -> dict[str, int]:
    if trial.environment and claim is not None:
        for value in dict(trial.environment).values():
            torch.cuda.memory._set_allocator_settings(value)
    held_bytes = int(torch.cuda.memory_allocated())
    step = _made(trial, claim)
    rounds = max(WARM_UP, trial.steps)
    for _ in range(rounds):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    took_ns = _timed(step, max(TIMED, trial.steps))
    peak = torch.cuda.max_memory_reserved if trial.reserves else torch.cuda.max_memory_allocated
    measured = {
        "peak_bytes": int(peak()),
        "step_ns": round(statistics.median(took_ns)),
        "held_before_bytes": held_bytes,
    }
    del step
    if trial.environment:
        torch.cuda.memory._set_allocator_settings("expandable_segments:False")
    _forget()
    return measured


def _timed(step: Step, count: int) -> list[float]:
    event: Any = torch.cuda.Event  # not typed
    marks = [event(enable_timing=True) for _ in range(count + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return [1e6 * first.elapsed_time(second) for first, second in pairwise(marks)]
