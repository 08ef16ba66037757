"""All figures of speed that need no GPU, one script after the other, and a table of them.

    make bench [BENCH="--only growth file_to_tables"]
    make bench BENCH="--part 50"    # a fiftieth of each size: does all of it run

Each script of ``SCRIPTS`` runs as it would by itself and writes its figures; at the end they are
printed as a table, with the machine and the versions that they hold for. An hour and a half of one
core. Figures are processor time, which other work on the machine changes by some percent; ratios
of what was measured in one sitting say more.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.environments import ready
from benchmarks.figures import Figure, add_json, read, rounded, write
from benchmarks.recordings import ROOT, environment
from profiler_ext.version import VERSION

_SIZES = {
    "file_to_tables": ("--events", 1_000_000, 10_000),
    "growth": ("--largest", 10_000_000, 100_000),
    "reading": ("--largest", 1_000_000, 100_000),
    "attributing": ("--part", None, None),
    "exports": ("--events", 1_000_000, 10_000),
    "many_ranks": ("--ranks", 1_024, 64),
}
"""Of each its option of size, the size and the least of them; ``None`` where it divides itself."""
SCRIPTS = tuple(_SIZES)
"""Those that measure speed on any machine, each with ``--json`` and without a required argument."""
_PACKAGES = ("torch", "numpy", "pandas", "perfetto", "msgspec")


def main() -> int:
    """Run the scripts, and print the table; return 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=SCRIPTS, metavar="SCRIPT")
    parser.add_argument("--part", type=int, default=1, help="divide the sizes by this")
    add_json(parser)
    options = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as made:
        found = {name: _figures(name, Path(made), options.part) for name in options.only}
    print("\n".join(["", machine(), "", *table(found)]), flush=True)
    write([figure for own in found.values() for figure in own or []], options.json)
    return int(any(own is None for own in found.values()))


def _sized(script: str, part: int) -> list[str]:
    """Return what makes a script's sizes a part of what they are."""
    option, size, least = _SIZES[script]
    if part == 1:
        return []
    return [option, str(part if size is None or least is None else max(size // part, least))]


def _figures(script: str, made: Path, part: int) -> list[Figure] | None:
    """Run a script; return its figures, or ``None`` where it failed."""
    path = made / f"{script}.json"
    print(f"\n{script}", flush=True)
    command = [sys.executable, "-m", f"benchmarks.{script}", "--json", str(path)]
    command += _sized(script, part)
    done = subprocess.run(command, env={**os.environ, **environment()}, cwd=ROOT, check=False)
    if done.returncode:
        print(f"{script} ended with {done.returncode}", file=sys.stderr, flush=True)
    return read(path) if path.exists() else None


def table(found: dict[str, list[Figure] | None]) -> list[str]:
    """Return the figures as a table in Markdown.

    Args:
        found: those of each script; ``None`` where it failed.
    """
    lines = ["| measured by | figure | value | least and greatest of n |", "| --- |" + " --- |" * 3]
    for script, own in found.items():
        for figure in own or [Figure("failed", float("nan"), "")]:
            low, high = figure.spread or (figure.value, figure.value)
            spread = f"{rounded(low)} to {rounded(high)} of {figure.n}" if figure.spread else ""
            value = f"{rounded(figure.value)} {figure.unit}".strip()
            lines.append(f"| `{script}` | {figure.figure} | {value} | {spread} |")
    return lines


def machine() -> str:
    """Return what the figures hold for."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    # What is installed of ours may be another version than this checkout, which is measured.
    versions = [f"profiler-ext {VERSION}", *(f"{name} {_version(name)}" for name in _PACKAGES)]
    versions += [f"{peer.name} {peer.version}" for peer in ready()]
    return (
        f"{_processor()}, {cores} cores, {memory:.0f} GiB, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}; {', '.join(versions)}"
    )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "is not installed"


if __name__ == "__main__":
    sys.exit(main())
