"""A script that is run under coverage has the lines covered that it has without us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

CORES = ("ctrace", "sysmon") if sys.version_info >= (3, 12) else ("ctrace", "pytrace")
"""The tracer that is written in Python hears what the other does, and takes long."""
SCRIPT = """\
import torch

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def loss_of(x):
    if x.sum() > 1e9:
        return None
    return model(x).square().mean()


for number in range(9):
    loss = loss_of(torch.full((4, 8), float(number)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("end")
"""
NOT_RUN = [9]


def covered(folder: Path, core: str, *command: str) -> tuple[list[int], list[int]]:
    """Return the lines that ran and those that did not, as coverage tells them."""
    environment = {**os.environ, "COVERAGE_CORE": core, "COVERAGE_FILE": str(folder / core)}
    coverage = (sys.executable, "-W", "ignore", "-m", "coverage")
    run = (*coverage, "run", "--include=*/script.py", *command)
    done = subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "CoverageWarning" not in done.stderr
    reported = (*coverage, "json", "-q", "-o", f"{core}.json")
    subprocess.run(reported, cwd=folder, env=environment, check=True)
    (found,) = json.loads((folder / f"{core}.json").read_text())["files"].values()
    return found["executed_lines"], found["missing_lines"]


@pytest.mark.parametrize("core", CORES)
def test_coverage_tells_of_a_script_what_it_tells_without_us(core: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    ran, missing = covered(tmp_path, core, "-m", "profiler_ext", "run", "-o", "out", "script.py")
    assert missing == NOT_RUN
    assert {14, 15, 16, 17, 18} <= set(ran)
    assert (tmp_path / "out" / "trace.pftrace").exists()
