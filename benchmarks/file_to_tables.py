"""From a file to tables, beside the peers: processor time and memory of whole processes, in turn.

One recording of an H200 is repeated to a million events: each copy in steps of its own, and all in
two steps. Each tool reads the file and answers what it can of the same questions: time by kernel
and by op, steps, idle time, communication (``benchmarks/peers`` says which of its own analyses do
that; nothing is drawn). Ours makes its tables by line and by module besides, which the peers have
not. Each run is a process of its own, start-up and imports included; the tools take
turns, so that a slow minute meets all of them. With three rounds 25 minutes of one core, most of
them the peers'. Run: ``python -m benchmarks.file_to_tables [--events N] [--rounds N]``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks import environments
from benchmarks.figures import Figure, add_json, figure_of, rounded, tell
from benchmarks.processes import Spent, spent
from benchmarks.recordings import LAYERS, ROOT, environment, folder
from benchmarks.tiling import tile

OURS = "profiler_ext"
Runs = dict[tuple[str, str], list[Spent]]
"""What a tool took for a file, each time."""


def main() -> None:
    """Measure, and print a table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recording", type=Path, default=LAYERS)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="without the peers")
    add_json(parser)
    options = parser.parse_args()
    tools = commands([] if options.alone else environments.ready())
    with folder() as made:
        files = _files(options.recording, options.events, made)
        runs = taken(tools, files, options.rounds)
    for (name, file), own in runs.items():
        print(f"{file}, {name}: {json.dumps(_answer(own[0]))}")
    print(table(runs), flush=True)
    tell(list(figures(runs)), options.json)


def commands(peers: Sequence[environments.Peer]) -> dict[str, list[str]]:
    """Return how each tool is run, but for the file.

    Args:
        peers: those that are there.
    """
    own = {OURS: [sys.executable, "-m", "benchmarks.peers.ours"]}
    scripts = ROOT / "benchmarks" / "peers"
    return own | {
        f"{peer.name} {peer.version}": [str(peer.python), str(scripts / f"{peer.script}.py")]
        for peer in peers
    }


def _files(recording: Path, events: int, made: Path) -> dict[str, Path]:
    files = {"many steps": made / "many.pt.trace.json", "2 steps": made / "two.pt.trace.json"}
    for path, steps in zip(files.values(), (None, 2), strict=True):
        tile(recording, path, events, steps)
    return files


def taken(tools: dict[str, list[str]], files: dict[str, Path], rounds: int) -> Runs:
    """Return what each tool took for each file.

    Args:
        tools: how each is run, by its name.
        files: the files, by what they are called.
        rounds: how often.
    """
    runs: Runs = defaultdict(list)
    names = list(tools)
    for at in range(rounds):
        for what, path in files.items():
            for name in names[at % len(names) :] + names[: at % len(names)]:
                one = spent([*tools[name], path], env=environment() if name == OURS else None)
                runs[name, what].append(one)
                line = f"{what}, {name}: {one.cpu_s:.1f} s, {one.peak_mib:,.0f} MiB"
                print(line, file=sys.stderr, flush=True)
    return runs


def _answer(one: Spent) -> dict[str, object]:
    answer: dict[str, object] = json.loads(one.output.strip().splitlines()[-1])
    return answer


def table(runs: Runs) -> str:
    """Return the medians as a table in Markdown, each peer with its ratio to ours.

    Args:
        runs: what each took.
    """
    names, files = (list(dict.fromkeys(key[at] for key in runs)) for at in (0, 1))
    head = " | ".join(f"{file}: s / peak MiB" for file in files)
    lines = [f"| file to tables | {head} |", "| --- |" + " --- |" * len(files)]
    for name in names:
        cells = [_cell(runs[name, file], runs[OURS, file], name == OURS) for file in files]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(own: list[Spent], ours: list[Spent], is_ours: bool) -> str:
    seconds, peak = (median(each) for each in zip(*map(_pair, own), strict=True))
    first, second = (median(each) for each in zip(*map(_pair, ours), strict=True))
    text = f"{rounded(seconds)} / {peak:,.0f}"
    return text if is_ours else f"{text} ({seconds / first:.1f}x / {peak / second:.1f}x)"


def _pair(one: Spent) -> tuple[float, float]:
    return one.cpu_s, one.peak_mib


def figures(runs: Runs) -> list[Figure]:
    """Return the figures: times, memory, and ours over the least of the peers', round by round.

    Args:
        runs: what each took.
    """
    found = []
    for (name, file), own in runs.items():
        found.append(figure_of(f"{file}, {name}: time", [each.cpu_s for each in own], "s"))
        found.append(figure_of(f"{file}, {name}: memory", [each.peak_mib for each in own], "MiB"))
    for file in dict.fromkeys(file for _, file in runs):
        peers = [own for (name, of), own in runs.items() if of == file and name != OURS]
        for at, what in enumerate(("time", "memory") if peers else ()):
            least = [min(_pair(each)[at] for each in turn) for turn in zip(*peers, strict=True)]
            ours = [_pair(each)[at] for each in runs[OURS, file]]
            ratios = [a / b for a, b in zip(ours, least, strict=True)]
            found.append(figure_of(f"{file}: {what}, over the least of the peers'", ratios, "x"))
    return found


if __name__ == "__main__":
    main()
