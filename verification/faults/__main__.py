"""``make faults``: plants a failure in each function that runs while the scripts train.

Prints the runs by outcome, and each that is forbidden; a sample of them where ``--sample`` asks.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.patience import patience_s
from verification.faults.planting import ASKED_FOR, CALLED_BY_THE_USER, THE_DOOR, plant

if TYPE_CHECKING:
    from verification.faults.runs import Fault, Result

Counted = tuple[Counter[tuple[str, str]], bool]
"""Runs by error and outcome, and whether an outcome is forbidden."""
ON_CUDA_ONLY = frozenset({"replays"})
_BEGAN = time.monotonic()
ERRORS = (RuntimeError, MemoryError, RecursionError, KeyboardInterrupt)


def main() -> int:
    """Run what the command line asks for; the status is 1 where an outcome is forbidden."""
    options = _options()
    os.environ["FAULTS_DEVICE"] = options.device
    preload()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        tried: set[str] = set()
        counts = [_of_script(script, options, Path(folder), tried) for script in _scripts(options)]
    total = sum((found for found, _ in counts), Counter[tuple[str, str]]())
    for (error, outcome), runs in sorted(total.items()):
        print(f"{runs:6} {error:18} {outcome}")
    return 1 if any(is_bad for _, is_bad in counts) else 0


def _of_script(script: str, options: argparse.Namespace, folder: Path, tried: set[str]) -> Counted:
    """Try the failures of one script, and count them by outcome; add to what was tried."""
    from verification.faults import runs, side_by_side
    from verification.faults.outcomes import record
    from verification.faults.runs import Fault, run, run_first
    from verification.faults.verdicts import FORBIDDEN, verdict

    compiled = options.compiled or folder / "compiled"
    run_first(script, Fault(), folder / script, compiled)
    sound, again = (run(script, Fault(), folder / f"{script}-{n}", compiled) for n in "ab")
    if problem := _problem(sound, again):
        print(f"{script}: {problem}", flush=True)
        return Counter({("no failure", problem): 1}), True
    past = sorted(set(sound.entered) - THE_DOOR - CALLED_BY_THE_USER - ASKED_FOR)
    if past:
        print(f"{script}: entered past the door: {past}", flush=True)

    until = _BEGAN + 60 * options.minutes
    runs.LIMIT_S = options.limit
    calls = {name: count for name, count in sound.calls.items() if name not in tried}
    tried.update(sound.calls if options.each_once else ())
    faults = list(_faults(calls, options, script))
    print(f"{script}: {len(calls)} functions, {len(faults)} runs", flush=True)
    counted = Counter({("no failure", f"{name} past the door"): 1 for name in past})
    run_each = runs.run_each if options.whole else side_by_side.run_each
    alike = begun = 0
    for fault, result in run_each(script, faults, compiled, options.jobs, until):
        found = verdict(fault, result, sound)
        begun, alike = begun + 1, alike + result.is_of_another
        record(options.outcomes, script, fault, result, found)
        counted[fault.error.__name__, found] += 1
        if found in FORBIDDEN:
            print(f"{found}: {script} {fault}", flush=True)
            if options.verbose:
                print(result.code, result.notes, result.stderr[-1500:], flush=True)
    as_another = f"{alike} of them as another error, which nothing tells from it"
    print(f"{script}: {begun} of {len(faults)} tried, {as_another}")
    print(*(f"{script}: {n:6} {e:18} {o}" for (e, o), n in sorted(counted.items())), sep="\n")
    return counted, bool(past) or any(found in FORBIDDEN for _, found in counted)


def _problem(sound: Result, again: Result) -> str | None:
    """Say what is wrong without any failure."""
    from verification.faults.verdicts import same

    if sound.code or not sound.launches or sound.digest is None:
        return f"it ends with {sound.code}: {sound.stderr[-2000:]}"
    if not same(sound.launches, again.launches or []):
        pairs = zip(sound.launches, again.launches or [], strict=False)
        return f"two runs differ: {next((pair for pair in pairs if pair[0] != pair[1]), None)}"
    return None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m verification.faults")
    parser.add_argument("scripts", nargs="*")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--errors", nargs="*", default=[error.__name__ for error in ERRORS])
    parser.add_argument("--sample", type=int, help="so many failures of each script, drawn by name")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--only", default="", help="functions whose name has this expression")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin none after these")
    parser.add_argument("--each-once", action="store_true", help="none in two scripts")
    parser.add_argument("--later", action="store_true", help="at a later call, drawn by name")
    parser.add_argument("--part", default="1/1", help="2/3: the second third of the functions")
    parser.add_argument(
        "--limit", type=int, default=patience_s(400), help="seconds, after which a run hangs"
    )
    parser.add_argument("--outcomes", type=Path, help="append a line of JSON for each failure")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--compiled", type=Path, help="keep compiled C++ in this folder")
    parser.add_argument("--whole", action="store_true", help="each in a run of its own")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def _scripts(options: argparse.Namespace) -> list[str]:
    from verification.faults.runs import SCRIPTS

    found = sorted(path.stem for path in SCRIPTS.glob("*.py"))
    elsewhere = {"training", *(ON_CUDA_ONLY if options.device == "cpu" else ())}
    return options.scripts or [name for name in found if name not in elsewhere]


def _faults(calls: dict[str, int], options: argparse.Namespace, script: str) -> Iterator[Fault]:
    from verification.faults.runs import Fault

    draw = random.Random(f"{script} {options.seed}")
    errors = [error for error in ERRORS if error.__name__ in options.errors]
    names = sorted(set(calls) - THE_DOOR - CALLED_BY_THE_USER)
    part, parts = map(int, options.part.split("/"))
    found = [
        Fault(name, error, draw.randint(1, calls[name]) if options.later else 1)
        for name in names[part - 1 :: parts]
        if re.search(options.only, name)
        for error in errors
    ]
    draw.shuffle(found)  # so that what the time allows for is a sample
    yield from found[: options.sample]


def preload() -> None:
    """Import all that a run needs, with the package's functions ready to fail."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # else a fork could not use the device
    sys.path[:] = [str(Path(each).absolute()) for each in sys.path]  # a run has a folder of its own
    plant()
    import torch
    import torch._dynamo
    import torch._inductor.compile_fx
    import torch.distributed
    import torch.profiler

    torch.set_num_threads(1)
    sys.argv[0] = "profiler-ext"
    from torch._inductor.cpu_vec_isa import valid_vec_isa_list

    valid_vec_isa_list()  # else each run asks eight processes what this CPU can
    import pandas  # noqa: F401

    with contextlib.suppress(ImportError):
        import tqdm

        tqdm.tqdm.monitor_interval = 0  # else a thread of its own watches torch's progress bars

    import profiler_ext.cli.run
    import profiler_ext.profiling.switch  # noqa: F401
    from profiler_ext.capture.hooks import installing

    installing.problems()


if __name__ == "__main__":
    sys.exit(main())
