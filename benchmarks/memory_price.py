"""What it costs to record memory: a recorded step with its memory, without, and one of neither.

A GPT and a ResNet-50, eager, at batches at which the GPU sets the pace: what a step takes the CPU
until it is issued is printed beside what it takes, and is to be well below it. All is in one
process. A round takes each side twice, forwards and backwards, and begins with another side each
time; ratios are within a round, their 95% interval is that of the sign test (``pairs.py``). A side
is a block of steps that follow each other as in training, with no wait for the device but at both
ends, then a block that nothing records. Printed are

- ``a recorded step``: with memory / without, and each / a step that nothing records;
- ``a step after it``: the same of the steps between recordings;
- ``peak``: the allocator's, in bytes, by side, and by how much they differ;
- ``losses``: of fresh models of one seed, how many of six differ from a run that nothing records,
  with memory recorded, and of another such run.

    python -m benchmarks.memory_price [--device cuda] [--model gpt resnet] [--seconds 120]
                                      [--compiled] [--tiny]

Where the CPU sets the pace, a small ``--batch`` shows the price there. Kineto leaves CUPTI attached
after the first recording, so all sides have it; ``TEARDOWN_CUPTI=1`` detaches it.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from importlib import import_module
from itertools import count
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import profiler_ext
from benchmarks.figures import Figure, add_json, figure_of, tell, write
from benchmarks.models import GPT, channels_last
from benchmarks.pairs import compared
from benchmarks.steps import synchronize

MEMORY, RECORDED, NOTHING = "memory", "recorded", "nothing"
SIDES = (MEMORY, RECORDED, NOTHING)
NOT_COUNTED = 3
"""The first steps of a block: buffers are made, caches are filled."""
_LOSSES = 6

LossStep = Callable[[], torch.Tensor]
Taken = dict[str, float]


def training_step(name: str, options: argparse.Namespace) -> LossStep:
    """Make a training step that returns its loss.

    Args:
        name: ``gpt`` or ``resnet``.
        options: the command line's.
    """
    torch.manual_seed(0)
    model, loss = (_gpt if name == "gpt" else _resnet)(options)
    run = torch.compile(model) if options.compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast(options.device, torch.bfloat16):
            value = loss(run)
        value.backward()
        optimizer.step()
        return value.detach()

    return step


Made = tuple[nn.Module, Callable[[Any], torch.Tensor]]


def _gpt(options: argparse.Namespace) -> Made:
    width, layers, length = (64, 2, 32) if options.tiny else (1024, 12, 1024)
    batch = options.batch or (2 if options.tiny else 24)
    model = GPT(width, layers).to(options.device)
    ids = torch.randint(0, 50304, (batch, length), device=options.device)
    return model, lambda run: functional.cross_entropy(run(ids).flatten(0, 1), ids.flatten())


def _resnet(options: argparse.Namespace) -> Made:
    size, batch = (64, options.batch or 2) if options.tiny else (224, options.batch or 384)
    model = channels_last(import_module("torchvision.models").resnet50()).to(options.device)
    x = channels_last_images(batch, size, options.device)
    y = torch.randint(0, 1000, (batch,), device=options.device)
    return model, lambda run: functional.cross_entropy(run(x), y)


def channels_last_images(batch: int, size: int, device: str) -> torch.Tensor:
    """Make random images whose channels are last."""
    return torch.randn(batch, 3, size, size, device=device).to(memory_format=torch.channels_last)


def recording(side: str) -> Any:
    """Return what records a side, as a context."""
    return nullcontext() if side == NOTHING else profiler_ext.profile(memory=side == MEMORY)


def block(step: LossStep, steps: int, end_step: Callable[[], None]) -> Taken:
    """Run steps as training does; return what one takes, and takes the CPU until it is issued.

    Args:
        step: what runs.
        steps: so many are counted, then three more, each alone, for the CPU's time.
        end_step: is called after each.
    """

    def steps_until_issued(number: int) -> None:
        for _ in range(number):
            step()
            end_step()

    steps_until_issued(NOT_COUNTED)
    synchronize()
    began = time.perf_counter()
    steps_until_issued(steps)
    synchronize()
    took = (time.perf_counter() - began) / steps
    issued = []
    for _ in range(3):
        began = time.perf_counter()
        steps_until_issued(1)
        issued.append(time.perf_counter() - began)
        synchronize()
    return {"wall": took, "issued": median(issued)}


def take(step: LossStep, side: str, steps: int) -> Taken:
    """Run a block as a side records it, and one after it that nothing records.

    Args:
        step: what runs.
        side: one of ``SIDES``.
        steps: so many in each block.
    """
    gc.collect()  # what the side before left
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with recording(side) as prof:
        taken = block(step, steps, (lambda: None) if prof is None else prof.step)
    if torch.cuda.is_available():
        taken["peak"] = torch.cuda.max_memory_allocated()
    del prof
    gc.collect()
    after = block(step, steps, lambda: None)
    return taken | {"after": after["wall"]}


def rounds(step: LossStep, steps: int, ends: float) -> Iterator[dict[str, list[Taken]]]:
    """Yield what each side took in a round, each of them twice.

    Args:
        step: what runs.
        steps: so many in a block.
        ends: no round begins after it but the first, on the clock of ``time.monotonic``.
    """
    for number in count():
        at = number % len(SIDES)
        order = SIDES[at:] + SIDES[:at]
        taken = defaultdict(list)
        for side in (*order, *reversed(order)):
            taken[side].append(take(step, side, steps))
        yield dict(taken)
        if time.monotonic() > ends:
            return


def figures_of(name: str, found: Sequence[dict[str, list[Taken]]]) -> Iterator[Figure]:
    """Yield the figures of some rounds.

    Args:
        name: the model's.
        found: what :func:`rounds` yielded.
    """
    for side in SIDES:
        for what, title in (("wall", "a step"), ("issued", "a step until issued, by the CPU")):
            values = [1e3 * each[what] for own in found for each in own[side]]
            yield figure_of(f"{name}: {title}, {_SIDES[side]}", values, "ms")
    for first, second in ((MEMORY, RECORDED), (MEMORY, NOTHING), (RECORDED, NOTHING)):
        yield _ratio(f"{name}: a step, {_SIDES[first]} / {_SIDES[second]}", found, first, second)
    for first, second in ((MEMORY, RECORDED), (MEMORY, NOTHING)):
        title = f"{name}: a step after it, {_SIDES[first]} / {_SIDES[second]}"
        yield _ratio(title, found, first, second, "after")
    yield from _peaks(name, found)


_SIDES = {MEMORY: "with memory", RECORDED: "without", NOTHING: "unrecorded"}


def _ratio(
    title: str,
    found: Sequence[dict[str, list[Taken]]],
    first: str,
    second: str,
    what: str = "wall",
) -> Figure:
    sums = [[sum(each[what] for each in own[side]) for side in (first, second)] for own in found]
    return compared(title, [one / other for one, other in sums])


def _peaks(name: str, found: Sequence[dict[str, list[Taken]]]) -> Iterator[Figure]:
    peaks = {side: [t["peak"] for own in found for t in own[side] if "peak" in t] for side in SIDES}
    if not peaks[NOTHING]:
        return
    for side in SIDES:
        yield figure_of(f"{name}: peak, {_SIDES[side]}", peaks[side], "bytes")
    off = [most - least for most, least in zip(peaks[MEMORY], peaks[NOTHING], strict=True)]
    yield figure_of(f"{name}: peak, with memory - unrecorded", off, "bytes")


def losses(name: str, side: str, options: argparse.Namespace) -> list[float]:
    """Return the losses of a fresh model.

    Args:
        name: the model's.
        side: one of ``SIDES``.
        options: the command line's.
    """
    step = training_step(name, options)
    with recording(side) as prof:
        found = []
        for _ in range(_LOSSES):
            found.append(step())
            if prof is not None:
                prof.step()
    return [float(each) for each in found]


def different(name: str, options: argparse.Namespace) -> list[Figure]:
    """Compare losses with those of a run that nothing records.

    Args:
        name: the model's.
        options: the command line's.
    """
    plain, again, recorded = (losses(name, side, options) for side in (NOTHING, NOTHING, MEMORY))
    title = f"{name}: losses of {_LOSSES} that differ from a run unrecorded"
    return [
        Figure(f"{title}, with memory", _differ(plain, recorded), ""),
        Figure(f"{title}, of another such run", _differ(plain, again), ""),
    ]


def _differ(one: Sequence[float], other: Sequence[float]) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


def measured(name: str, options: argparse.Namespace) -> list[Figure]:
    """Measure a model.

    Args:
        name: ``gpt`` or ``resnet``.
        options: the command line's.
    """
    step = training_step(name, options)
    for side in SIDES:  # what is imported and compiled once
        take(step, side, 1)
    found = list(rounds(step, options.steps, time.monotonic() + options.seconds))
    del step
    gc.collect()
    figures = [*figures_of(name, found), *different(name, options)]
    tell(figures)
    return figures


def main() -> None:
    """Measure and print."""
    options = parsed()
    profiler_ext.enable()
    figures = [figure for name in options.model for figure in measured(name, options)]
    write(figures, options.json)


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", nargs="+", choices=("gpt", "resnet"), default=["gpt", "resnet"])
    parser.add_argument("--seconds", type=float, default=120.0, help="for each model")
    parser.add_argument("--steps", type=int, default=10, help="in a block")
    parser.add_argument("--batch", type=int, help="24 and 384, if not given")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="sizes for the CPU, to see it run")
    add_json(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
