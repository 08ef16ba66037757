"""A sample of ``make faults``: failures of ours cost the program nothing, and are named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import patience_s

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C++ that the scripts have in common is compiled once."""
    return tmp_path_factory.mktemp("of") / "compiled"


@pytest.mark.parametrize("script", ["plain", "compiled_autograd", "api"])
def test_what_fails_of_ours_costs_the_program_nothing_and_is_named(
    script: str, compiled: Path
) -> None:
    """And whatever torch calls of ours, it calls through the guard."""
    options = ("--sample", "3", "--later", "--compiled", str(compiled))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "verification.faults", script, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patience_s(900),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": 3 of 3 tried, ") == 1, done.stdout


@pytest.mark.whole
def test_a_planted_failure_is_found_where_nothing_catches_it(compiled: Path) -> None:
    """The check can fail: past the guard, the same failures break the script."""
    code = """
import sys
from verification.faults import __main__ as faults

def preload(sound=faults.preload):
    sound()
    from profiler_ext.isolation.guard import Guard
    def caught(self, hook, error, subject):
        raise error
    Guard.caught = caught

faults.preload = preload
options = ["--only", "SiteHooks._call_site", "--errors", "RuntimeError"]
sys.argv = ["faults", "plain", *options, "--compiled", sys.argv[1]]
sys.exit(faults.main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(compiled)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patience_s(900),
        check=False,
    )
    assert "broke the script: plain" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1
