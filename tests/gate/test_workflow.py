"""The workflow in ``examples`` does what it says, step by step, in a repository with two commits.

It records both sides for real, as the names of folders and options are what can be wrong; what a
side would record a second time is a copy of the first, for time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import junitparser
import pytest
import yaml

from tests.compiled_cpp import share

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "examples" / "profile_gate.yml").read_text()
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
STEPS: list[dict[str, Any]] = WORKFLOW["jobs"]["gate"]["steps"]
PROGRAM = """\
import torch

weight = torch.nn.Parameter(torch.eye(128) / 2)
optimizer = torch.optim.SGD([weight], lr=1e-3)
batch = torch.ones(128, 128)


@torch.compile
def loss_of(x):
    x = torch.relu(x) + 1
    x = torch.linalg.matmul(x, weight)
    return x.square().mean()


for _ in range(30):
    loss_of(batch).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SLOWER = PROGRAM.replace("matmul(x, ", "matmul(x.repeat(600, 1), ")
"""By tenths of a second a step: no machine is so busy that this is noise."""
PROFILER = f"""
for word; do if [ "$before" = --output ]; then output=$word; fi; before=$word; done
first=${{output%_*}}_0
if [ "$1" = run ] && [ -d "$first" ] && [ "$output" != "$first" ]; then
  exec cp -r "$first" "$output"
fi
exec "{sys.executable}" -m profiler_ext "$@"
"""
LINE = 1 + next(n for n, line in enumerate(PROGRAM.splitlines()) if "matmul" in line)
EXPRESSION = re.compile(r"\$\{\{ *([\w.]+) *\}\}")


class Runner:
    """Runs the steps of a job as a runner does, with what it needs of the two actions."""

    def __init__(self, origin: Path, folder: Path) -> None:
        self.origin, self.workspace = origin, folder / "workspace"
        self.summary = folder / "summary.md"
        self.kept: list[Path] = []
        self.printed = ""
        share(Path(os.environ["TESTS_COMPILED_CPP"]), folder / "inductor")
        tools = folder / "tools"
        tools.mkdir()
        _tool(tools / "profiler-ext", PROFILER)
        _tool(tools / "python", '[ "$*" = "-m pip install profiler-ext" ]')
        self.values = {
            "github.workspace": str(self.workspace),
            "github.event.pull_request.base.sha": git(origin, "rev-parse", "HEAD~1"),
        }
        job = {name: self.filled(str(of)) for name, of in WORKFLOW["jobs"]["gate"]["env"].items()}
        self.environment = {
            **os.environ,
            **job,
            "RUNS": "1",
            "SKIP": "2",
            "STEPS": "6",
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }

    def filled(self, text: str) -> str:
        return EXPRESSION.sub(lambda found: self.values[found[1]], text)

    def run(self, step: dict[str, Any]) -> int:
        given = {name: self.filled(str(of)) for name, of in step.get("with", {}).items()}
        action = step.get("uses", "").partition("@")[0]
        if action == "actions/checkout":
            place = self.workspace / given.get("path", "")
            git(self.origin, "clone", "-q", str(self.origin), str(place))
            git(place, "checkout", "-q", given.get("ref", "HEAD"))
        elif action == "actions/upload-artifact":
            self.kept = sorted((self.workspace / given["path"]).iterdir())
        else:
            return self._shell(step["run"])
        return 0

    def _shell(self, script: str) -> int:
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", self.filled(script)]
        done = subprocess.run(
            command, cwd=self.workspace, env=self.environment, capture_output=True, text=True
        )
        self.printed = done.stdout
        assert done.returncode in (0, 4), done.stdout + done.stderr
        return done.returncode


def _tool(path: Path, command: str) -> None:
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)


def git(folder: Path, *arguments: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    done = subprocess.run(
        ["git", *named, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    origin = tmp_path / "origin"
    origin.mkdir()
    git(origin, "init", "-q")
    for text in (PROGRAM, SLOWER):
        (origin / "train.py").write_text(text)
        git(origin, "add", "train.py")
        git(origin, "commit", "-q", "-m", "a change")
    return Runner(origin, tmp_path)


def test_each_step_runs_and_the_slower_line_fails_the_job(runner: Runner) -> None:
    statuses = {step["name"]: runner.run(step) for step in STEPS if not _is_last(step)}
    assert {name for name, status in statuses.items() if status} == {"Compare"}
    annotations = [line for line in runner.printed.splitlines() if line.startswith("::error ")]
    assert any(f"file=train.py,line={LINE},title=failed%3A each line" in a for a in annotations)
    assert runner.summary.read_text().startswith("## Gate: ")
    assert not runner.run(STEPS[-1])
    assert [path.name for path in runner.kept] == ["base_1", "gate.xml", "head_1"]
    assert junitparser.JUnitXml.fromfile(str(runner.kept[1])).failures >= 1


def _is_last(step: dict[str, Any]) -> bool:
    return step is STEPS[-1]


def test_the_artifact_is_kept_whatever_the_gate_says_and_no_right_to_write_is_asked_for() -> None:
    assert STEPS[-1]["if"] == "always()"
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert set(EXPRESSION.findall(TEXT)) == {
        "github.workspace",
        "github.event.pull_request.base.sha",
    }
