"""Who is told what came of a gate: a person, a CI server, GitHub, a program."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import junitparser
import pytest

from profiler_ext.cli import main
from profiler_ext.comparison.gate import judge
from profiler_ext.exporters.diff.gate import MOST, junit, workflow_commands
from tests.comparison.by_hand import launch
from tests.gate.by_hand import compared, program

ROOT = Path(__file__).parents[2]
FINDINGS = ROOT / "tests/fixtures/h200/findings"
FLAWED = str(FINDINGS / "far_from_roofline.session.pt.trace.json.gz")
REMEDIED = str(FINDINGS / "far_from_roofline.remedied.session.pt.trace.json.gz")
SLOWER = compared(program(), program(up=1_060_000))
FEW = compared(program(noise=(0, 1)), program(up=5_000_000, noise=(0, 1)))
COMMAND = re.compile(r"::(error|warning) (?:(.*?))::(.*)", re.DOTALL)


def read_back(command: str) -> tuple[str, dict[str, str], str]:
    """Return a workflow command as GitHub's runner reads it (ActionCommand.cs)."""
    found = COMMAND.fullmatch(command)
    assert found is not None and "\n" not in command
    level, properties, message = found.groups()
    pairs = (each.partition("=")[::2] for each in properties.split(","))
    return level, {name: _unescaped(text) for name, text in pairs}, _unescaped(message)


def _unescaped(text: str) -> str:
    for escaped, each in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(escaped, each)
    return text


def test_a_junit_reader_finds_a_case_a_condition_with_its_outcome() -> None:
    conditions = ["module layers.*.mlp backward > +5%", "total > +50%", "op mm > +1us"]
    suites = junitparser.JUnitXml.fromstring(junit(judge(SLOWER, conditions)).decode())
    (suite,) = suites
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (3, 2, 0, 0)
    cases = list(suite)
    assert [case.name for case in cases] == conditions
    assert [case.is_passed for case in cases] == [False, True, False]
    (failure,) = cases[0].result
    assert failure.message.startswith("4.00 ms -> 4.24 ms, +240 us (+6.0%), 95%: ")
    assert "model.py:10  h = self.up(x)  +240 us" in failure.text


def test_too_few_is_a_failure_in_junit_or_where_it_is_allowed_skipped() -> None:
    gate = judge(FEW, ["total > +5%"])
    (strict,), (allowed,) = (
        junitparser.JUnitXml.fromstring(junit(gate, is_too_few_allowed=each).decode())
        for each in (False, True)
    )
    assert (strict.failures, strict.skipped) == (1, 0)
    assert (allowed.failures, allowed.skipped) == (0, 1)


def test_no_name_breaks_the_xml() -> None:
    hostile = "]]>\x00\x1b[31m<&\"'\ud800 é"
    steps = [[*step, launch(50, 3_000, hostile)] for step in program()]
    gate = judge(compared(program(), steps), ['each line "*" > +1%'])
    gate = replace(gate, results=gate.results * 2)
    (suite,) = junitparser.JUnitXml.fromstring(junit(gate).decode())
    assert suite.failures == 2


def test_github_is_reported_the_line_with_most_of_what_failed(tmp_path: Path) -> None:
    gate = judge(SLOWER, ["module layers.*.mlp backward > +5%", "total > +50%"])
    (command,) = workflow_commands(gate, SLOWER, Path("/src"))
    level, properties, message = read_back(command)
    assert level == "error"
    assert properties == {
        "file": "model.py",
        "line": "10",
        "title": "failed: module layers.*.mlp backward > +5%",
    }
    assert message.startswith("4.00 ms -> 4.24 ms, +240 us (+6.0%), 95%: ")
    (elsewhere,) = workflow_commands(gate, SLOWER, tmp_path)
    assert read_back(elsewhere)[1]["file"] == "model.py"


def test_github_is_reported_of_a_file_below_the_checkout() -> None:
    gate = judge(SLOWER, ["line model.py:10 > +5%"])
    (command,) = workflow_commands(gate, SLOWER, Path("/"))
    assert read_back(command)[1]["file"] == "src/model.py"


def test_github_is_reported_of_too_few_as_an_error_or_a_warning() -> None:
    gate = judge(FEW, ["total > +5%, 3%".partition(",")[0]])
    reported = [
        read_back(command)
        for allowed in (False, True)
        for command in workflow_commands(gate, FEW, Path("/src"), is_too_few_allowed=allowed)
    ]
    assert [level for level, *_ in reported] == ["error", "warning"]
    assert "\ntry: record at least five steps of each side" in reported[0][2]


def test_no_more_errors_than_github_shows_and_the_last_says_how_many_are_left() -> None:
    steps = [
        [*step, *(launch(100 + n, 5_000, f"y = another_line({n})") for n in range(14))]
        for step in program()
    ]
    many = compared(program(), steps)
    findings = list(workflow_commands(judge(many, ["each line * > +1%"]), many, Path("/src")))
    assert len(findings) == MOST
    assert read_back(findings[-1])[2] == f"{14 - MOST + 1} more failed: see the summary"


def test_what_steers_a_workflow_command_is_escaped() -> None:
    condition = 'line "a,b::c%0A*" > +5%'
    steps = [
        [*step, launch(5, 5_000, "x", file="/src/a,b::c%0A::error::\n.py")] for step in program()
    ]
    hostile = compared(program(), steps)
    (command,) = workflow_commands(judge(hostile, [condition]), hostile, Path("/src"))
    _, properties, _ = read_back(command)
    assert properties["file"] == "a,b::c%0A::error::\n.py"
    assert properties["title"] == f"failed: {condition}"


@pytest.mark.parametrize(
    ("options", "status", "expected"),
    [
        (["--fail-if", "device > +5%"], 0, "gate: 1 passed"),
        (["--fail-if", "device < -5%"], 4, "gate: 1 failed"),
        (
            ["--fail-if", "device > +5%", "--fail-if", "idle > +5%"],
            0,
            "1 inconclusive, 1 passed of 2",
        ),
        (["--fail-if", "session_size > +50%"], 0, "187 KiB -> 189 KiB, +1.6 KiB (+0.9%)"),
        (["--fail-if", "device -5%"], 2, "not understood at '-5%' (character 8)"),
        (["--fail-if", "module foo > +5%"], 2, "is of nothing"),
        (["--junit", "x.xml"], 2, "there is none; give one"),
        (["--fail-if", "total > +5%", "--github", "--format", "csv"], 2, "choose text or md"),
    ],
)
def test_the_exit_status_says_what_came_of_it(options, status, expected, capsys) -> None:
    assert main(["diff", FLAWED, REMEDIED, "--top", "1", *options]) == status
    assert expected in "".join(capsys.readouterr())


def test_all_that_was_asked_for_is_written(tmp_path: Path, capsys, monkeypatch) -> None:
    summary, xml = tmp_path / "summary.md", tmp_path / "gate.xml"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    given = ["--fail-if", "each line * < -5% and < -10us", "--github", "--junit", str(xml)]
    assert main(["diff", FLAWED, REMEDIED, "--format", "md", *given]) == 4
    printed = capsys.readouterr().out
    assert printed.startswith("## Gate: 1 failed\n")
    commands = [line for line in printed.splitlines() if line.startswith("::")]
    assert {read_back(each)[1]["line"] for each in commands} == {"103", "199"}
    assert summary.read_text().startswith("before\n## Gate: 1 failed\n")
    assert "### Step as recorded:" in summary.read_text()
    assert junitparser.JUnitXml.fromfile(str(xml)).failures == 1


def test_json_has_what_came_of_each_condition_and_is_of_its_schema(capsys) -> None:
    given = ["--fail-if", "each line * < -5% and < -10us", "--format", "json", "--top", "1"]
    assert main(["diff", FLAWED, REMEDIED, *given]) == 4
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, json.loads((ROOT / "docs/answers.schema.json").read_text()))
    (condition,) = answer["gate"]["conditions"]
    assert (answer["gate"]["outcome"], condition["outcome"]) == ("failed", "failed")
    (call, failed) = condition["checked"][:2]
    assert (call["name"], call["verdict"]) == ("flaws.py:199", "faster")
    assert (failed["name"], failed["unit"], failed["verdict"]) == ("flaws.py:103", "ns", "faster")
    assert failed["lines"][0]["code"] == "optimizer.step()"


def test_too_few_steps_have_an_exit_status_of_their_own(capsys, tmp_path: Path) -> None:
    case = str(ROOT / "tests/fixtures/h200/cases/autocast.session.pt.trace.json.gz")
    other = str(ROOT / "tests/fixtures/h200/cases/whole_step.session.pt.trace.json.gz")
    given = ["diff", case, other, "--top", "1", "--fail-if", "total > +5%"]
    assert main(given) == 5
    assert main([*given, "--too-few", "warn"]) == 0
    assert "too few" in capsys.readouterr().out
