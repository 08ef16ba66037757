"""One program in one process: recorded, with the allocator's own count of each step."""

from __future__ import annotations

import json
import os
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

import profiler_ext

from .judging import row_of
from .programs import Program, Step

__all__ = ["measure"]

WARM_UP = 4
STEPS = 3
_DEADLINE = timedelta(seconds=60)
Counts = dict[str, dict[str, Any]]


def measure(program: Program, tiny: bool, out: Path, name: str) -> None:
    """Write the row of a program, or of one of its ranks."""
    row: dict[str, Any] = {"name": name}
    try:
        if program.ranks > 1:
            _join(tiny)
        row |= _recorded(program, tiny, out / name)
        row |= row_of(out / name)
    except Exception as error:
        traceback.print_exc()
        row["failure"] = f"{type(error).__name__}: {error}"[:300].replace("\n", " ")
    (out / f"{name}.json").write_text(json.dumps(row, indent=1))
    if program.ranks > 1:
        os._exit(0)  # the row is written; nothing waits for the other ranks


def _join(tiny: bool) -> None:
    if not tiny:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("gloo" if tiny else "nccl", timeout=_DEADLINE)


def _recorded(program: Program, tiny: bool, folder: Path) -> dict[str, Any]:
    profiler_ext.enable()
    step = program.make(tiny)
    for _ in range(WARM_UP):
        step()
    before, counted = _counted(step), []
    with profiler_ext.profile(memory=True) as prof:
        for at in range(STEPS):
            counted.append(_counted(step))
            if at < STEPS - 1:
                prof.step()
    prof.session.save(folder)
    return {"before": before, "counted": counted}


def _counted(step: Step) -> Counts:
    """Run a step; return what each GPU's allocator counted."""
    every = range(torch.cuda.device_count())
    devices = [each for each in every if torch.cuda.memory_allocated(each)]
    reserved = {device: torch.cuda.memory_reserved(device) for device in devices}
    for device in devices:
        torch.cuda.reset_peak_memory_stats(device)
    step()
    for device in devices:
        torch.cuda.synchronize(device)
    return {
        str(device): {
            "peak_bytes": int(torch.cuda.max_memory_allocated(device)),
            "reserved_bytes": int(torch.cuda.max_memory_reserved(device)),
            "is_steady": reserved[device]
            == torch.cuda.max_memory_reserved(device)
            == torch.cuda.memory_reserved(device),
        }
        for device in devices
    }
