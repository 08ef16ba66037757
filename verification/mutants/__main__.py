"""The command that mutates a sample of our rules, and tells what no test noticed.

The mutants, the tests that cover each and the processes that run them are mutmut's, as
pyproject.toml sets it up. What is chosen here is the sample: all of them would take a day.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from mutmut.__main__ import copy_also_copy_files, copy_src_dir, create_mutants

from verification.mutants.results import all_results, described, scores, survivors
from verification.mutants.rooms import ROOMS, drawn, room_of

FOLDER = Path("mutants")
SAMPLE = FOLDER / "sample.txt"
MUTMUT = Path(sys.executable).with_name("mutmut")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("room", nargs="?", choices=ROOMS, help="only the mutants of this room")
    parser.add_argument("--count", type=int, default=320, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="which mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
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
    return (_run(alive, options.jobs) if alive else 0) or _report(options.least)


def _made(jobs: int) -> dict[str, str]:
    """Make the mutants of each file that is new or changed; return what is known of all."""
    copy_src_dir()
    copy_also_copy_files()
    create_mutants(jobs)
    return all_results()


def _results() -> dict[str, str]:
    sample = set(SAMPLE.read_text().split())
    return {name: status for name, status in all_results().items() if name in sample}


def _run(sample: list[str], jobs: int) -> int:
    # Apart from this process, in which `tests` is this folder's and not the mutated copy's.
    command = [MUTMUT, "run", "--max-children", str(jobs), *sample]
    return subprocess.call(command, env={**os.environ, "PYTHONPATH": ""})


def _report(least: float) -> int:
    results = _results()
    alive = survivors(results)
    print(*described(alive, results), "", *scores(results), sep="\n")
    return int(len(alive) > (1 - least) * len(results))


if __name__ == "__main__":
    sys.exit(main())
