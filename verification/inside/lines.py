"""The lines and instructions of random models' kernels: which of them are on a node.

Kernels are generated as the oracle does; no GPU is needed, and triton is.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from argparse import Namespace
from pathlib import Path

import torch

from profiler_ext.inside.source_lines import SourceLines
from profiler_ext.isolation.guard import Guard
from verification.inside.assembling import tables
from verification.inside.counting import Count
from verification.oracle.compiling import compile_model
from verification.oracle.models import draw

__all__ = ["count_lines", "count_model"]


def count_lines(options: Namespace) -> int:
    """Count the lines of random models' kernels, and print the figures.

    Returns:
        0 when no line and no instruction is a gap, else 1.
    """
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
