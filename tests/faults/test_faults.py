"""A sample of ``make faults``: failures of ours cost the program nothing, and are named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", ["plain", "compiled_autograd", "api"])
def test_what_fails_of_ours_costs_the_program_nothing_and_is_named(script: str) -> None:
    """And whatever torch calls of ours, it calls through the guard."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.faults", script, "--sample", "8"]
    done = subprocess.run(
        [*command, "--later"], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *_, runs = done.stdout.splitlines()[0].split(", ")
    assert runs == "8 runs", done.stdout


def test_a_planted_failure_is_found_where_nothing_catches_it(tmp_path: Path) -> None:
    """The check can fail: past the guard, the same failures break the script."""
    code = """
import sys
from tests.faults import __main__ as faults

def preload(sound=faults.preload):
    sound()
    from profiler_ext.isolation.guard import Guard
    def caught(self, hook, error, subject):
        raise error
    Guard.caught = caught

faults.preload = preload
sys.argv = ["faults", "plain", "--only", "SiteHooks._call_site", "--errors", "RuntimeError"]
sys.exit(faults.main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert "broke the script: plain" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1
