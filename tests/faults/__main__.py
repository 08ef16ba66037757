"""Owns ``make faults``: plants a failure in each function that runs while the scripts train.

Prints the runs by outcome, and each that is forbidden; a sample of them where ``--sample`` asks.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.planting import THE_DOOR, plant

ERRORS = (RuntimeError, MemoryError, RecursionError, KeyboardInterrupt)


def main() -> int:
    """Run what the command line asks for; the status is 1 where an outcome is forbidden."""
    options = _options()
    preload()
    from tests.faults.runs import SCRIPTS, Fault, run
    from tests.faults.verdicts import ALLOWED, verdict

    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    counts: dict[str, Counter[str]] = {}
    bad = 0
    scripts = options.scripts or sorted(
        p.stem for p in SCRIPTS.glob("*.py") if p.stem != "training"
    )
    for script in scripts:
        first = run(script, Fault(), folder / script)
        sound = run(script, Fault(), folder / f"{script}-again", folder / script / "cache")
        if sound.launches != first.launches or not sound.launches:
            pairs = zip(first.launches or [], sound.launches or [], strict=False)
            differing = next(((a, b) for a, b in pairs if a != b), None)
            print(f"{script}: two runs without a failure differ: {differing} {sound.stderr[-2000:]}")
            return 1
        faults = list(_faults(sound.calls, options, script))
        print(f"{script}: {len(sound.calls)} functions, {len(faults)} runs", flush=True)

        def tried(number: int, fault: Fault, script: str = script, sound=sound):
            own = folder / f"{script}-{number}"
            result = run(script, fault, own, folder / script / "cache")
            shutil.rmtree(own)
            return fault, result, verdict(result, sound) if result.fired else "not reached"

        with ThreadPoolExecutor(options.jobs) as pool:
            for fault, result, found in pool.map(tried, range(len(faults)), faults):
                counts.setdefault(fault.error.__name__, Counter())[found] += 1
                if found not in ALLOWED and found != "not reached":
                    bad += 1
                    where = f"{script} {fault.function} #{fault.call} {fault.error.__name__}"
                    print(f"{found}: {where}", flush=True)
                    if options.verbose:
                        print(result.code, result.notes, result.stderr[-1500:], flush=True)
    shutil.rmtree(folder)
    for error, found in counts.items():
        print(error, dict(found))
    return 1 if bad else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("scripts", nargs="*")
    parser.add_argument("--errors", nargs="*", default=[error.__name__ for error in ERRORS])
    parser.add_argument("--sample", type=int, help="so many failures of each script, drawn by name")
    parser.add_argument("--only", help="functions whose name has this in it")
    parser.add_argument("--later", action="store_true", help="at a later call, drawn by name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def _faults(calls: dict[str, int], options: argparse.Namespace, script: str) -> Iterator:
    from tests.faults.runs import Fault

    draw = random.Random(script)
    errors = [error for error in ERRORS if error.__name__ in options.errors]
    found = [
        Fault(name, error, draw.randint(1, calls[name]) if options.later else 1)
        for name in sorted(set(calls) - THE_DOOR)
        if options.only is None or options.only in name
        for error in errors
    ]
    yield from (
        found if options.sample is None else draw.sample(found, min(options.sample, len(found)))
    )


def preload() -> None:
    """Import all that a run needs, with the package's functions ready to fail."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    plant()
    import torch
    import torch._dynamo
    import torch._inductor.compile_fx
    import torch.distributed
    import torch.profiler

    torch.set_num_threads(1)
    sys.argv[0] = "profiler-ext"
    import pandas  # noqa: F401

    import profiler_ext.cli.run
    import profiler_ext.running
    import profiler_ext.switch  # noqa: F401
    from profiler_ext.capture.hooks.installing import torch_problems

    torch_problems()


if __name__ == "__main__":
    sys.exit(main())
