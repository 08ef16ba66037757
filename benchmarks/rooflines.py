"""Bytes and operations as we estimate them, beside what ncu counts in the same kernels.

Each of five models is compiled and profiled by us; then the same program runs under ncu, which
counts in the kernels that took most time. The two runs launch the same kernels in the same order,
so a kernel is known by its name and by how many of that name came before it.

    python -m benchmarks.rooflines --out DIR [--models gpt llama t5 resnet vit] [--kernels 12]

It needs a GPU whose counters ncu may read. `--dry` tries everything but ncu, on the CPU too.
DIR/table.md has one row for each kernel, DIR/units.md what products of each dtype run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks.recordings import environment
from benchmarks.roofline_counts import Row, known_metrics, ncu
from benchmarks.roofline_models import MODELS
from benchmarks.roofline_rows import estimated, joined, most_expensive, write_table
from benchmarks.roofline_units import units
from benchmarks.steps import Step

OURSELVES = (sys.executable, "-m", "benchmarks.rooflines")
WARM_UP = 3


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--kernels", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=280)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--part", choices=("compare", "compile", "profile", "measure", "units"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.part == "profile":
        profile(options.models[0], options)
    elif options.part == "compile":
        compiled(options.models[0], options)
    elif options.part == "measure":
        measure(options.models[0], options)
    elif options.part == "units":
        units(options)
    else:
        compare(options)


def device_of(options: argparse.Namespace) -> str:
    """Return where the models run."""
    return "cpu" if options.dry else "cuda"


def step_of(name: str, options: argparse.Namespace) -> Step:
    """Return a training step of a model, the same in each process."""
    torch.manual_seed(0)
    return MODELS[name](device_of(options), options.dry)


def compiled(name: str, options: argparse.Namespace) -> None:
    """Run a step under capture, so that the cache has its graphs with our records."""
    import profiler_ext

    profiler_ext.enable()
    step_of(name, options)()


def profile(name: str, options: argparse.Namespace) -> None:
    """Profile a step of a model; write what we estimate of each kernel, in order."""
    import profiler_ext

    profiler_ext.enable()
    step = step_of(name, options)
    schedule = torch.profiler.schedule(wait=0, warmup=WARM_UP, active=1, repeat=1)
    with profiler_ext.profile(schedule=schedule) as recording:
        for _ in range(WARM_UP + 1):
            step()
            recording.step()
    session = recording.session
    session.save(options.out / f"{name}.session")
    rows = list(estimated(session.analysis))
    (options.out / f"{name}.estimates.json").write_text(json.dumps(rows))
    print(f"{name}: {len(rows)} kernels", flush=True)


def measure(name: str, options: argparse.Namespace) -> None:
    """Run the same steps, the last one between the marks that ncu waits for."""
    step = step_of(name, options)
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    step()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def compare(options: argparse.Namespace) -> None:
    """Profile and measure each model, while there is time, and write the tables."""
    until = time.monotonic() + options.seconds
    metrics = [] if options.dry else known_metrics()
    if not options.dry:
        run(["--part", "units"], options, 60)
        compile_all(options, options.seconds / 3)
    for at, name in enumerate(options.models):
        left = (until - time.monotonic()) / (len(options.models) - at)
        if left < 15:
            print(f"{name}: no time left")
            continue
        began = time.monotonic()
        if run(["--part", "profile", "--models", name], options, left + 30) and not options.dry:
            wanted = most_expensive(estimates_of(name, options), options.kernels)
            budget = max(20.0, left + 30 - (time.monotonic() - began))
            counted(name, wanted, metrics, options, budget)
        write_table(all_rows(options), options)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def estimates_of(name: str, options: argparse.Namespace) -> list[Row]:
    """Return what we say of each kernel of a model; nothing where it was not profiled."""
    path = options.out / f"{name}.estimates.json"
    return json.loads(path.read_text()) if path.exists() else []


def all_rows(options: argparse.Namespace) -> list[Row]:
    """Return the rows of all models measured so far: ncu may write its log a moment later."""
    rows: list[Row] = []
    for name in options.models:
        kernels = estimates_of(name, options)
        rows += joined(name, kernels, most_expensive(kernels, options.kernels), options)
    return rows


def compile_all(options: argparse.Namespace, seconds: float) -> None:
    """Fill the compiler's cache with all models, side by side."""
    until = time.monotonic() + seconds
    own = [
        sys.executable,
        "-m",
        "benchmarks.rooflines",
        "--out",
        str(options.out),
        "--part",
        "compile",
        "--models",
    ]
    started = [subprocess.Popen([*own, name], env=own_environment()) for name in options.models]
    for process in started:
        try:
            process.wait(max(1.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
    print(f"compiled after {seconds - until + time.monotonic():.0f} s", flush=True)


def own_environment() -> dict[str, str]:
    """Return the environment of a part: our sources, one cache for all."""
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "/tmp/rooflines_cache")
    return {**os.environ, **environment(), "TORCHINDUCTOR_CACHE_DIR": cache}


def run(arguments: list[str], options: argparse.Namespace, seconds: float) -> bool:
    """Run a part in a process of its own, and say whether it came to its end."""
    command = [*OURSELVES, "--out", str(options.out), *arguments]
    return ran(command + ["--dry"] * options.dry, seconds)


def ran(command: list[str], seconds: float) -> bool:
    """Run a command with our sources, and say whether it came to its end."""
    try:
        done = subprocess.run(command, env=own_environment(), timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        print(f"more than {seconds:.0f} s: {' '.join(command[-6:])}", flush=True)
        return False
    return done.returncode == 0


def counted(
    name: str, wanted: set[str], metrics: list[str], options: argparse.Namespace, seconds: float
) -> None:
    """Let ncu count in all kernels of a step that are called as the wanted ones are."""
    names = "|".join(sorted(map(re.escape, wanted)))
    log = options.out / f"{name}.ncu.csv"
    command = [ncu(), "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)]
    command += ["--print-kernel-base", "function", "--kernel-name-base", "function"]
    command += ["-k", f"regex:^({names})$", "--metrics", ",".join(metrics)]
    command += ["--profile-from-start", "off", "--clock-control", "none", "-f"]
    command += ["--target-processes", "application-only", "--replay-mode", "kernel"]
    own = [
        sys.executable,
        "-m",
        "benchmarks.rooflines",
        "--out",
        str(options.out),
        "--part",
        "measure",
    ]
    ran([*command, *own, "--models", name], seconds)


if __name__ == "__main__":
    main()
