"""How a test runs Python in a process of its own, with its own cache of compiled graphs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.compiled_cpp import share
from tests.patience import patience_s

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"

Finished = subprocess.CompletedProcess[str]


def environment(cache: Path, **extra: str) -> dict[str, str]:
    """Return an environment whose compiled graphs are kept in ``cache``."""
    own = {
        "PYTHONPATH": str(ROOT),
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
        "COLUMNS": "120",
    }
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "PROFILER_EXT"))}
    return {**inherited, **own, **extra}


def python(cache: Path, folder: Path, *words: str | Path, **extra: str) -> Finished:
    """Run Python in ``folder`` and return how it went."""
    compiled = Path(os.environ["TESTS_COMPILED_CPP"])
    share(compiled, cache)
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env=environment(cache, **extra),
        capture_output=True,
        text=True,
        timeout=patience_s(300),
        check=False,
    )
    if done.returncode == 0:
        share(cache, compiled)
    return done


def profiled(cache: Path, folder: Path, *words: str | Path, **extra: str) -> Path:
    """Run ``profiler-ext run``, which must succeed, and return the folder it wrote."""
    out = folder / "out"
    run = ("-m", "profiler_ext", "run", "--force", "--skip", "1", "--steps", "2", "-o", out)
    finished = python(cache, folder, *run, *words, **extra)
    assert finished.returncode == 0, finished.stderr
    return out
