"""A name that is gone costs a gap or an error: a sample of ``verification.faults.names``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.whole
def test_a_name_that_is_gone_costs_a_gap_or_an_error_at_start():
    command = [
        sys.executable,
        "-m",
        "verification.faults.names",
        "plain",
        "--sample",
        "1",
        "--seed",
        "ci",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 runs" in done.stdout
