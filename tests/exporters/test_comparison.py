"""What a comparison is shown as: terminal, Markdown, JSON of the schema, frames, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.cells import cell_len

import profiler_ext
from profiler_ext import cli
from profiler_ext.comparison.comparison import BY, Comparison, compare
from profiler_ext.comparison.records import Change
from profiler_ext.errors import UsageError
from profiler_ext.exporters.diff.markdown import comparison_markdown
from profiler_ext.exporters.diff.terminal import comparison_text
from profiler_ext.exporters.diff.texts import change_text, percent_of, signed
from profiler_ext.exporters.json_output.bounds import answer_text
from profiler_ext.exporters.json_output.comparison import comparison_answer
from profiler_ext.exporters.tables.comparison import COMPARED, compared
from profiler_ext.sessions.comparing import ComparedSessions
from profiler_ext.sessions.session import Session
from tests.analyses import gpu_step
from tests.comparison.by_hand import Launch, Part, launch, run
from tests.comparison.recordings import H200, recorded

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "answers.schema.json").read_text())
MLP, NORM = "return self.down(F.gelu(self.up(x)))", "x = self.norm_of_the_block(x)"
PAIR = "findings/dtype_conversion", "findings/dtype_conversion.remedied"
SMALL = "cases/graph_break", "cases/in_a_thread"
BEFORE, AFTER = (H200 / f"{name}.session.pt.trace.json.gz" for name in SMALL)


@pytest.fixture(scope="module")
def by_hand() -> Comparison:
    jitter = (0, 3_000, -2_000, 1_000, -1_000)
    before = [
        [launch(10, 1_000_000 + j, MLP, module="blocks.0.mlp"), launch(20, 500_000, NORM)]
        for j in jitter
    ]
    after = [
        [launch(12, 1_200_000 - j, MLP, module="blocks.0.mlp"), launch(22, 500_000 + j, NORM)]
        for j in jitter
    ]
    return compare([run(before, "before")], [run(after, "after")])


@pytest.fixture(scope="module")
def real() -> Comparison:
    return compare([recorded(PAIR[0])], [recorded(PAIR[1])])


SHOWN = """\
base  before · 5 steps · NVIDIA H200 · torch 2.11.0
head  after · 5 steps · NVIDIA H200 · torch 2.11.0
step as recorded: 1.50 ms -> 1.70 ms, +200 us (+13.3%), 95%: +166 us to +233 us: slower
device time, as recorded: 1.50 ms -> 1.70 ms, +200 us (+13.3%), 95%: +166 us to +233 us: slower
    base      head     change            wall time of a step
 1.50 ms   1.70 ms    +200 us   +13.3%   eager: attributed to source
          95%: +166 us to +233 us

by line: 1 slower, 1 not significant (together +200 ns)
    base      head     change            line
 1.00 ms   1.20 ms    +200 us   +20.0%   model.py:10 -> :12  return self.down(F.gelu(self.up(x)))
          moved · 95%: +176 us to +223 us · blocks.*.mlp · forward
~ not significant
note: each side is one run: runs of one program are taken to differ as is usual (device time by
0.75%, idle time by 25%); several runs of each side tell it
"""


def test_the_terminal_shows_what_changed_first(by_hand: Comparison) -> None:
    assert comparison_text(by_hand, width=100) == SHOWN


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("by", BY)
def test_no_line_is_wider_than_the_terminal(real: Comparison, by: str, width: int) -> None:
    text = comparison_text(real, by, None, width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert f"by {by}: " in text


def test_a_session_and_itself_have_nothing_to_show() -> None:
    same = compare([recorded(PAIR[0])], [recorded(PAIR[0])])
    text = comparison_text(same, width=100)
    assert "step as recorded: 5.59 ms -> 5.59 ms, equal\n" in text
    assert not {" slower", " faster", " new ", " gone "} & set(text)


def test_names_of_a_file_steer_no_terminal_and_break_no_table() -> None:
    evil = "x = '\x1b[31m|<script>`*'\n\x07"
    part = Part(10, 100, evil, module="m|od\x1b[2J", op="aten::ev|il")
    steps = [[Launch("k\x1b[0m|", (part,))]] * 2
    other = [[Launch("k\x1b[0m|", (Part(11, 900, evil + "2", module="m|od\x1b[2J"),))]] * 2
    comparison = compare([run(steps, "a\x1b|")], [run(other, "b")])
    for by in BY:
        text = comparison_text(comparison, by, width=200)
        markdown = comparison_markdown(comparison, by)
        for line in (*text.splitlines(), *markdown.splitlines()):
            assert line.isprintable()
        assert "<script>" not in markdown
        rows = [line for line in markdown.splitlines() if line.startswith("| ")]
        assert {line.replace(r"\|", "").count("|") for line in rows} == {8}
        assert answer_text(comparison_answer(comparison, by))[:-1].isprintable()


def test_markdown_has_the_change_the_step_time_breakdown_and_the_rows(by_hand: Comparison) -> None:
    lines = comparison_markdown(by_hand).splitlines()
    assert lines[0] == (
        r"### Step as recorded: 1.50 ms -\> 1.70 ms, +200 us (+13.3%), 95%: +166 us to +233 us"
        ": slower"
    )
    assert (
        r"| 1.00 ms | 1.20 ms | +200 us | +20.0% | slower | model.py:10 -\> :12  return "
        r"self.down(F.gelu(self.up(x))) | moved · 95%: +176 us to +223 us · "
        r"blocks.\*.mlp · forward |"
    ) in lines


def validated(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    reference = SCHEMA["discriminator"]["mapping"]["comparison"]
    jsonschema.Draft202012Validator({"$ref": reference, "$defs": SCHEMA["$defs"]}).validate(
        document
    )
    return document


@pytest.mark.parametrize("by", BY)
def test_json_is_of_the_schema_and_adds_up(real: Comparison, by: str) -> None:
    document = validated(answer_text(comparison_answer(real, by)))
    assert (
        document["row_count"] == len(document["rows"]) == sum(document["verdict_counts"].values())
    )
    if by != "compile":
        for side in ("base_ns", "head_ns"):
            total = document["total"][side]
            assert sum(row["change"][side] for row in document["rows"]) == total
            assert sum(row["change"][side] for row in document["breakdown"]) == total


def test_json_says_what_top_and_a_budget_leave_out(real: Comparison) -> None:
    document = validated(answer_text(comparison_answer(real, top=2)))
    (cut,) = document["cuts"]
    assert (cut["where"], cut["kept"], cut["total"]) == ("rows", 2, document["row_count"])
    small = validated(answer_text(comparison_answer(real), 9000))
    assert any(cut["reason"] == "budget" for cut in small["cuts"])


@pytest.mark.parametrize("by", BY)
def test_a_frame_has_the_columns_of_the_page_and_adds_up(real: Comparison, by: str) -> None:
    table = compared(real, by).to_pandas()
    assert {name: str(dtype) for name, dtype in table.dtypes.items()} == {
        name: COMPARED[name].dtype for name in table.columns
    }
    if by != "compile":
        assert table["base_ns"].sum() == real.total.base_ns
        assert table["head_ns"].sum() == real.total.head_ns
        assert table["delta_ns"].sum() == pytest.approx(real.total.delta_ns)
        assert table["base_fraction"].sum() == pytest.approx(1)


def test_the_command_and_the_function_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    found = profiler_ext.diff(BEFORE, str(AFTER))
    assert isinstance(found, ComparedSessions)
    for format in ("md", "csv", "json"):
        assert cli.main(["diff", str(BEFORE), str(AFTER), "--format", format, "--top", "7"]) == 0
        assert capsys.readouterr().out == found.report(top=7, format=format)
    assert cli.main(["diff", "--base", str(BEFORE), "--head", str(AFTER), "--by", "op"]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed == found.report("op", width=80).splitlines()
    assert found.table("op").equals(compared(found.comparison, "op").to_pandas())


def test_sessions_in_memory_are_compared_too() -> None:
    session = Session(gpu_step().recording)
    session.analysis = gpu_step()
    found = profiler_ext.diff(session, [session, session])
    assert [run.name for run in found.comparison.head.runs] == ["head 1", "head 2"]
    assert found.comparison.total == Change(
        1_000_000, 2_000_000, 1, 2, 9, 18, None, found.comparison.total.verdict
    )
    assert repr(found).startswith("<comparison of 1 and 2 runs: a step 1,000,000 ns -> 1,000,000")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([str(BEFORE)], "was given 1 sessions, --base 0 and --head 0; give BASE HEAD, or"),
        (["--base", str(BEFORE)], "was given 0 sessions, --base 1 and --head 0; give BASE HEAD"),
        ([str(BEFORE), "README.md"], "README.md is not JSON; expected the JSON that torch"),
        ([str(BEFORE), "docs"], "docs holds no session.pt.trace.json.gz; give a folder that"),
        ([str(BEFORE), str(AFTER), "--top", "0"], "cannot show the top 0 rows; ask for 1 or more"),
    ],
)
def test_what_cannot_be_compared_is_reported_in_a_sentence(
    arguments: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert cli.main(["diff", *arguments]) == 2
    output = capsys.readouterr()
    assert (output.out, len(output.err.splitlines())) == ("", 1)
    assert expected in output.err


def test_there_is_no_other_format(by_hand: Comparison) -> None:
    with pytest.raises(UsageError, match="ask for text, csv, json, md"):
        ComparedSessions(by_hand).report(format="xml")


def test_changes_read_as_numbers_do() -> None:
    assert [signed(each) for each in (1_200_000, -30, 0)] == ["+1.20 ms", "-30 ns", "+0 ns"]
    assert percent_of(Change(100, 105, 1, 1)) == "+5.0%"
    assert percent_of(Change(100, 2_000, 1, 1)) == "20x"
    assert percent_of(Change(-100, -150, 1, 1)) == "-50.0%"
    assert percent_of(Change(0, 5, 1, 1)) == ""
    assert change_text(Change(0, 5, 1, 1)) == "0 ns -> 5 ns, +5 ns: too few steps"
