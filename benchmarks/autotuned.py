"""The trial of autotuning: what it measured, beside what its choice and the library's take.

Linear layers of several shapes are trained twice in one process: with the kernels that
``max_autotune`` chooses, and with the library's alone. Autotuning tells through Inductor's feedback
what it measured of each choice; a profile of both tells what the chosen and the library's kernel
take within a step. If what it measured told which choice is bad, a rule could.

    python -m benchmarks.autotuned [--tiny] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._inductor import select_algorithm

import profiler_ext
from benchmarks.steps import Step, recorded

_SHAPES = (
    *((rows, wide, out) for rows in (16, 512, 8192) for wide, out in ((768, 2304), (3072, 768))),
    *((8192, 4096, 4096), (300, 1000, 1000), (8192, 768, 50257), (64, 12288, 768)),
)
_TINY = ((16, 32, 64),)


class AutotuneLog:
    """What autotuning measured, product by product."""

    def __init__(self) -> None:
        self.measured: dict[str, dict[str, float]] = {}

    def __call__(self, timings: dict[Any, float], name: str, inputs: Any, *_: Any) -> None:
        """Note the milliseconds of each choice; the fastest one is taken."""
        shape = " ".join(str([int(size) for size in node.get_size()]) for node in inputs)
        named = {str(choice.name): float(ms) for choice, ms in timings.items()}
        self.measured[f"{name} {shape}"] = named


def step_of(shape: tuple[int, int, int], device: str, **options: Any) -> Step:
    """Return a training step of one compiled layer between two pointwise ops."""
    rows, wide, out = shape
    torch._dynamo.reset()
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layer = nn.Linear(wide, out, bias=False).to(device, dtype)
    x = torch.randn(rows, wide, device=device, dtype=dtype, requires_grad=True)
    compiled = torch.compile(lambda v: layer(v * 1.5).relu().float().mean(), options=options)

    def step() -> None:
        compiled(x).backward()
        layer.weight.grad = x.grad = None

    return step


def products(step: Step) -> list[dict[str, Any]]:
    """Return the products of a usual step: what ran them, and the milliseconds that it took."""
    for _ in range(3):
        step()
    analysis = recorded(step, 5).analysis
    launches, found = analysis.launches, []
    for at, graph in enumerate(analysis.recording.graphs):
        of_graph = launches.graph.filled(-1) == at
        for site in graph.call_sites:
            chosen = of_graph & (launches.call_site.filled(-1) == site.ordinal)
            if "mm" in site.kernel and chosen.any():
                ms = float(launches.duration_ns[chosen].sum()) / 1e6 / len(analysis.steps)
                found.append({"backward": graph.is_backward, "kernel": site.kernel, "ms": ms})
    return found


def main() -> int:
    """Print one line of JSON a shape, and write all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="one small shape, on the CPU")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = "cpu" if options.tiny else "cuda"
    profiler_ext.enable()
    rows = []
    for shape in _TINY if options.tiny else _SHAPES:
        autotune_log = AutotuneLog()
        select_algorithm.add_feedback_saver(autotune_log)
        tuned = products(step_of(shape, device, max_autotune=True))
        select_algorithm.clear_feedback_savers()
        library = products(step_of(shape, device))
        row = {
            "shape": shape,
            "measured": autotune_log.measured,
            "tuned": tuned,
            "library": library,
        }
        rows.append(row)
        print(json.dumps(row), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
