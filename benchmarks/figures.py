"""A measured figure: the line that is printed of it, and its row in a JSON file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from profiler_ext.file_io import replacing


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured.

    Attributes:
        figure: what, and of what: ``file to tables, 2 steps: processor time``.
        value: the median.
        unit: ``s``, ``MiB``, ``x``, ``%`` and the like; nothing where it is a plain number.
        n: the median of so many.
        spread: the least and the greatest of them, or what the figure's name calls an interval.
    """

    figure: str
    value: float
    unit: str
    n: int = 1
    spread: tuple[float, float] | None = None

    def __str__(self) -> str:
        """Return it as a line."""
        line = f"{self.figure:<58} {rounded(self.value):>10} {self.unit:<4}"
        if self.spread is not None:
            low, high = map(rounded, self.spread)
            line += f" ({low} to {high}; n = {self.n})"
        return line.rstrip()


def figure_of(figure: str, values: Sequence[float], unit: str) -> Figure:
    """Return the figure of some values: their median, the least and the greatest.

    Args:
        figure: what was measured, and of what.
        values: what was found each time.
        unit: their unit.
    """
    spread = (min(values), max(values)) if len(values) > 1 else None
    return Figure(figure, median(values), unit, len(values), spread)


def rounded(value: float) -> str:
    """Return a number with three digits that count, and no fewer than it has before its point."""
    digits = max(0, 2 - len(f"{abs(value):.0f}") + 1) if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option that all scripts have: a file for the figures.

    Args:
        parser: the script's.
    """
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")


def tell(figures: Sequence[Figure], json: Path | None = None) -> None:
    """Print a line for each figure; write them to a file, where one is asked for.

    Args:
        figures: what was measured.
        json: the file.
    """
    for figure in figures:
        print(figure, flush=True)
    write(figures, json)


def write(figures: Sequence[Figure], json: Path | None) -> None:
    """Write figures to a file, where one is asked for.

    Args:
        figures: what was measured.
        json: the file.
    """
    if json is not None:
        with replacing(json) as file:
            file.write(msgspec.json.format(msgspec.json.encode(list(figures)), indent=1) + b"\n")


def read(json: Path) -> list[Figure]:
    """Return the figures that a script wrote.

    Args:
        json: its file.
    """
    return msgspec.json.decode(json.read_bytes(), type=list[Figure])
