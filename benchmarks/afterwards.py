"""How long a step that waits for its CPU takes before a recording, and in the same process after.

    python -m benchmarks.afterwards [--tiny] [--rounds 5]

Each row is a process of its own: torch.profiler alone, and ours; each once more with
``TEARDOWN_CUPTI=1``, with which Kineto detaches CUPTI as a recording ends.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

import torch

import profiler_ext
from benchmarks.cases import GPT, LARGE, TINY, Sizes, inputs, training
from benchmarks.steps import Step, recorded, synchronize

_WARM_UP = 8
_STEPS = 20
_PROFILERS = ("torch", "ours")


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


def profiled_by_torch(step: Step) -> None:
    """Record some steps with torch.profiler alone."""
    with torch.profiler.profile() as prof:
        for _ in range(5):
            step()
            prof.step()


def tried(profiler: str, sizes: Sizes, rounds: int) -> str:
    """Return a row: what a step takes before a recording, after one and after another."""
    step = training(GPT(sizes).to(sizes.device, torch.bfloat16), inputs(sizes, 8, torch.bfloat16))
    for _ in range(_WARM_UP):
        step()
    times = [took_ms(step, rounds)]
    for _ in range(2):
        profiled_by_torch(step) if profiler == "torch" else recorded(step, 5)
        times.append(took_ms(step, rounds))
    detached = os.environ.get("TEARDOWN_CUPTI", "")
    return f"| {profiler} | {detached} | {' | '.join(times)} |"


def main() -> None:
    """Try both, in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="small sizes, on the CPU")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part", choices=_PROFILERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part is not None:
        if options.part == "ours":
            profiler_ext.enable()
        print(tried(options.part, TINY if options.tiny else LARGE, options.rounds))
        return
    print("| profiler | TEARDOWN_CUPTI | before, ms a step | after | after another |")
    print("| --- | --- | ---: | ---: | ---: |", flush=True)
    for detached in ({}, {"TEARDOWN_CUPTI": "1"}):
        for profiler in _PROFILERS:
            own = [sys.executable, "-m", "benchmarks.afterwards", *sys.argv[1:]]
            subprocess.run([*own, "--part", profiler], env={**os.environ, **detached}, check=True)


if __name__ == "__main__":
    main()
