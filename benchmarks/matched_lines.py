"""How often lines are matched wrongly across real edits: those of a git repository's own history.

python -m benchmarks.matched_lines [--repository DIR] [--edits N]

For each edit of a Python file both whole versions are known, so difflib's alignment of them tells
which line became which. The matching is given a part of the lines only, as a recording has it: a
sample of each side's, of which some have no counterpart on the other. Prints how many were matched
rightly and wrongly, how many of those called edited became another line, and how many were missed.
"""

from __future__ import annotations

import argparse
import ast
import random
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path

from benchmarks.recordings import ROOT
from profiler_ext.comparison.records import Match
from profiler_ext.comparison.source_matching import Text, match_in_file

_KNOWN, _KNOWN_TOO = (0.15, 0.4, 0.9), (1.0, 0.9, 0.5)
"""Parts of the lines that the base knows, and of these that the head knows too."""


def main() -> None:
    """Match the lines of a sample of edits and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repository", type=Path, default=ROOT)
    parser.add_argument("--edits", type=int, default=400)
    options = parser.parse_args()
    chance = random.Random(1)
    edits = list(_edits(options.repository))
    chance.shuffle(edits)
    counts: Counter[str] = Counter()
    for commit, path in edits[: options.edits]:
        versions = [_shown(options.repository, f"{at}:{path}") for at in (f"{commit}~", commit)]
        functions = [_functions(version) for version in versions]
        if functions[0] is not None and functions[1] is not None:
            sides = [version.splitlines() for version in versions]
            counts += _judged(sides, (functions[0], functions[1]), chance)
    print(f"{min(len(edits), options.edits)} edits: ", end="")
    print(", ".join(f"{counts[name]:,} {name}" for name in sorted(counts)))


def _judged(
    sides: list[list[str]],
    functions: tuple[Mapping[int, str], Mapping[int, str]],
    chance: random.Random,
) -> Counter[str]:
    expected = _alignment(*sides)
    back = {to: number for number, to in expected.items()}
    often, too = chance.choice(_KNOWN), chance.choice(_KNOWN_TOO)
    base = {n for n in functions[0] if _runs(sides[0][n - 1]) and chance.random() < often}
    head = {
        n
        for n in functions[1]
        if _runs(sides[1][n - 1])
        and chance.random() < (too if back.get(n) in base else often * (1 - too * (n in back)))
    }
    texts = [
        [Text(n, of[n], " ".join(side[n - 1].split())) for n in sorted(known)]
        for side, of, known in zip(sides, functions, (base, head), strict=True)
    ]
    found = match_in_file(texts[0], texts[1])
    counts = Counter(
        _verdict(expected, back, sides, number, to, why) for number, (to, why) in found.items()
    )
    counts["missed"] = sum(expected.get(number) in head and number not in found for number in base)
    return counts


def _verdict(
    expected: Mapping[int, int],
    back: Mapping[int, int],
    sides: list[list[str]],
    number: int,
    to: int,
    why: Match,
) -> str:
    if why is Match.EDITED:
        is_of_none = number not in expected and to not in back
        return "edited" if is_of_none else "edited, but another line"
    if expected.get(number) == to:
        return "right"
    is_of_none = number not in expected and to not in back
    same_text = sides[0][number - 1].split() == sides[1][to - 1].split()
    return "moved out of order" if is_of_none and same_text else "wrong"


def _alignment(base: list[str], head: list[str]) -> dict[int, int]:
    blocks = SequenceMatcher(None, base, head, autojunk=False).get_matching_blocks()
    return {b.a + at + 1: b.b + at + 1 for b in blocks for at in range(b.size)}


def _runs(line: str) -> bool:
    return len(line.strip()) > 3 and not line.strip().startswith(("#", '"', "def ", "@"))


def _functions(source: str) -> dict[int, str] | None:
    """Return the innermost function of each line; nothing of what is no Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    found: dict[int, str] = {}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for each in sorted(functions, key=lambda node: -((node.end_lineno or 0) - node.lineno)):
        lines = range(each.lineno, (each.end_lineno or each.lineno) + 1)
        found |= dict.fromkeys(lines, each.name)
    return found


def _edits(repository: Path) -> Iterator[tuple[str, str]]:
    """Yield the commits that changed a Python file, with its path."""
    commit = ""
    for line in _git(
        repository, "log", "--no-merges", "--name-status", "--format=@%h"
    ).splitlines():
        if line.startswith("@"):
            commit = line[1:]
        elif line.startswith("M\t") and line.endswith(".py"):
            yield commit, line[2:]


def _shown(repository: Path, what: str) -> str:
    return _git(repository, "show", what)


def _git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    main()
