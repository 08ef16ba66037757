"""How attribution and its tables grow at the extremes: steps, launches, graphs, streams, nodes.

Each recording is made of columns (``benchmarks/extremes.py``) at four sizes up to the largest, and
read from no file. To the processor time is fitted what a start takes plus a power of the size: 1
is linear. Ten minutes of one core. Run: ``python -m benchmarks.attributing [--part 10]``.
"""

from __future__ import annotations

import argparse
import resource
import time

from benchmarks.extremes import EXTREMES
from benchmarks.figures import Figure, add_json, tell
from benchmarks.growth import fitted
from profiler_ext.attribution import attribute
from profiler_ext.exporters import tables
from profiler_ext.records.recording import Recording

_PARTS = (16, 8, 4, 2, 1)
_MOST_S = 60


def main() -> None:
    """Measure each extreme, and print the exponents."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, default=1, help="divide the sizes by this")
    parser.add_argument("--only", default="", help="extremes whose name holds this")
    add_json(parser)
    options = parser.parse_args()
    chosen = {name: each for name, each in EXTREMES.items() if options.only in name}
    found: list[Figure] = []
    for name, (make, largest) in chosen.items():
        found += _figures(name, [(each, *_spent(make(each))) for each in _sizes(largest, options)])
    tell(found, options.json)


def _sizes(largest: int, options: argparse.Namespace) -> list[int]:
    return [largest // options.part // part for part in _PARTS]


def _spent(recording: Recording) -> tuple[int, float]:
    """Return how many events a recording has, and the processor time that it takes."""
    started = time.process_time()
    analysis = attribute(recording)
    for table in (tables.by_line, tables.by_module, tables.by_kernel):
        table(analysis)
    return len(recording.trace.events), time.process_time() - started


def _figures(name: str, runs: list[tuple[int, int, float]]) -> list[Figure]:
    for size, events, seconds in runs:
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(
            f"{size:>9,} {name}, {events:,} events: {seconds:.2f} s, {peak_mib:,} MiB", flush=True
        )
    fit = fitted([(size, seconds) for size, _, seconds in runs])
    size, events, seconds = runs[-1]
    return [
        Figure(
            f"{name}: time is their number to the power of",
            fit.exponent,
            "",
            len(runs),
            (fit.low, fit.high),
        ),
        Figure(f"{size:,} {name}, {events:,} events: time", seconds, "s"),
    ]


if __name__ == "__main__":
    main()
