"""Owns the oracle in several processes at once, each with a cache and seeds of its own."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.oracle.ablation import Ablation
from tests.oracle.scoring import Score


def run_jobs(options: argparse.Namespace) -> tuple[Score, list[Ablation]]:
    """Share the seeds among processes, and sum up what they found.

    Args:
        options: the command's options; each process draws every ``jobs``-th seed.
    """
    score, ablations = Score(), list[Ablation]()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{job}.json" for job in range(options.jobs)]
        running = [_start(options, job, file) for job, file in enumerate(files)]
        for job, (process, file) in enumerate(zip(running, files, strict=True)):
            said = process.communicate()[0]
            if not file.exists():
                score.failed.append({"job": job, "why": said[-2000:]})
                continue
            found = json.loads(file.read_text())
            ablations += [Ablation(**one) for one in found.pop("ablations")]
            score.add_json(found)
    return score, ablations


def _start(options: argparse.Namespace, job: int, file: Path) -> subprocess.Popen[str]:
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
    command = [sys.executable, "-m", "tests.oracle"]
    command += [f"--{name}={value}" for name, value in each.items()]
    cache = {"TORCHINDUCTOR_CACHE_DIR": f"{file}.cache", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return subprocess.Popen(
        command,
        env=os.environ | cache,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
