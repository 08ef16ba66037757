"""The programs that ``long_runs.py`` runs for long, and what they say of themselves.

Each trains for a number of steps, and says at equal distances what its process holds: one line of
JSON each, on standard error, after a garbage collection.

    profiler-ext run --every 1000 -m benchmarks.long_programs steps --steps 100000
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.held_memory import sized

SAMPLE = "held "
_SLOW_S = 0.05
_FUNCTIONS = 20
Step = Callable[[int], None]


def training(model: Callable[[torch.Tensor], torch.Tensor], parameters: Any) -> Step:
    """Return a step that trains a model."""
    kept = list(parameters)
    optimizer = torch.optim.SGD(kept, lr=1e-3)
    x = torch.randn(4, 16, device=kept[0].device)

    def step(_: int) -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def layers() -> torch.nn.Module:
    """Return a small model."""
    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 16))


def steps(options: argparse.Namespace) -> Step:
    """A compiled model, and a slow step now and then."""
    model = layers().to(options.device)
    step = training(torch.compile(model, mode=options.mode), model.parameters())

    def at_times_slow(number: int) -> None:
        step(number)
        if number % 1000 == 999:
            time.sleep(_SLOW_S)

    return at_times_slow


def recompiles(options: argparse.Namespace) -> Step:
    """A model that lives and dies with its graphs, again and again; of some the caches know."""
    made: list[Step] = []

    def step(number: int) -> None:
        if number % options.each == 0:
            made.clear()
            made.append(_fresh(number // options.each % _FUNCTIONS))
        made[0](number)

    return step


def _fresh(number: int) -> Step:
    """Return a step of a model that is made anew, and of a function with a constant of its own."""
    model = layers()
    torch.compiler.reset()

    def scaled(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = model(x) * (1 + number / 1e6)
        return out

    return training(torch.compile(scaled), model.parameters())


def shapes(options: argparse.Namespace) -> Step:
    """A compiled model whose input changes its size, and a code path that changes with the step."""
    model = layers()

    def scaled(x: torch.Tensor, by: int) -> torch.Tensor:
        out: torch.Tensor = model(x) * by
        return out

    torch._dynamo.config.recompile_limit = 1 << 20
    torch._dynamo.config.accumulated_recompile_limit = 1 << 20
    compiled = torch.compile(scaled, dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(number: int) -> None:
        x = torch.randn(4 + number // options.each, 16)
        compiled(x, 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def loaders(options: argparse.Namespace) -> Step:
    """A compiled model whose batches come from workers that are forked for each epoch."""
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    compiled, epoch = torch.compile(model), list[Iterator[Any]]()

    def step(number: int) -> None:
        if number % options.each == 0:
            rows: Any = torch.randn(4 * options.each, 16)
            epoch[:] = [iter(torch.utils.data.DataLoader(rows, batch_size=4, num_workers=2))]
        compiled(next(epoch[0])).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


class Doubled(torch.autograd.Function):
    """A function of the program's own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return gradients[0] * 2


def eager(_: argparse.Namespace) -> Step:
    """An eager model with autograd functions, and hooks and modules that are made anew."""
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(4, 16)

    def step(_: int) -> None:
        own: Any = type("Own", (Doubled,), {})
        passing = torch.nn.Identity()
        hook = passing.register_full_backward_hook(lambda *_: None)
        out = own.apply(passing(model(x)))
        out.register_hook(lambda gradient: gradient)
        out.square().mean().backward()
        hook.remove()
        optimizer.step()
        optimizer.zero_grad()

    return step


def autograd(_: argparse.Namespace) -> Step:
    """A compiled model under compiled autograd: its calls have numbers of their own each step."""
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, compiled = torch.randn(4, 16), torch.compile(model)
    torch._dynamo.config.compiled_autograd = True

    def step(_: int) -> None:
        compiled(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


_TRAININGS = (steps, recompiles, shapes, loaders, eager, autograd)
PROGRAMS = {"slow": steps} | {each.__name__: each for each in _TRAININGS}


def held(number: int, folders: list[Path]) -> dict[str, Any]:
    """Return what this process holds after a step, and what is in some folders."""
    gc.collect()
    objects = gc.get_objects()
    ours = Counter(
        type(each).__name__
        for each in objects
        if str(type(each).__module__).partition(".")[0] == "profiler_ext"
    )
    graphs = sum(type(each) is torch.fx.Graph for each in objects)
    return {
        "step": number,
        "resident": resident_bytes(),
        "objects": len(objects),
        "ours": ours.total(),
        "by type": dict(ours.most_common(12)),
        "fx graphs": graphs,
        "capture": _captured_bytes(),
        "on the GPU": torch.cuda.memory_reserved() if torch.cuda.is_available() else 0,
        "threads": threading.active_count(),
        "disk": sum(size for each in folders for size in sizes(each)),
        "files": sum(1 for each in folders for _ in sizes(each)),
        "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
    }


def sizes(folder: Path) -> Iterator[int]:
    """Yield the sizes of the files in a folder."""
    return (each.stat().st_size for each in folder.rglob("*") if each.is_file())


def resident_bytes() -> int:
    """Return the memory of this process that is resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _captured_bytes() -> int:
    """Return all that can be reached from capture."""
    if "profiler_ext.profiling.switch" not in sys.modules:
        return 0
    capture = sys.modules["profiler_ext.profiling.switch"].current()
    return 0 if capture is None else sized([capture])


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--each", type=int, default=20, help="steps of one graph, or one epoch")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--device", default="cpu", help="of the programs `steps` and `slow`")
    parser.add_argument("--mode", help="of their compile")
    parser.add_argument("--folder", type=Path, action="append", default=[], help="what it fills")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    step = PROGRAMS[options.program](options)
    distance = max(options.steps // options.samples, 1)
    for number in range(options.steps):
        step(number)
        if number % distance == distance - 1:
            print(
                SAMPLE + json.dumps(held(number + 1, options.folder)), file=sys.stderr, flush=True
            )


if __name__ == "__main__":
    main()
