"""How long a step takes whose values are compared, beside torch's own modes on the same step.

A GPT trains eagerly. Each round times a plain step, one under ``FlopCounterMode``, one under
``DebugMode`` with hashes of all tensors, which are torch's, and one that is compared, from its
begin to the numbers on the CPU; the device is waited for at both ends. The first round, which
loads kernels, does not count.

    python -m benchmarks.compared_values [--cpu] [--rounds N]

Prints the median of each, and its ratio to the plain step.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch.utils._debug_mode import DebugMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.cases import LARGE, Sizes, gpt, training
from profiler_ext.isolation.guard import Guard
from profiler_ext.values.comparing import Comparison


def _compared(step: Callable[[], object]) -> None:
    comparison = Comparison(0, Guard(strict=True))
    comparison.begin()
    try:
        step()
        comparison.end()
    finally:
        comparison.leave()


def _counted(step: Callable[[], object]) -> None:
    with FlopCounterMode(display=False):
        step()


def _hashed(step: Callable[[], object]) -> None:
    with DebugMode() as mode, DebugMode.log_tensor_hashes():
        step()
    mode.debug_string()


WAYS: dict[str, Callable[[Callable[[], object]], object]] = {
    "plain": lambda step: step(),
    "FlopCounterMode": _counted,
    "DebugMode with hashes": _hashed,
    "values compared": _compared,
}


def _took_ms(way: Callable[[Callable[[], object]], object], step: Callable[[], object]) -> float:
    _wait()
    began = time.perf_counter()
    way(step)
    _wait()
    return 1e3 * (time.perf_counter() - began)


def _wait() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def main() -> None:
    """Time the ways in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", action="store_true", help="a smaller GPT, on the CPU")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    sizes = Sizes("cpu", 4, 256, 128, is_tiny=False) if options.cpu else LARGE
    step = training(*gpt(sizes, 8, torch.float32 if options.cpu else torch.bfloat16))
    for way in WAYS.values():
        way(step)
    took_ms: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(options.rounds):
        for name, way in WAYS.items():
            took_ms[name].append(_took_ms(way, step))
    plain_ms = statistics.median(took_ms["plain"])
    for name, own in took_ms.items():
        median_ms = statistics.median(own)
        print(f"{name:24}{median_ms:10.1f} ms{median_ms / plain_ms:8.1f} times")


if __name__ == "__main__":
    main()
