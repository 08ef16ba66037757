"""What each export takes beyond reading and attributing: processor time, memory, size.

A recording of an H200 is repeated, and written as ``profiler-ext export --to FORMAT`` writes it; a
process that only reads and attributes the same file, as many together as there are cores as in an
export, is taken off. What reading alone takes is told, too. All are whole processes, in turn.
With a million events three minutes of one core. Run: ``python -m benchmarks.exports [--events N]``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure, add_json, figure_of, tell
from benchmarks.processes import MIB, Spent, spent
from benchmarks.quick_figures import EXPORTS, Quick
from benchmarks.recordings import LAYERS, environment, folder
from benchmarks.tiling import tile

_READING = "import sys, profiler_ext; read = profiler_ext.load(sys.argv[1], jobs=None)"
_ATTRIBUTING = f"{_READING}; read.analyses"
READING = Quick("reading", lambda file, out: [sys.executable, "-c", _READING, str(file)])
READ = Quick(
    "reading and attributing", lambda file, out: [sys.executable, "-c", _ATTRIBUTING, str(file)]
)
Written = tuple[Spent, int]
"""What a process took, and how many bytes it wrote."""


def main() -> None:
    """Measure each format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recording", type=Path, default=LAYERS)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    add_json(parser)
    options = parser.parse_args()
    with folder() as made:
        file = made / "tiled.pt.trace.json"
        events = tile(options.recording, file, options.events)
        print(f"{events:,} events", flush=True)
        rounds = [
            {each.name: _written(each, file) for each in (READING, READ, *EXPORTS)}
            for _ in range(options.rounds)
        ]
    tell(list(_figures(rounds)), options.json)


def _written(figure: Quick, file: Path) -> Written:
    with tempfile.TemporaryDirectory() as out:
        one = spent(figure.command(file, Path(out)), env=environment(), cwd=Path(out))
        sizes = [path.stat().st_size for path in Path(out).rglob("*") if path.is_file()]
    return one, sum(sizes)


def _figures(rounds: list[dict[str, Written]]) -> Iterator[Figure]:
    for figure in (READING, READ):
        read = [each[figure.name][0].cpu_s for each in rounds]
        yield figure_of(f"{figure.name}: time", read, "s")
    for format in EXPORTS:
        found = [each[format.name] for each in rounds]
        more = [one.cpu_s - less for (one, _), less in zip(found, read, strict=True)]
        yield figure_of(f"{format.name}: time beyond that", more, "s")
        yield figure_of(f"{format.name}: memory", [one.peak_mib for one, _ in found], "MiB")
        yield Figure(f"{format.name}: size", median(size for _, size in found) / MIB, "MiB")


if __name__ == "__main__":
    main()
