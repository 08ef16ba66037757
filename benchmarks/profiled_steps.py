"""What a compiled training step takes with us: while nothing is recorded, and while something is.

All of it is in one process, by turns whose order is swapped each time (``benchmarks/pairs.py``):

- ``recordings``: by us and by torch.profiler alone; what a step takes, and what the end of a
  recording takes (torch's export to a file on one side, a session that is saved on the other);
  what ours adds to a step is told far better by ``benchmarks/recorded_steps.py``, and what memory
  adds by ``benchmarks/memory_price.py``;
- ``blocks``: short blocks of steps that nothing records, with capture on and off.

A step is told by the wall clock with the device's work included, its middle and the least of a
block, and by the processor's. Each option of these names is the seconds that it may take.

    python -m benchmarks.profiled_steps [--device cuda] [--model gpt|llama] [--blocks 60]

A small batch leaves the GPU waiting for Python, a large one Python for the GPU.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median

import torch
from torch.nn import functional

import profiler_ext
from benchmarks.eager_lines import model_of
from benchmarks.figures import Figure, add_json, figure_of, tell, write
from benchmarks.pairs import WITH, compared, turns
from benchmarks.steps import Step, synchronize
from profiler_ext.profiling import switch

NOT_COUNTED = 3
"""The first steps of a recording or block: buffers are made, caches are filled."""

Taken = dict[str, float]


def compiled_step(options: argparse.Namespace) -> Step:
    """Make a training step whose forward and backward are compiled.

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


def timed(step: Step, steps: int) -> Taken:
    """Return what the middle one of some steps took, in seconds, the first ones not counted.

    Processor time is that of all threads, until a step is issued: who waits for a GPU spins.

    Args:
        step: what runs.
        steps: so many are counted.
    """
    walls, processors = [], []
    for _ in range(NOT_COUNTED + steps):
        began, processor = time.perf_counter(), time.process_time()
        step()
        processors.append(time.process_time() - processor)
        synchronize()
        walls.append(time.perf_counter() - began)
    walls, processors = walls[NOT_COUNTED:], processors[NOT_COUNTED:]
    return {"wall": median(walls), "least": min(walls), "processor": median(processors)}


@contextmanager
def of_torch() -> Iterator[None]:
    """Record by torch.profiler alone, and write its trace."""
    with torch.profiler.profile() as prof:
        yield
    with tempfile.TemporaryDirectory() as folder:
        prof.export_chrome_trace(str(Path(folder) / "trace.json"))


@contextmanager
def of_ours(lines: bool) -> Iterator[None]:
    """Record by us, and keep the session.

    Args:
        lines: whether the lines of the program are watched.
    """
    with profiler_ext.profile(lines=lines) as prof:
        yield
    with tempfile.TemporaryDirectory() as folder:
        prof.session.save(folder)


def recorded(recording: AbstractContextManager[None], step: Step, steps: int) -> Taken:
    """Record some steps; return what one of them took, and what the end of the recording.

    Args:
        recording: who records.
        step: what runs.
        steps: so many are counted.
    """
    gc.collect()  # what the turn before left
    with recording:
        taken = timed(step, steps)
        ended = time.process_time()
    return taken | {"end": time.process_time() - ended}


def recordings(step: Step, options: argparse.Namespace, lines: str) -> list[Figure]:
    """Compare recordings by us with those of torch.profiler alone.

    Args:
        step: what runs.
        options: the command line's.
        lines: whether ours watch lines, ``on`` or ``off``.
    """
    sides: dict[bool, Callable[[], AbstractContextManager[None]]]
    sides = {True: lambda: of_ours(lines=lines == "on"), False: of_torch}
    ends: dict[bool, list[float]] = {True: [], False: []}

    def take(side: str) -> Taken:
        taken = recorded(sides[side == WITH](), step, options.steps)
        ends[side == WITH].append(taken.pop("end"))
        return taken

    for side in sides.values():
        recorded(side(), step, 2)
    ratios = list(turns(take, time.monotonic() + options.recordings))
    return [
        *_ratios(f"a recorded step, ours with lines {lines} / torch.profiler alone", ratios),
        figure_of("the end of a recording, ours: processor", ends[True], "s"),
        figure_of("the end of a recording, torch's: processor", ends[False], "s"),
    ]


def blocks(step: Step, options: argparse.Namespace) -> list[Figure]:
    """Compare steps with capture on and off, which nothing records.

    Args:
        step: what runs.
        options: the command line's.
    """
    taken: list[Taken] = []

    capture = switch.current()
    assert capture is not None

    def take(side: str) -> Taken:
        capture.remove()  # what `disable` does, but for forgetting the graphs that run here
        if side == WITH:
            capture.install()
        taken.append(timed(step, options.block))
        return taken[-1]

    ratios = list(turns(take, time.monotonic() + options.blocks))
    middles = ([each[what] * 1e3 for each in taken] for what in taken[0])
    return [
        *(
            figure_of(f"a step: {what}", each, "ms")
            for what, each in zip(taken[0], middles, strict=True)
        ),
        *_ratios("a step that nothing records, capture on / off", ratios),
    ]


def _ratios(name: str, ratios: list[Taken]) -> list[Figure]:
    return [compared(f"{name}: {what}", [each[what] for each in ratios]) for what in ratios[0]]


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the options of :func:`compiled_step`.

    Args:
        parser: who takes them.
    """
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--mode")
    parser.add_argument("--model", choices=("gpt", "llama"), default="gpt")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)


def cpu_model(options: argparse.Namespace) -> str:
    """Say what is trained.

    Args:
        options: the command line's.
    """
    size = f"{options.width}x{options.layers}, batch {options.batch} of {options.length}"
    return f"{options.model} {size}, {options.mode or 'default'}, {options.device}"


def main() -> None:
    """Measure and print."""
    options = parsed()
    profiler_ext.enable()
    step = compiled_step(options)
    for _ in range(NOT_COUNTED):
        step()
    print(cpu_model(options), flush=True)
    figures: list[Figure] = []
    for part in _parts(step, options):
        tell(part)
        figures += part
    write(figures, options.json)


def _parts(step: Step, options: argparse.Namespace) -> Iterator[list[Figure]]:
    for lines in options.lines or ["on"]:
        yield recordings(step, options, lines)
    yield blocks(step, options)


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_model(parser)
    parser.add_argument("--recordings", type=float, default=60.0, help="seconds")
    parser.add_argument("--blocks", type=float, default=30.0, help="seconds")
    parser.add_argument("--steps", type=int, default=15, help="in a recording")
    parser.add_argument("--block", type=int, default=10, help="steps in a block")
    parser.add_argument("--lines", choices=("on", "off"), action="append", help="on, if not given")
    add_json(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
