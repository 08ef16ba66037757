"""The command line: ``python -m verification.eager_oracle --launches 20000 --device cpu``."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

import torch

from verification.eager_oracle.judging import Score, judge
from verification.eager_oracle.programs import draw
from verification.eager_oracle.removing import Removal, remove
from verification.eager_oracle.running import run_program


def main(arguments: list[str] | None = None) -> int:
    """Score programs until enough launches were seen, and print the figures.

    Returns:
        0 when every launch has its line, else 1.
    """
    options = _options(arguments)
    started, score, removals = time.monotonic(), Score(), list[Removal]()
    try:
        _score(score, options, started)
        _remove(removals, options, started)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    Path(options.json).write_text(json.dumps(score.as_json(), indent=1))
    _print(score, options.device, time.monotonic() - started)
    _print_removals(removals)
    return int(not score.is_perfect or not all(each.is_exact for each in removals))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m verification.eager_oracle", description=__doc__
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--launches", type=int, default=2000, help="stop after so many")
    parser.add_argument("--seed", type=int, default=0, help="the first program's")
    parser.add_argument("--programs", type=int, help="stop after so many programs")
    parser.add_argument("--seconds", type=int, default=540, help="stop after so long")
    parser.add_argument("--remove", type=int, default=0, help="remove a line of so many programs")
    parser.add_argument("--json", default="eager_oracle.json", help="where the details go")
    return parser.parse_args(arguments)


def _score(score: Score, options: argparse.Namespace, started: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for seed in itertools.count(options.seed):
            _score_program(score, seed, Path(folder), options.device)
            enough = score.launches >= options.launches or score.programs == options.programs
            if enough or time.monotonic() - started > options.seconds:
                break


def _score_program(score: Score, seed: int, folder: Path, device: str) -> None:
    program = draw(seed)
    try:
        judge(score, program, run_program(program.text, f"program_{seed}", folder, device))
    except Exception as error:  # one bad program must not cost the others' figures
        score.failed.append({"seed": seed, "blocks": program.blocks, "why": repr(error)})


def _remove(removals: list[Removal], options: argparse.Namespace, started: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for seed in itertools.count(options.seed):
            if len(removals) >= options.remove or time.monotonic() - started > options.seconds:
                break
            if (removal := remove(seed, Path(folder), options.device)) is not None:
                removals.append(removal)


def _print_removals(removals: list[Removal]) -> None:
    inexact = [each for each in removals if not each.is_exact]
    for each in inexact:
        print(each)
    print(
        f"lines removed {len(removals)}: {sum(each.own for each in removals)} launches were "
        f"theirs, {sum(each.left for each in removals)} of them left; of {len(inexact)} programs "
        "other lines had other launches"
    )


def _print(score: Score, device: str, seconds: float) -> None:
    for exception in (*score.wrong, *score.failed):
        print(exception)
    print("without numbers in their shapes:", dict(score.unnumbered.most_common()))
    for kind, count in sorted(score.by_kind.items()):
        print(f"{count:8} {kind}")
    python = ".".join(map(str, sys.version_info[:3]))
    print(
        f"eager oracle on {device}: {score.programs} programs, {score.launches} launches, "
        f"precision {score.precision:.4f}, recall {score.recall:.4f}, gaps {dict(score.gaps)}, "
        f"modules {score.modules['right']} of {score.modules['known']} right, "
        f"failures {len(score.failed)}; Python {python}, torch {torch.__version__}, {seconds:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
