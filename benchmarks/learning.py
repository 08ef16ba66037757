"""What it takes to learn the kernels of library calls in CUDA graphs, and what that leaves behind.

    python -m benchmarks.learning [--only gpt cnn cnn_tried] [--tiny] [--json FILE]

Each row is a process of its own, and those of one model share Inductor's cache, empty at first:
the first one learns, the others find in the store what it learnt. A launch is timed before
anything is compiled and after the warm-up, each process beside itself; then steps are recorded, and
each launch's kernel, node, line and gap is compared with those of the process that learnt. The
models stand side by side, each on cores of its own, and so share the device.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.cases import LARGE, TINY, gpt, training
from benchmarks.steps import Step, recorded, synchronize
from profiler_ext.profiling import switch

_WARM_UP = 10
_LAUNCHES = 500
_ROUNDS = 15
_RECORDED = 3
_WAYS: dict[str, Callable[[], object]] = {
    "enable(), nothing learnt yet": switch.enable,
    "capture off": lambda: None,
    "enable(), learnt before": switch.enable,
    "PROFILER_EXT=1, learnt before": lambda: switch.enable(learn=False),
}
_COMPARED_COLUMNS = ["launch", "node", "file", "line", "gap"]


class Stage(nn.Module):
    """Two convolutions with their norms."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return features of half of the size."""
        x = nn.functional.gelu(self.first_norm(nn.functional.max_pool2d(self.first(x), 2)))
        return nn.functional.gelu(self.second_norm(self.second(x)))


class CNN(nn.Module):
    """A small CNN in half precision, its norms in float."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.Sequential(Stage(8, 64), Stage(64, 128), Stage(128, 256))
        self.half()
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.float()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        return self.stages(images).float().square().mean()


def _gpt(device: str) -> Step:
    sizes = replace(LARGE if device == "cuda" else TINY, layers=4, tokens=128)
    model, x = gpt(sizes, 1, torch.bfloat16)
    return training(model, x, forward=torch.compile(model, mode="reduce-overhead"))


def _cnn(device: str) -> Step:
    torch._inductor.config.max_autotune_conv_backends = "ATEN"
    torch._inductor.config.max_autotune_gemm_backends = "ATEN"
    layout = torch.channels_last
    model = CNN().to(device).to(memory_format=layout)  # type: ignore[call-overload]
    images = torch.randn(64, 8, 32, 32, device=device, dtype=torch.half).to(memory_format=layout)
    return training(model, images, forward=torch.compile(model, mode="max-autotune"))


def _tried(device: str) -> Step:
    torch.backends.cudnn.benchmark = True
    return _cnn(device)


_MODELS: dict[str, Callable[[str], Step]] = {"gpt": _gpt, "cnn": _cnn, "cnn_tried": _tried}


def _counted() -> list[object]:
    """Return a list that grows by each profiler of torch's that begins from here on."""
    begun, start = list[object](), torch.profiler.profile.start

    def counting(self: torch.profiler.profile) -> None:
        begun.append(self)
        start(self)

    torch.profiler.profile.start = counting  # type: ignore[method-assign]
    return begun


def _launch_us(device: str) -> float:
    """Return microseconds that one launch of a tiny kernel takes, the least of many rounds."""
    y, took_us = torch.ones(64, device=device), []
    for _ in range(_ROUNDS):
        synchronize()
        begun = time.perf_counter_ns()
        for _ in range(_LAUNCHES):
            y.add_(1)
        took_us.append((time.perf_counter_ns() - begun) / _LAUNCHES / 1e3)
    return min(took_us)


def _step_ms(step: Step) -> float:
    took_ms = []
    for _ in range(10 * _ROUNDS):
        synchronize()
        begun = time.perf_counter_ns()
        step()
        synchronize()
        took_ms.append((time.perf_counter_ns() - begun) / 1e6)
    return statistics.median(took_ms)


def _compared_rows(step: Step) -> dict[str, Any]:
    """Return what is said of each launch of a recorded step, and by which evidence."""
    session = recorded(step, _RECORDED)
    launches, shares = session.launches(), session.attribution()
    names = shares.launch.map(launches.set_index("launch").name)
    rows = (
        shares[_COMPARED_COLUMNS]
        .assign(name=names)
        .astype(object)
        .where(shares[_COMPARED_COLUMNS].notna(), None)
    )
    by = launches.groupby("evidence").duration_ns.sum()
    gaps = launches[launches.gap.notna()].groupby("gap").duration_ns.sum()
    part = {str(k): round(int(v) / int(launches.duration_ns.sum()), 4) for k, v in by.items()}
    lost = {str(k): round(int(v) / int(launches.duration_ns.sum()), 4) for k, v in gaps.items()}
    return {"rows": rows.astype(str).to_numpy().tolist(), "evidence": part, "gaps": lost}


def tried(model: str, way: str, device: str) -> dict[str, Any]:
    """Return what a process measures of itself.

    Args:
        model: which model trains.
        way: how capture is there.
        device: where it runs.
    """
    begun = _counted()
    _WAYS[way]()
    torch.manual_seed(0)
    before_us = _launch_us(device)
    step = _MODELS[model](device)
    for _ in range(_WARM_UP):
        step()
    took = {"profilers": len(begun), "before_us": before_us, "after_us": _launch_us(device)}
    took["step_ms"] = _step_ms(step)
    return took | (_compared_rows(step) if switch.current() else {})


def _part(model: str, way: str, cores: str, is_tiny: bool, cache: str) -> dict[str, Any]:
    """Run one process, and return what it says."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
    own = [sys.executable, "-W", "ignore", "-m", "benchmarks.learning", "--part", model, way]
    pinned = ["taskset", "-c", cores] if cores else []
    done = subprocess.run(
        [*pinned, *own, *["--tiny"] * is_tiny], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        return {"failed": done.stderr[-2000:]}
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _row(model: str, way: str, measured: dict[str, Any], first: dict[str, Any]) -> str:
    if "failed" in measured:
        return f"| {model} | {way} | failed: {measured['failed']} |"
    times = f"{measured['before_us']:.2f} | {measured['after_us']:.2f} | {measured['step_ms']:.3f}"
    same = str(measured["rows"] == first.get("rows")) if "rows" in measured else ""
    rows, evidence = len(measured.get("rows", ())), measured.get("evidence")
    message = f"{rows} | {same} | {evidence} | {measured.get('gaps')}"
    return f"| {model} | {way} | {measured['profilers']} | {times} | {message} |"


def _cores(at: int, of: int) -> str:
    """Return the cores of one of several models; none where there are too few."""
    every = os.cpu_count() or 1
    each = every // of
    return f"{at * each}-{(at + 1) * each - 1}" if each > 1 else ""


def main() -> None:
    """Try each model, in processes of its own, the ways one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="small sizes, on the CPU")
    parser.add_argument("--only", nargs="+", choices=_MODELS, default=tuple(_MODELS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part is not None:
        model, way = options.part
        print(json.dumps(tried(model, way, "cpu" if options.tiny else "cuda")))
        return
    heads = ("model", "process", "profilers begun", "a launch before, us", "after", "a step, ms")
    print(f"| {' | '.join((*heads, 'rows', 'as the first', 'evidence', 'gaps'))} |", flush=True)
    every = _every(options.only, options.tiny)
    if options.json is not None:
        options.json.write_text(json.dumps(every))


def _every(models: list[str], is_tiny: bool) -> dict[str, dict[str, Any]]:
    """Run all, and print a row of each when its way is over."""
    every: dict[str, dict[str, Any]] = {model: {} for model in models}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(models)) as pool:
        for way in _WAYS:
            asked = {
                model: pool.submit(
                    _part, model, way, _cores(at, len(models)), is_tiny, f"{folder}/{model}"
                )
                for at, model in enumerate(models)
            }
            for model, answer in asked.items():
                every[model][way] = measured = answer.result()
                print(_row(model, way, measured, next(iter(every[model].values()))), flush=True)
    return every


if __name__ == "__main__":
    main()
