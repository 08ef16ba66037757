"""The command that mutates a sample of our rules, and tells what no test noticed.

The mutants and the processes that run them are mutmut's, as pyproject.toml sets it up. What is
chosen here is the sample, as all of them would take a day, and the tests that each must pass.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from mutmut.__main__ import copy_also_copy_files, copy_src_dir, create_mutants

from verification.mutants.covering import covering
from verification.mutants.results import all_results, described, scores, survivors
from verification.mutants.rooms import ROOMS, drawn, room_of
from verification.mutants.trying import try_mutants

FOLDER = Path("mutants")
SAMPLE = FOLDER / "sample.txt"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("room", nargs="?", choices=ROOMS, help="only the mutants of this room")
    parser.add_argument("--count", type=int, default=320, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="which mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    parser.add_argument("--minutes", type=float, default=600, help="stop after so many")
    parser.add_argument("--again", action="store_true", help="only what survived the last time")
    parser.add_argument("--least", type=float, default=0.85, help="the share that must die")
    options = parser.parse_args()
    if not options.again:
        shutil.rmtree(FOLDER, ignore_errors=True)
    made = _made(options.jobs)
    if not options.again:
        mutants = [name for name in made if options.room in (None, room_of(name))]
        SAMPLE.write_text("\n".join(drawn(mutants, options.count, options.seed)))
    alive = survivors(_results())
    if alive:
        _run(alive, options.jobs, 60 * options.minutes)
    return _report(options.least)


def _made(jobs: int) -> dict[str, str]:
    """Make the mutants of each file that is new or changed; return what is known of all."""
    copy_src_dir()
    copy_also_copy_files()
    create_mutants(jobs)
    return all_results()


def _results() -> dict[str, str]:
    sample = set(SAMPLE.read_text().split())
    return {name: status for name, status in all_results().items() if name in sample}


def _run(sample: list[str], jobs: int, seconds: float) -> None:
    begun = time.monotonic()
    known = covering(jobs, deadline=begun + seconds / 2)
    print(f"{len(known.seconds)} tests in {time.monotonic() - begun:.0f} s", flush=True)
    for failed in known.failed:
        print(f"left out, fails without a mutant: {failed}")
    try_mutants(sample, known, jobs, deadline=begun + seconds)


def _report(least: float) -> int:
    results = _results()
    alive = survivors(results)
    print(*described(alive, results), "", *scores(results), sep="\n")
    return int(len(alive) > (1 - least) * len(results))


if __name__ == "__main__":
    sys.exit(main())
