"""Owns one comparison: a session as a Perfetto trace, beside the same session as Chrome JSON.

Both are written in one run from the same analysis, each in a process of its own, so that the
ratios hold on a busy machine too. Run: ``python -m benchmarks.perfetto_export``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.tiling import tile
from profiler_ext import load
from profiler_ext.exporters.chrome_trace import export_chrome_trace
from profiler_ext.exporters.perfetto import export_perfetto
from profiler_ext.records import Analysis

FIXTURE = Path(__file__).parents[1] / "tests" / "fixtures" / "h200" / "llama.pt.trace.json.gz"


class Cost(NamedTuple):
    """What writing one format took."""

    seconds: float
    added_megabytes: float
    file_megabytes: float


def main() -> None:
    """Print one line for each format, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, default=FIXTURE)
    parser.add_argument("--events", type=int, default=300_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tiled = Path(folder) / "tiled.pt.trace.json"
        tile(chosen.trace, tiled, chosen.events)
        (analysis,) = load(tiled).analyses
        perfetto = _cost(export_perfetto, analysis, Path(folder) / "trace.pftrace")
        chrome = _cost(export_chrome_trace, analysis, Path(folder) / "trace.json")
    print(f"{len(analysis.recording.trace.raw)} events, {len(analysis.launches)} launches")
    for name, cost in (("perfetto", perfetto), ("chrome json", chrome)):
        print(f"{name:12}{cost[0]:8.1f} s {cost[1]:8.0f} MB added {cost[2]:8.1f} MB file")
    ratios = (mine / other for mine, other in zip(perfetto, chrome, strict=True))
    print("perfetto / chrome json: time {:.2f}, memory {:.2f}, size {:.2f}".format(*ratios))


def _cost(write: Callable[[Analysis, Path], Path], analysis: Analysis, path: Path) -> Cost:
    # Forked, so that each starts with the same analysis and its own peak of memory.
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    process = context.Process(target=_measure, args=(write, analysis, path, answers))
    process.start()
    process.join()
    seconds, added = answers.get()
    return Cost(seconds, added, path.stat().st_size / 1e6)


def _measure(
    write: Callable[[Analysis, Path], Path], analysis: Analysis, path: Path, answers: Any
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    write(analysis, path)
    seconds = time.perf_counter() - started
    answers.put((seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3))


if __name__ == "__main__":
    main()
