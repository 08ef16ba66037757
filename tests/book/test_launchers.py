"""What SLURM and a container start is read by the real parser; stand-ins are for what starts it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.book.blocks import ROOT
from tests.book.commands import check_readable

EXAMPLES = ROOT / "examples"
STAND_INS = {
    "srun": 'exec "$@"',
    "scontrol": "echo node-7; echo node-8",
    "torchrun": 'echo torchrun "$@"',
    "profiler-ext": 'echo profiler-ext "$@"',
}
GIVEN = {
    "SLURM_SUBMIT_DIR": "/shared",
    "SLURM_JOB_ID": "31",
    "SLURM_JOB_NODELIST": "node-[7-8]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_GPUS_ON_NODE": "8",
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    for name, body in STAND_INS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def test_the_job_starts_torchrun_on_the_first_node_and_reports(path: str) -> None:
    job = ["bash", str(EXAMPLES / "train.sbatch")]
    done = subprocess.run(job, env=GIVEN | {"PATH": path}, capture_output=True, text=True)
    trained, reported = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert "--nnodes 2 --nproc-per-node 8 " in trained and "endpoint node-7:29500 " in trained
    assert trained.endswith("-o /shared/profile_31 examples/train_ranks.py fsdp2 --steps 30")
    assert reported == "profiler-ext report /shared/profile_31"
    for line in (trained, reported):
        check_readable(line)


def test_what_the_container_starts_is_read() -> None:
    text = (EXAMPLES / "Dockerfile").read_text()
    words = [*_list(text, "ENTRYPOINT"), *_list(text, "CMD")]
    assert words[:2] == ["profiler-ext", "run"] and (EXAMPLES / words[-1]).exists()
    check_readable(" ".join(words))


def test_an_image_is_given_all_that_a_wheel_is_built_from() -> None:
    file = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, wheel = file["project"], file["tool"]["hatch"]["build"]["targets"]["wheel"]
    named = [project["readme"], *project["license-files"]]
    built = [*named, *wheel["packages"], *wheel["force-include"]]
    needed = {"pyproject.toml", "examples", *(each.partition("/")[0] for each in built)}
    first, *let_in = (ROOT / ".dockerignore").read_text().splitlines()[1:]
    assert (first, {line.removeprefix("!") for line in let_in}) == ("*", needed)


def _list(text: str, keyword: str) -> list[str]:
    (found,) = re.findall(rf"^{keyword} (\[.*\])$", text, re.MULTILINE)
    answer: list[str] = json.loads(found)
    return answer
