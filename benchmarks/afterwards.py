"""How long a step that waits for its CPU takes before something was recorded, and after it.

    python -m benchmarks.afterwards [--tiny] [--turns 3] [--only torch ours ...]

Each row is of processes of its own, one a turn. The CPU's own speed, which a host of many users
changes by half within seconds, is told by a loop of Python's beside each look: what a step and a
launch take more is told as it is and beside that loop. With ``TEARDOWN_CUPTI=1``
Kineto detaches CUPTI as a recording ends.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

import profiler_ext
from benchmarks.cases import GPT, LARGE, TINY, Sizes, inputs, training
from benchmarks.figures import figure_of
from benchmarks.steps import Step, recorded, synchronize

_WARM_UP = 8
_RECORDED = 5
_ROUNDS = 6
_STEPS = 15
_LAUNCHES = 500
_ITERATIONS = 100_000

After = Callable[[Step, Sizes], object]
Look = dict[str, float]


def _nothing(_step: Step, _sizes: Sizes) -> None:
    pass


def _by_torch(step: Step, _sizes: Sizes) -> None:
    with torch.profiler.profile():
        for _ in range(_RECORDED):
            step()


def _by_us(step: Step, _sizes: Sizes) -> None:
    profiler_ext.enable()
    recorded(step, _RECORDED)


@dataclass(frozen=True)
class Row:
    """What is done to a process between two looks, and the environment that it is done in."""

    record: After
    environment: dict[str, str]


_DETACHED = {"TEARDOWN_CUPTI": "1"}
_ROWS = {
    "nothing": Row(_nothing, {}),
    "torch": Row(_by_torch, {}),
    "ours": Row(_by_us, {}),
    "torch, TEARDOWN_CUPTI=1": Row(_by_torch, _DETACHED),
    "ours, TEARDOWN_CUPTI=1": Row(_by_us, _DETACHED),
}


def _took_us(work: Callable[[], object], times: int) -> float:
    """Return what the CPU takes for a piece of work that is begun so many times."""
    synchronize()
    started = time.perf_counter()
    for _ in range(times):
        work()
    taken = time.perf_counter() - started
    synchronize()
    return 1e6 * taken / times


def _loop() -> None:
    for _ in range(_ITERATIONS):
        pass


def look(step: Step, device: str) -> Look:
    """Return what the CPU takes for a step, a launch and a loop, medians of some looks in turn."""
    small = torch.ones(64, device=device)
    pieces = {
        "step": (step, _STEPS),
        "launch": (lambda: small.add_(1), _LAUNCHES),
        "loop": (_loop, 2),
    }
    taken = {name: [_took_us(*piece)] for name, piece in pieces.items()}
    for _ in range(_ROUNDS - 1):
        for name, piece in pieces.items():
            taken[name].append(_took_us(*piece))
    return {name: median(all_us) for name, all_us in taken.items()}


def tried(name: str, sizes: Sizes) -> tuple[Look, Look]:
    """Return what was seen before something was done, and after it."""
    step = training(GPT(sizes).to(sizes.device, torch.bfloat16), inputs(sizes, 8, torch.bfloat16))
    for _ in range(_WARM_UP):
        step()
    before = look(step, sizes.device)
    _ROWS[name].record(step, sizes)
    return before, look(step, sizes.device)


def _in_a_process(name: str, *, is_tiny: bool) -> tuple[Look, Look]:
    """Return what a process of its own saw."""
    command = [sys.executable, "-m", "benchmarks.afterwards", "--part", name]
    done = subprocess.run(
        [*command, *["--tiny"] * is_tiny],
        env={**os.environ, **_ROWS[name].environment},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    before, after = json.loads(done.stdout.splitlines()[-1])
    return before, after


def _ratio(before: Look, after: Look, piece: str, baseline: str | None = None) -> float:
    """Return how much longer a piece takes afterwards, beside the loop if asked."""
    ratio = after[piece] / before[piece]
    return ratio if baseline is None else ratio / (after[baseline] / before[baseline])


def tell(name: str, looks: Sequence[tuple[Look, Look]]) -> None:
    """Print a row's figures: medians over its processes, the least and the greatest."""
    for piece in ("step", "launch"):
        for baseline in (None, "loop"):
            ratios = [_ratio(before, after, piece, baseline) for before, after in looks]
            words = f"{name}: {piece}{' beside a loop' if baseline else ''}, after / before"
            print(figure_of(words, ratios, "x"), flush=True)


def main() -> None:
    """Try each, in processes of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="small sizes, on the CPU")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=_ROWS, default=tuple(_ROWS))
    parser.add_argument("--part", choices=_ROWS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part is not None:
        print(json.dumps(tried(options.part, TINY if options.tiny else LARGE)))
        return
    looks: dict[str, list[tuple[Look, Look]]] = {name: [] for name in options.only}
    for _ in range(options.turns):
        for name in options.only:
            looks[name].append(_in_a_process(name, is_tiny=options.tiny))
            tell(name, looks[name])


if __name__ == "__main__":
    main()
