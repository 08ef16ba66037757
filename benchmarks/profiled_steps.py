"""What recording compiled training steps with us takes, beside torch.profiler alone.

Both record the same compiled model in one process, by turns whose order is drawn: what a recorded
step takes by the wall clock, the device's work included, and what the end of the recording takes
(torch's export to a file on one side, a session on the other). A ``bare`` turn has no profiler.

    python -m benchmarks.profiled_steps [--device cuda] [--model gpt|llama] [--batch 8] [--turns 10]

A small batch leaves the GPU waiting for Python, a large one Python for the GPU.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.nn import functional

import profiler_ext
from benchmarks.capture_cost import compare
from benchmarks.eager_lines import model_of
from benchmarks.steps import Step, synchronize

NOT_COUNTED = 3
"""The first steps of a turn: the profiler's buffers are made, caches are filled."""

Timed = Callable[[Step, int], float]


def compiled_step(options: argparse.Namespace) -> Step:
    """Make a training step whose forward, backward and optimizer are compiled.

    Args:
        options: the command line's.
    """
    torch.manual_seed(0)
    model = model_of(options.model, options.width, options.layers).to(options.device)
    compiled = torch.compile(model, mode=options.mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, 50304, (options.batch, options.length), device=options.device)

    def step() -> None:
        with torch.autocast(options.device, torch.bfloat16):
            given = compiled(ids)
            logits = given if isinstance(given, torch.Tensor) else given.logits
            loss = functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def timed(step: Step, steps: int) -> float:
    """Return the seconds of a step, the first ones not counted.

    Args:
        step: what runs.
        steps: so many are counted.
    """
    for _ in range(NOT_COUNTED):
        step()
    synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    synchronize()
    return (time.perf_counter() - began) / steps


@contextmanager
def none() -> Iterator[None]:
    """Record nothing."""
    yield


@contextmanager
def of_torch() -> Iterator[None]:
    """Record by torch.profiler alone, and write its trace."""
    with torch.profiler.profile() as prof:
        yield
    with tempfile.TemporaryDirectory() as folder:
        prof.export_chrome_trace(str(Path(folder) / "trace.json"))


@contextmanager
def of_ours() -> Iterator[None]:
    """Record by us, and keep the session."""
    with profiler_ext.profile() as prof:
        yield
    with tempfile.TemporaryDirectory() as folder:
        prof.session.save(folder)


SIDES = {"bare": none, "torch": of_torch, "ours": of_ours}


def turn(side: str, step: Step, steps: int) -> tuple[float, float]:
    """Record some steps; return the seconds of a step, and of the end of the recording.

    Args:
        side: who records.
        step: what runs.
        steps: so many are counted.
    """
    gc.collect()  # what the turn before left
    with SIDES[side]():
        taken = timed(step, steps)
        ended = time.process_time()
    return taken, time.process_time() - ended


def main() -> None:
    """Measure and print."""
    options = parsed()
    profiler_ext.enable()
    step = compiled_step(options)
    for side in SIDES:
        turn(side, step, 2)
    took: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
    for number in range(options.turns):
        for side in random.Random(number).sample(list(SIDES), len(SIDES)):
            took[side].append(turn(side, step, options.steps))
    show(options, took)


def show(options: argparse.Namespace, took: dict[str, list[tuple[float, float]]]) -> None:
    """Print each side beside the other of the same turn.

    Args:
        options: the command line's.
        took: of each side, turn by turn, what a step took and the end.
    """
    size = f"{options.width}x{options.layers}, batch {options.batch} of {options.length}"
    print(f"{options.model} {size}, {options.mode or 'default'}, {options.device}")
    steps = {side: [of_step for of_step, _ in turns] for side, turns in took.items()}
    print(f"a step without a profiler: {statistics.median(steps['bare']) * 1e3:.2f} ms")
    compare("a recorded step", list(zip(steps["ours"], steps["torch"], strict=True)))
    ends = {side: [end for _, end in turns] for side, turns in took.items()}
    compare("the end, processor time", list(zip(ends["ours"], ends["torch"], strict=True)))


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--mode")
    parser.add_argument("--model", choices=("gpt", "llama"), default="gpt")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    main()
