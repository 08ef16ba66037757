"""How long a step that waits for its CPU takes before something was recorded, and after it.

    python -m benchmarks.afterwards [--tiny] [--rounds 5] [--only torch ours ...]

Each row is a process of its own. What ours has that torch.profiler alone has not stands in rows
between the two: a schedule with a warm-up, the operators of all threads, lines that are watched.
Each once more with ``TEARDOWN_CUPTI=1``, with which Kineto detaches CUPTI as a recording ends.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import profiler_ext
from benchmarks.cases import GPT, LARGE, TINY, Sizes, inputs, training
from benchmarks.steps import Step, recorded, synchronize
from profiler_ext.torch_compat import process

_WARM_UP = 8
_STEPS = 20
_RECORDED = 5

After = Callable[[Step, Sizes], object]


def took_ms(step: Step, rounds: int) -> str:
    """Return milliseconds a step in each round, the device awaited at its end alone."""
    times = []
    for _ in range(rounds):
        synchronize()
        begun = time.perf_counter()
        for _ in range(_STEPS):
            step()
        synchronize()
        times.append(1e3 * (time.perf_counter() - begun) / _STEPS)
    return f"{statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f})"


def _by_torch(*, are_all: bool = False, wait: int = 0) -> After:
    """Return what records with torch.profiler alone."""

    def record(step: Step, _sizes: Sizes) -> None:
        schedule = torch.profiler.schedule(wait=wait, warmup=2, active=_RECORDED)
        options: dict[str, Any] = {"schedule": schedule} if wait else {}
        config = process.threads_config(are_all=are_all)
        with torch.profiler.profile(experimental_config=config, **options) as prof:
            for _ in range((wait + 2 if wait else 0) + _RECORDED):
                step()
                prof.step()

    return record


def _by_us(step: Step, _sizes: Sizes) -> None:
    profiler_ext.enable()
    recorded(step, _RECORDED)


_ROWS: dict[str, tuple[After, dict[str, str]]] = {
    "torch": (_by_torch(), {}),
    "torch, scheduled": (_by_torch(wait=6), {}),
    "torch, all threads": (_by_torch(are_all=True), {}),
    "ours, no lines": (_by_us, {"PROFILER_EXT_LINES": "0"}),
    "ours": (_by_us, {}),
}


def tried(name: str, sizes: Sizes, rounds: int) -> str:
    """Return a row: what a step takes before something was done, after it and after it again."""
    step = training(GPT(sizes).to(sizes.device, torch.bfloat16), inputs(sizes, 8, torch.bfloat16))
    for _ in range(_WARM_UP):
        step()
    times = [took_ms(step, rounds)]
    for _ in range(2):
        _ROWS[name][0](step, sizes)
        times.append(took_ms(step, rounds))
    detached = os.environ.get("TEARDOWN_CUPTI", "")
    return f"| {name} | {detached} | {' | '.join(times)} |"


def main() -> None:
    """Try each, in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="small sizes, on the CPU")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=_ROWS, default=tuple(_ROWS))
    parser.add_argument("--part", choices=_ROWS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part is not None:
        print(tried(options.part, TINY if options.tiny else LARGE, options.rounds))
        return
    print("| what was done | TEARDOWN_CUPTI | before, ms a step | after | after another |")
    print("| --- | --- | ---: | ---: | ---: |", flush=True)
    own = [sys.executable, "-m", "benchmarks.afterwards", "--rounds", str(options.rounds)]
    for detached in ({}, {"TEARDOWN_CUPTI": "1"}):
        for name in options.only:
            environment = {**os.environ, **_ROWS[name][1], **detached}
            part = [*own, "--part", name, *["--tiny"] * options.tiny]
            subprocess.run(part, env=environment, check=True)


if __name__ == "__main__":
    main()
