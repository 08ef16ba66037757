"""How time and memory grow with the events, from 10,000 to 10,000,000, fitted.

File to tables as in ``benchmarks/file_to_tables.py``, ours alone. To the time of all runs is fitted
what a start takes plus a power of the number of events. The exponent is told with its 95% interval,
1 being linear, and the start as it was fitted. What the system takes is told too: mostly for memory
that is touched for the first time. Memory is told as a part of the uncompressed file. Ten minutes
of one core and 4 GB of disk; ``--largest 1000000`` two minutes. Run:
``python -m benchmarks.growth [--largest N]``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from benchmarks.figures import Figure, add_json, figure_of, tell
from benchmarks.processes import Spent, spent
from benchmarks.recordings import LAYERS, environment, folder
from benchmarks.tiling import tile
from profiler_ext.comparison.significance import quantile

_SMALLEST, _A_DECADE = 10_000, 2
_BOTH_TAILS = 0.05
_MOST_EVENTS = 100_000_000
"""Ten million are what is read unless one says otherwise, and whole copies are a few more."""
_EXPONENTS = (0.2, 3.0, 0.002)
Floats = npt.NDArray[np.float64]
_OFTEN = 3_000_000
"""Larger files are read once: what start-up and chance add is small beside them."""


@dataclass(frozen=True, slots=True)
class Size:
    """A file, and what reading it took.

    Attributes:
        events, file_bytes: its size.
        runs: each run.
    """

    events: int
    file_bytes: int
    runs: list[Spent]

    @property
    def cpu_s(self) -> float:
        """The median time."""
        return median(run.cpu_s for run in self.runs)

    @property
    def peak_bytes(self) -> float:
        """The median peak of memory."""
        return median(run.peak_bytes for run in self.runs)


@dataclass(frozen=True, slots=True)
class Fit:
    """How time follows the events.

    Attributes:
        exponent: the power of their number.
        low, high: its 95% interval.
        start: the time of none.
    """

    exponent: float
    low: float
    high: float
    start: float


def main() -> None:
    """Measure each size, and print the fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recording", type=Path, default=LAYERS)
    parser.add_argument("--largest", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    add_json(parser)
    options = parser.parse_args()
    found: list[Figure] = []
    for what, steps in (("many steps", None), ("2 steps", 2)):
        sizes = [_size(options, events, steps) for events in events_up_to(options.largest)]
        fit = fitted([(size.events, run.cpu_s) for size in sizes for run in size.runs])
        found += _figures(what, sizes, fit)
    tell(found, options.json)


def events_up_to(largest: int) -> list[int]:
    """Return numbers of events, equally far apart as logarithms.

    Args:
        largest: the last of them, at most.
    """
    count = int(_A_DECADE * math.log10(largest / _SMALLEST) + 1e-9) + 1
    return [round(_SMALLEST * 10 ** (at / _A_DECADE)) for at in range(count)]


def fitted(points: Sequence[tuple[float, float]]) -> Fit:
    """Fit ``start + factor * x ** exponent`` to y, whose error is taken to be a part of it.

    Args:
        points: x and y, at least four, all above zero.

    Returns:
        The exponent with the least squares, and those whose squares are no more than chance gives
        (the interval of one parameter of a model that is not linear in it: Bates and Watts,
        Nonlinear Regression Analysis and Its Applications, 1988, 6.1).

    Raises:
        ValueError: There are fewer.
    """
    freedom = len(points) - 3
    if freedom < 1:
        raise ValueError(f"{len(points)} runs: a fit with its interval needs 4; measure more")
    x, y = (np.array(side) for side in zip(*points, strict=True))
    exponents = np.arange(*_EXPONENTS)
    fits = [_with_exponent(x / x.max(), y, exponent) for exponent in exponents]
    squares, starts = (np.array(column) for column in zip(*fits, strict=True))
    most = squares.min() * (1 + quantile(_BOTH_TAILS, freedom) ** 2 / freedom)
    inside, best = exponents[squares <= most], squares.argmin()
    return Fit(float(exponents[best]), float(inside[0]), float(inside[-1]), float(starts[best]))


def _with_exponent(x: Floats, y: Floats, exponent: float) -> tuple[float, float]:
    """Return the least sum of squared relative errors with an exponent, and the start then."""
    terms = np.stack([1 / y, x**exponent / y], axis=1)
    best = np.linalg.lstsq(terms, np.ones(len(y)), rcond=None)[0]
    return float(((terms @ best - 1) ** 2).sum()), float(best[0])


def _size(options: argparse.Namespace, events: int, steps: int | None) -> Size:
    with folder() as made:
        path = made / "tiled.pt.trace.json"
        events = tile(options.recording, path, events, steps)
        rounds = options.rounds if events < _OFTEN else 1
        runs = [_read(path) for _ in range(rounds)]
        size = Size(events, path.stat().st_size, runs)
    answer = json.loads(runs[0].output.splitlines()[-1])
    print(
        f"{events:>12,} events, {answer['launches']:>9,} launches, {answer['steps']:>6,} steps: "
        f"{size.cpu_s:7.2f} s, the system's {median(run.system_s for run in runs):.2f}, "
        f"{size.peak_bytes / 1e6:8,.0f} MB, "
        f"{size.peak_bytes / size.file_bytes:.2f} of the file's {size.file_bytes / 1e6:,.0f} MB",
        flush=True,
    )
    return size


def _read(path: Path) -> Spent:
    env = environment() | {"PROFILER_EXT_MAX_EVENTS": str(_MOST_EVENTS)}
    return spent([sys.executable, "-m", "benchmarks.peers.ours", path], env=env)


def _figures(what: str, sizes: Sequence[Size], fit: Fit) -> list[Figure]:
    runs = sum(len(size.runs) for size in sizes)
    range_of = f"{sizes[0].events:,} to {sizes[-1].events:,} events, {what}"
    name = f"{range_of}: time is the events to the power of (95% interval)"
    last = sizes[-1]
    system_s = [run.system_s for run in last.runs]
    return [
        Figure(name, fit.exponent, "", runs, (fit.low, fit.high)),
        Figure(f"{range_of}: time of no event, in that fit", fit.start, "s"),
        figure_of(f"{last.events:,} events, {what}: time", [r.cpu_s for r in last.runs], "s"),
        figure_of(f"{last.events:,} events, {what}: of that the system's", system_s, "s"),
        Figure(
            f"{last.events:,} events, {what}: memory, of the uncompressed file",
            last.peak_bytes / last.file_bytes,
            "x",
        ),
    ]


if __name__ == "__main__":
    main()
