"""The command that runs the cases and prints what they came to."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count, islice
from pathlib import Path

from verification.hostile import table
from verification.hostile.pool import mapped, run_mutation, run_named
from verification.hostile.running import OUTCOMES, Run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only cases whose names hold all of these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--fields", action="store_true", help="also each field with each value")
    parser.add_argument("--mutations", type=int, default=0, metavar="N")
    parser.add_argument("--minutes", type=float, default=0, help="mutations for so long")
    parser.add_argument("--seed", type=int, default=0, help="of the first mutation")
    parser.add_argument("--out", type=Path, help="write every run here, a line of JSON each")
    options = parser.parse_args()
    runs = list[Run]()
    if options.mutations or options.minutes:
        runs = _collect(mapped(options.jobs, run_mutation, _seeds(options)), options)
    else:
        named = table.CASES if options.fields else table.BY_HAND
        wanted = [n for n in named if all(word in n for word in options.words)]
        runs = _collect(mapped(options.jobs, run_named, wanted), options)
    _print(runs)
    return int(any(not run.is_good for run in runs))


def _seeds(options: argparse.Namespace) -> Iterator[int]:
    until = time.monotonic() + 60 * options.minutes
    seeds = count(options.seed)
    if options.mutations:
        yield from islice(seeds, options.mutations)
    while options.minutes and time.monotonic() < until:
        yield next(seeds)


def _collect(found: Iterator[list[Run]], options: argparse.Namespace) -> list[Run]:
    runs = list[Run]()
    for some in found:
        runs += some
        _keep(some, options.out)
        for run in some:
            if not run.is_good:
                line = f"{run.outcome:10} {run.case} | {run.way} | {run.seconds:.1f} s, "
                print(f"{line}{run.memory_mb:.0f} MB | {run.detail!a}"[:400], flush=True)
    return runs


def _keep(runs: list[Run], out: Path | None) -> None:
    if out is not None:
        with out.open("a") as file:
            file.writelines(json.dumps(asdict(run)) + "\n" for run in runs)


def _print(runs: list[Run]) -> None:
    cases: dict[str, str] = {}
    for run in runs:
        worst = cases.get(run.case, OUTCOMES[0])
        cases[run.case] = max(worst, run.outcome, key=OUTCOMES.index)
    by_run, by_case = Counter(run.outcome for run in runs), Counter(cases.values())
    print(f"\n{'outcome':12}{'runs':>8}{'cases':>8}")
    for outcome in OUTCOMES:
        print(f"{outcome:12}{by_run[outcome]:8}{by_case[outcome]:8}")
    print(f"{'all':12}{len(runs):8}{len(cases):8}")


if __name__ == "__main__":
    raise SystemExit(main())
