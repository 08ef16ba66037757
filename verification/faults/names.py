"""The runs in which each declared private name of torch is gone in turn.

    python -m verification.faults.names [SCRIPT ...] [--device cuda] [--sample N] [--jobs N]

Of each script those names are taken that it reads; that a name which is not read is named as
well, is asked of each in ``tests/test_private_names.py``.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from verification.faults.__main__ import preload

SCRIPTS = ("plain", "checkpointed", "compiled_autograd")


def main() -> int:
    """Run what the command line asks for; the status is 1 where an outcome is forbidden."""
    options = _options()
    os.environ["FAULTS_DEVICE"] = options.device
    preload()
    folder = Path(tempfile.mkdtemp(prefix="names-"))
    try:
        bad = sum(_tried(script, options, folder) for script in options.scripts or SCRIPTS)
    finally:
        shutil.rmtree(folder)
    return 1 if bad else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m verification.faults.names")
    parser.add_argument("scripts", nargs="*")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sample", type=int, help="so many names of each script")
    parser.add_argument("--seed", default="")
    parser.add_argument("--only", default="", help="names that have this expression")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--compiled", type=Path, help="keep compiled C++ in this folder")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def _tried(script: str, options: argparse.Namespace, folder: Path) -> int:
    """Run a script without each of the names that it reads; return how many runs are forbidden."""
    from profiler_ext.torch_compat import names
    from verification.faults.renaming import ALLOWED, READ, Renamed, verdict
    from verification.faults.runs import run, run_each, run_first
    from verification.faults.verdicts import same

    compiled = options.compiled or folder / "compiled"
    sound = run_first(script, Renamed(), folder / script, compiled)
    assert sound.launches, sound.stderr
    again = run(script, Renamed(), folder / f"{script}-again", compiled)
    assert same(again.launches or [], sound.launches), "two runs with all names differ"
    read = [int(each.removeprefix(READ)) for each in sound.calls if each.startswith(READ)]
    here = (
        at for at in sorted(read) if names.ALL[at].comes_with is None or names.ALL[at].comes_with
    )
    faults = [Renamed(at) for at in here if re.search(options.only, Renamed(at).label())]
    if options.sample is not None:
        draw = random.Random(f"{script} {options.seed}")
        faults = draw.sample(faults, min(options.sample, len(faults)))
    found: Counter[str] = Counter()

    for fault, result in run_each(script, faults, compiled, options.jobs):
        outcome = verdict(result, sound, fault.label())
        found[outcome] += 1
        if outcome not in ALLOWED or options.verbose:
            print(f"{outcome}: {script} without {fault.label()}", flush=True)
            if options.verbose:
                print(result.code, result.notes, result.stderr[-1500:], flush=True)
    print(f"{script}: {len(read)} names read, {len(faults)} runs: {dict(found)}", flush=True)
    return sum(count for outcome, count in found.items() if outcome not in ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
