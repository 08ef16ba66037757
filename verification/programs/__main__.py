"""``python -m verification.programs``: all programs, or those whose name holds a word."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from verification.programs.runner import Runner
from verification.programs.table import FAST, PROGRAMS


def main() -> int:
    parser = argparse.ArgumentParser(description="run programs without us and with us")
    parser.add_argument("words", nargs="*", help="only programs whose name holds one of these")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--fast", action="store_true", help="only those that CI runs")
    parser.add_argument("--mode", action="append", help="only these ways to run with us")
    options = parser.parse_args()
    os.environ["PROGRAMS_DEVICE"] = options.device
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # else a fork could not use the device
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(Path(folder) / "programs")
        for program in PROGRAMS:
            if options.fast and program.name not in FAST:
                continue
            if options.words and not any(word in program.name for word in options.words):
                continue
            modes = tuple(m for m in program.modes if not options.mode or m in options.mode)
            started = time.monotonic()
            for mode, found in runner.differences(program, modes).items():
                outcome = found[0].partition(":")[0][:60] if found else "same"
                counts[outcome] += 1
                took = time.monotonic() - started
                print(f"{outcome:24} {took:5.1f} s  {program.name} [{mode}]", *found, sep="\n    ",
                      flush=True)  # fmt: skip
        runner.close()
    print(*(f"{count:5}  {outcome}" for outcome, count in counts.most_common()), sep="\n")
    return int(set(counts) != {"same"})


sys.exit(main())
