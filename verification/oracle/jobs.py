"""The oracle in several processes at once, each with a cache and seeds of its own."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from verification.oracle.ablation import Ablation
from verification.oracle.scoring import Score

_GRACE_S = 10


def run_jobs(options: argparse.Namespace) -> tuple[Score, list[Ablation]]:
    """Share the seeds among processes, and sum up what they found.

    Args:
        options: the command's options; each process draws every ``jobs``-th seed. One that
            takes longer than ``seconds`` is interrupted, and what it has found counts.
    """
    score, ablations = Score(), list[Ablation]()
    end_s = time.monotonic() + options.seconds + _GRACE_S
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        files = [Path(folder) / f"{job}.json" for job in range(options.jobs)]
        running = [_start(options, job, file) for job, file in enumerate(files)]
        for job, (process, file) in enumerate(zip(running, files, strict=True)):
            _end(process, end_s)
            if not file.exists():
                printed = Path(f"{file}.out").read_text()
                score.failed.append({"job": job, "why": printed[-2000:]})
                continue
            found = json.loads(file.read_text())
            ablations += [Ablation(**one) for one in found.pop("ablations")]
            score.add_json(found)
    return score, ablations


def _start(options: argparse.Namespace, job: int, file: Path) -> subprocess.Popen[bytes]:
    each = {
        "device": options.device,
        "kernels": -(-options.kernels // options.jobs),
        "seed": options.seed + job,
        "step": options.jobs,
        "seconds": options.seconds,
        "model-seconds": options.model_seconds,
        "ablate": len(range(job, options.ablate, options.jobs)),
        "json": file,
    }
    command = [sys.executable, "-m", "verification.oracle"]
    command += [f"--{name}={value}" for name, value in each.items()]
    cache = {"TORCHINDUCTOR_CACHE_DIR": f"{file}.cache", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    with Path(f"{file}.out").open("wb") as out:
        return subprocess.Popen(
            command, env=os.environ | cache, stdout=out, stderr=subprocess.STDOUT
        )


def _end(process: subprocess.Popen[bytes], end_s: float) -> None:
    """Wait for a process; first ask it to end when its time is up, then make it."""
    for force in (process.terminate, process.kill):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(end_s - time.monotonic(), _GRACE_S))
            return
        force()
    process.wait()
