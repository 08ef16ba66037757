"""Whether anything got slower since a commit: pairs of runs, turn about.

    make bench-compare BASE=main [COMPARE="--pairs 20 --only report csv"]

Each figure (``benchmarks/quick_figures.py``) is a whole process, run by the base in a worktree of
its own and by this checkout as it stands (or a commit), in pairs whose order alternates: what else
the machine does meets both. Of a pair the ratio of processor times counts, and of peaks of memory.
The interval of the mean ratio is Student's, of the pairs' logarithms; few of those that are called
slower or faster at once are so by chance (the rate of false discoveries). Both sides run on this
Python with its packages; nothing is fetched. It ends with 1 where something is slower.

Ten pairs of all figures with 100,000 events take ten minutes of one core.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev

import numpy as np

from benchmarks.figures import Figure, add_json, rounded, write
from benchmarks.processes import Spent, spent
from benchmarks.quick_figures import FELT, QUICK, Quick
from benchmarks.recordings import GPT, ROOT, environment, folder
from benchmarks.tiling import tile
from profiler_ext.comparison.significance import (
    FALSE_DISCOVERY_RATE,
    MIN_RUN_DEVIATION,
    benjamini_hochberg,
    quantile,
    two_sided_p_value,
)

_BOTH_TAILS = 0.05
Sides = tuple[Path, Path]
"""The checkouts of the base and of the head."""


@dataclass(frozen=True, slots=True)
class Change:
    """How a figure differs between the two.

    Attributes:
        name: the figure, and what of it.
        unit: its unit.
        base, head: the medians.
        ratio, low, high: head over base, the mean of the pairs, and its 95% interval.
        p_value: how often chance alone makes such a difference.
        pairs: how many.
    """

    name: str
    unit: str
    base: float
    head: float
    ratio: float
    low: float
    high: float
    p_value: float
    pairs: int

    def verdict(self, q_value: float) -> str:
        """Return what it came to.

        Args:
            q_value: the rate of false discoveries at which it is one.
        """
        if q_value > FALSE_DISCOVERY_RATE:
            return f"no difference (one of {(self.high / self.low) ** 0.5 - 1:.1%} would be seen)"
        return ("faster", "slower")[self.ratio > 1] if self.unit == "s" else self._of_memory()

    def _of_memory(self) -> str:
        return "more" if self.ratio > 1 else "less"


def change(name: str, unit: str, pairs: Sequence[tuple[float, float]]) -> Change:
    """Return how the head differs from the base.

    Args:
        name: what was measured.
        unit: its unit.
        pairs: base and head, measured next to each other; at least two pairs.
    """
    logarithms = [math.log(head / base) for base, head in pairs]
    freedom = len(pairs) - 1
    # Few runs can agree by chance, so they are taken to differ a little.
    error = max(stdev(logarithms), MIN_RUN_DEVIATION) / math.sqrt(len(pairs))
    mean, reach = fmean(logarithms), error * quantile(_BOTH_TAILS, freedom)
    base, head = (median(side) for side in zip(*pairs, strict=True))
    low, high = math.exp(mean - reach), math.exp(mean + reach)
    p_value = two_sided_p_value(mean / error, freedom)
    return Change(name, unit, base, head, math.exp(mean), low, high, p_value, len(pairs))


def judged(changes: Sequence[Change]) -> list[tuple[Change, str]]:
    """Return each change with its verdict, among all that are compared at once.

    Args:
        changes: all of them.
    """
    q_values = benjamini_hochberg(np.array([each.p_value for each in changes]))
    return [(each, each.verdict(q)) for each, q in zip(changes, q_values.tolist(), strict=True)]


def main() -> int:
    """Compare, print a row for each figure, and return 1 where one is slower."""
    options = _parsed()
    chosen = [each for each in (*QUICK, *FELT) if _is_wanted(each, options.only)]
    with folder() as made, _tree(options.base, made) as base, _tree(options.head, made) as head:
        file = options.file or made / "long.pt.trace.json"
        if options.file is None:
            tile(GPT, file, options.events)
        for tree in (base, head):
            _refuse_another(tree, made)
        changes = [each for one in chosen for each in _compared(one, (base, head), file, options)]
    findings = judged(changes)
    _show(findings)
    write(_figures(changes), options.json)
    return int(any(verdict == "slower" for _, verdict in findings))


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", help="a commit")
    parser.add_argument("--head", help="another commit (default: this checkout as it stands)")
    parser.add_argument("--pairs", type=int, default=10, choices=range(3, 1000), metavar="N")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="figures whose names hold one")
    parser.add_argument("--events", type=int, default=100_000, help="of the recording")
    parser.add_argument("--file", type=Path, help="a recording, in place of one that is made")
    add_json(parser)
    return parser.parse_args()


def _is_wanted(figure: Quick, words: Sequence[str] | None) -> bool:
    return words is None or any(word in figure.name for word in words)


@contextmanager
def _tree(commit: str | None, made: Path) -> Iterator[Path]:
    """Check a commit out, in a worktree that is taken away; no commit is this checkout."""
    if commit is None:
        yield ROOT
        return
    path = Path(tempfile.mkdtemp(dir=made)) / "tree"
    if _git("worktree", "add", "--quiet", "--detach", str(path), commit):
        raise SystemExit(f"{commit}: no commit that can be checked out here; git says why above")
    try:
        yield path
    finally:
        _git("worktree", "remove", "--force", str(path))


def _git(*words: str) -> int:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=False).returncode


def _refuse_another(tree: Path, made: Path) -> None:
    """See to it that the package of this checkout is the one that runs."""
    asked = "import profiler_ext; print(profiler_ext.__file__)"
    printed = spent([sys.executable, "-c", asked], env=environment(tree), cwd=made).output.strip()
    if not Path(printed).is_relative_to(tree):
        raise SystemExit(f"{tree}: {printed} is imported and not what is there")


def _compared(
    figure: Quick, trees: Sides, file: Path, options: argparse.Namespace
) -> Iterator[Change]:
    """Measure a figure in pairs, after a run of each that fills caches and is not counted."""
    for tree in trees:
        _run(figure, tree, file)
    pairs = [_pair(figure, trees, file, bool(at % 2)) for at in range(options.pairs)]
    times = [(base.cpu_s, head.cpu_s) for base, head in pairs]
    peaks = [(base.peak_mib, head.peak_mib) for base, head in pairs]
    for name, unit, values in (("time", "s", times), ("memory", "MiB", peaks)):
        found = change(f"{figure.name}: {name}", unit, values)
        print(f"{found.name}: {found.ratio:.3f} of the base's", file=sys.stderr, flush=True)
        yield found


def _pair(figure: Quick, trees: Sides, file: Path, is_turned: bool) -> tuple[Spent, Spent]:
    order = trees[::-1] if is_turned else trees
    first, second = (_run(figure, tree, file) for tree in order)
    return (second, first) if is_turned else (first, second)


def _run(figure: Quick, tree: Path, file: Path) -> Spent:
    with tempfile.TemporaryDirectory() as out:
        return spent(figure.command(file, Path(out)), env=environment(tree), cwd=Path(out))


def _show(reported: Sequence[tuple[Change, str]]) -> None:
    """Print a table in Markdown."""
    print("| figure | base | head | head over base, 95% interval | verdict |")
    print("| --- | --- | --- | --- | --- |")
    for each, verdict in reported:
        sides = [f"{rounded(side)} {each.unit}" for side in (each.base, each.head)]
        interval = f"{each.ratio:.3f} ({each.low:.3f} to {each.high:.3f})"
        print(f"| {each.name} | {sides[0]} | {sides[1]} | {interval} | {verdict} |")


def _figures(changes: Sequence[Change]) -> list[Figure]:
    return [
        Figure(f"{each.name}, of the base's (95% interval)", each.ratio, "x", each.pairs, spread)
        for each in changes
        for spread in [(each.low, each.high)]
    ]


if __name__ == "__main__":
    sys.exit(main())
