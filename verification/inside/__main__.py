"""The command line: ``python -m verification.inside --kernels 5000 --assemble 300``."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

import torch

from profiler_ext.inside.source_lines import SourceLines
from profiler_ext.isolation.guard import Guard
from verification.inside.assembling import tables
from verification.inside.counting import Count
from verification.oracle.compiling import compile_model
from verification.oracle.models import draw


def main(arguments: list[str] | None = None) -> int:
    """Count the lines of random models' kernels, and print the figures.

    Returns:
        0 when no line and no instruction is a gap, else 1.
    """
    parser = argparse.ArgumentParser(prog="python -m verification.inside", description=__doc__)
    parser.add_argument("--kernels", type=int, default=500, help="stop after so many")
    parser.add_argument("--assemble", type=int, default=0, help="compile every n-th kernel")
    parser.add_argument("--seed", type=int, default=0, help="the first model's")
    parser.add_argument("--seconds", type=int, default=480, help="stop after so long")
    parser.add_argument("--json", default="inside.json", help="where the details go")
    options = parser.parse_args(arguments)
    count, started = Count(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for seed in itertools.count(options.seed):
            count_model(count, seed, Path(folder), options.assemble)
            is_late = time.monotonic() - started > options.seconds
            if is_late or sum(count.kernels.values()) >= options.kernels:
                break
            Path(options.json).write_text(json.dumps(count.as_json(), indent=1))
    Path(options.json).write_text(json.dumps(count.as_json(), indent=1))
    print(count.summary())
    print(f"torch {torch.__version__}, seeds to {seed}, {time.monotonic() - started:.0f} s")
    return int(bool(count.gaps or count.failures))


def count_model(count: Count, seed: int, folder: Path, every: int) -> None:
    """Count the kernels of one model; every n-th is compiled for a GPU, for its instructions."""
    guard = Guard()
    lines = SourceLines(guard)
    with lines.observed():
        compiled = compile_model(draw(seed, "triton"), folder, "triton", limit_s=90)
    if compiled.error is not None and not compiled.refused:
        count.failures.append(f"{seed}: {compiled.error}")
    count.failures.extend(f"{seed}: {failure}" for failure in guard.failures)
    for source in lines.sources:
        count.add(source)
        count.compare(source, compiled.graphs)
        if every and sum(count.kernels.values()) % every == 0:
            try:
                for table in tables(source, folder):
                    count.add_table(source, table)
            except Exception as error:  # a random kernel that Triton does not compile
                count.tables[type(error).__name__] += 1


if __name__ == "__main__":
    sys.exit(main())
