"""SKILL.md takes a program from a slow script to a proven change: a scripted client walks it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from profiler_ext import cli
from profiler_ext.cli.common import ABOVE_LIMIT
from profiler_ext.cli.skill import SKILL
from profiler_ext.exporters.formats import FILE_NAME
from profiler_ext.findings.finding import Confidence, SavingPer
from profiler_ext.rooflines.compute_units import Bound
from tests.book.commands import check_readable, commands
from tests.book.recordings import read_once

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's import gives one
WORKED = Path(__file__).parent / "fixtures" / "h200" / "worked"
SIDES = {"before": "gpt_compiled", "after": "gpt_graphs"}
"""The second is the first with the remedy of its first recommendation: CUDA graphs."""
_BLOCK = re.compile(r"^```console\n(.*?)^```\n(.*?)(?=^```|\Z)", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\| `([\w.\[\]]+)` \| (.*) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A command of the skill, and what it says of the fields of its answer."""

    command: str
    fields: dict[str, str]

    @property
    def records(self) -> bool:
        return shlex.split(self.command)[1] == "run"


def steps() -> list[Step]:
    return [
        Step(command, dict(_FIELD.findall(after)))
        for source, after in _BLOCK.findall(SKILL.read_text())
        for command, _ in commands(source)
    ]


STEPS = steps()
ASKING = [step for step in STEPS if not step.records]


@pytest.fixture(scope="module", autouse=True)
def recordings() -> Iterator[None]:
    with read_once():
        yield


class Client:
    """Runs the commands of the skill, and reads nothing but their JSON."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.status = 0

    def ask(self, command: str) -> Any:
        self.status = cli.main(shlex.split(command)[1:])
        return json.loads(self.capsys.readouterr().out)


@pytest.fixture
def client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Client:
    for name, recorded in SIDES.items():
        (tmp_path / name).mkdir()
        shutil.copyfile(
            WORKED / f"{recorded}.session.pt.trace.json.gz", tmp_path / name / FILE_NAME
        )
    monkeypatch.chdir(tmp_path)
    return Client(capsys)


def values(answer: Any, path: str) -> list[Any]:
    """Return what stands at a path such as ``findings[].location.file``."""
    found = [answer]
    for part in path.split("."):
        name, _, is_list = part.partition("[")
        found = [each[name] for each in found]
        if is_list:
            found = [item for each in found for item in each]
    return found


def command(words: str) -> str:
    """Return the one command of the skill that begins so."""
    (found,) = [step.command for step in STEPS if step.command.startswith(f"profiler-ext {words}")]
    return found


@pytest.mark.parametrize("step", ASKING, ids=lambda step: step.command)
def test_an_answer_has_the_fields_that_the_skill_names(step: Step, client: Client) -> None:
    answer = client.ask(step.command)
    assert step.fields
    assert [path for path in step.fields if not values(answer, path)] == []


def test_the_skill_lists_the_values_that_a_client_decides_by(client: Client) -> None:
    fields = {path: means for step in ASKING for path, means in step.fields.items()}
    listed = {path: set(re.findall(r"`(\w+)`", means)) for path, means in fields.items()}
    assert listed["findings[].confidence"] == {each.value for each in Confidence}
    assert listed["findings[].saving_per"] == {each.value for each in SavingPer}
    assert listed["roofline.bound"] == {each.value for each in Bound}
    for step in ASKING:
        answer = client.ask(step.command)
        for path in step.fields:
            if path.endswith(("state", "scope", "outcome", "step_basis", "step.verdict")):
                assert set(values(answer, path)) <= listed[path] or not listed[path], path


def test_each_recording_of_the_skill_is_a_valid_command() -> None:
    recording = [step.command for step in STEPS if step.records]
    assert [re.search(r"-o (\w+)", each)[1] for each in recording] == [*SIDES]
    for each in recording:
        check_readable(each)


def test_a_client_gets_from_a_recommendation_to_a_proven_change(client: Client) -> None:
    report = client.ask(command("report before --format"))
    slow_ns = report["findings"]["unprofiled_step_ns"]
    assert report["coverage"]["line_fraction"] == 1.0 and not report["coverage"]["gaps"]

    listed = client.ask(command("report before --findings"))["findings"]
    assert [each["est_saving_ns"] for each in listed] == sorted(
        (each["est_saving_ns"] for each in listed), reverse=True
    )
    first = listed[0]
    assert first["rule"] == "launch_bound" and "mode='reduce-overhead'" in first["remedy"]

    top = report["tables"]["by_line"]["rows"][0]
    place = f"{Path(top['file']).name}:{top['line']}"
    page = client.ask(command("explain").replace("gpt.py:36", place))
    assert page["subject"]["code"] == top["code"]

    proof = client.ask(command("diff before after --format"))
    step = proof["step"]
    assert (step["verdict"], proof["step_basis"]) == ("faster", "training")
    assert step["interval"]["high_ns"] < 0
    assert step["base_per_step_ns"] == slow_ns
    gained_ns = step["base_per_step_ns"] - step["head_per_step_ns"]
    assert gained_ns == pytest.approx(first["est_saving_ns"], rel=0.5)  # as it was predicted

    gate = client.ask(command("diff before after --fail-if"))["gate"]
    assert (client.status, gate["outcome"]) == (0, "passed")
    undone = command("diff before after --fail-if").replace("before after", "after before")
    assert client.ask(undone)["gate"]["outcome"] == "failed" and client.status == ABOVE_LIMIT


def test_the_command_prints_the_skill_or_its_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["skill"]) == 0
    assert capsys.readouterr().out == SKILL.read_text()
    assert cli.main(["skill", "--path"]) == 0
    assert Path(capsys.readouterr().out.strip()).samefile(SKILL)


def test_the_front_matter_names_and_describes_the_skill() -> None:
    _, front, body = SKILL.read_text().split("---\n", 2)
    about = yaml.safe_load(front)
    assert set(about) == {"name", "description"}
    assert re.fullmatch(r"[a-z0-9-]{1,64}", about["name"]) and len(about["description"]) <= 1024
    assert body.lstrip().startswith("# ")
