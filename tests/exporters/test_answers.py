"""Every answer for a program is of the stated schema, adds up, and says what it leaves out."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pandas as pd
import pytest

from profiler_ext import cli, joint_table
from profiler_ext.cli import doctor
from profiler_ext.errors import UsageError
from profiler_ext.exporters.json_output.answers import findings_answer, report_answer, table_answer
from profiler_ext.exporters.json_output.bounds import MIN_BUDGET, answer_text, bounded
from profiler_ext.exporters.table_kinds import TABLES, TableKind, table_named
from profiler_ext.exporters.tables import SequenceRow, seq_table
from profiler_ext.exporters.tables.trust import SUMMING_TABLES
from profiler_ext.sessions.merging import MergedSession
from profiler_ext.sessions.session import Session, load
from tests.analyses import gpu_step
from tests.answer_schema import every_answer
from tests.exporters.tabled import empty
from tests.reference import made_tables
from tests.test_merging import two_ranks

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "h200"
RECORDED = ("mlp.session.pt.trace.json.gz", "cases/eager_loss.session.pt.trace.json.gz")
SCHEMA = json.loads((ROOT / "docs" / "answers.schema.json").read_text())
OWN = [kind for kind in TABLES if kind.name != "findings"]

every_table = pytest.mark.parametrize("kind", OWN, ids=lambda each: each.name)


@cache
def recorded(name: str) -> Session:
    return load(FIXTURES / name)


@cache
def asked(name: str) -> Session | MergedSession:
    if name == "ranks":
        return two_ranks()
    handmade = {"handmade": gpu_step, "empty": empty}
    return reported(handmade[name]()) if name in handmade else recorded(name)


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = {"$ref": SCHEMA["discriminator"]["mapping"][name], "$defs": SCHEMA["$defs"]}
    return jsonschema.Draft202012Validator(schema)


@cache
def decoder() -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(every_answer(made_tables()))


def reported(analysis: Any) -> Session:
    session = Session(analysis.recording)
    session.analysis = analysis
    return session


def valid(text: str) -> dict[str, Any]:
    """Return an answer that both readers of the schema take: msgspec's types, and the file."""
    document: dict[str, Any] = json.loads(text)
    decoder().decode(text)
    validator(document["answer"]).validate(document)
    return document


def test_the_page_names_every_answer() -> None:
    page = (ROOT / "docs" / "answers.md").read_text()
    names = set(SCHEMA["discriminator"]["mapping"]) - {kind.name for kind in OWN}
    assert {name for name in names if f"`{name}`" not in page} == set()


@every_table
@pytest.mark.parametrize("name", ["handmade", "ranks", "empty", *RECORDED])
def test_a_table_is_of_its_schema(kind: TableKind, name: str) -> None:
    session = asked(name)
    document = valid(answer_text(table_answer(session, kind, top=20)))
    table = session.table(kind.name)
    assert document["answer"] == kind.name
    assert document["row_count"] == len(table)
    assert len(document["rows"]) == min(len(table), 20)


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("table", sorted(SUMMING_TABLES))
def test_what_a_row_rests_on_adds_up_to_its_time(table: str, name: str) -> None:
    kind, session = table_named(table), recorded(name)
    rows = bounded(table_answer(session, kind))["rows"]
    for row in rows:
        assert sum(row["phases_ns"].values()) == row["duration_ns"]
        tied = sum(row["site_evidence_ns"].values())
        assert tied <= row["duration_ns"]
        assert sum(row["gaps_ns"].values()) <= row["duration_ns"]
    lines = session.attribution()
    lines = lines[lines["launch"].isin(session.launches().dropna(subset="step")["launch"])]
    by_evidence = lines.groupby("evidence")["duration_ns"].sum().to_dict()
    assert summed(rows, "line_evidence_ns") == by_evidence
    by_gap = lines.groupby("gap")["duration_ns"].sum().to_dict()
    assert summed(rows, "gaps_ns") == by_gap


def summed(rows: list[dict[str, Any]], column: str) -> dict[str, int]:
    sums: dict[str, int] = {}
    for row in rows:
        for word, time in row[column].items():
            sums[word] = sums.get(word, 0) + time
    return sums


def test_the_rows_of_several_ranks_rest_on_those_of_each() -> None:
    ranks = two_ranks()
    both = bounded(table_answer(ranks, table_named("by_op")))["rows"]
    each = [bounded(table_answer(one, table_named("by_op")))["rows"] for one in ranks.sessions]
    for column in ("site_evidence_ns", "line_evidence_ns", "gaps_ns"):
        assert summed(both, column) == summed([*each[0], *each[1]], column)


@every_table
def test_top_says_how_many_rows_and_how_much_time_it_leaves_out(kind: TableKind) -> None:
    session = reported(gpu_step())
    document = bounded(table_answer(session, kind, top=1))
    table = session.table(kind.name)
    cuts = {cut["where"]: cut for cut in document["cuts"]}
    assert ("rows" in cuts) == (len(table) > 1)
    if len(table) > 1:
        cut = cuts["rows"]
        assert (cut["kept"], cut["total"], cut["reason"]) == (1, len(table), "top")
        if document["total_ns"] is not None:
            kept = sum(row["duration_ns"] for row in document["rows"])
            assert kept + cut["left_out_ns"] == document["total_ns"]


@pytest.mark.parametrize("budget", [MIN_BUDGET, 6_000, 10_000, 20_000, 10**7])
def test_a_budget_bounds_the_size_and_each_cut_is_reported(budget: int) -> None:
    answer = report_answer(recorded(RECORDED[0]), top=None)
    whole = bounded(answer)
    text = answer_text(answer, budget)
    document = valid(text)
    assert len(text) <= budget
    assert (len(document["cuts"]) > len(whole["cuts"])) == (budget < len(answer_text(answer)))
    for name, table in document["tables"].items():
        rows = whole["tables"][name]["rows"]
        assert table["rows"] == rows[: len(table["rows"])]
        actual = [c for c in document["cuts"] if c["where"] == f"tables.{name}.rows"]
        assert [(c["kept"], c["total"]) for c in actual] == (
            [(len(table["rows"]), len(rows))] if len(table["rows"]) < len(rows) else []
        )


def test_what_is_cut_twice_is_reported_once() -> None:
    answer = table_answer(recorded(RECORDED[0]), table_named("by_kernel"), top=10)
    document = bounded(answer, 8_000)
    (cut,) = (each for each in document["cuts"] if each["where"] == "rows")
    kept = sum(row["duration_ns"] for row in document["rows"])
    assert cut["total"] == document["row_count"] > 10 > cut["kept"] == len(document["rows"])
    assert kept + cut["left_out_ns"] == document["total_ns"]
    assert cut["reason"] == "budget"


def test_a_budget_that_holds_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match=f"a budget of 10 bytes .* ask for {MIN_BUDGET} or more"):
        answer_text(report_answer(reported(gpu_step())), 10)


def test_the_whole_says_the_gaps_and_what_to_do_about_them() -> None:
    document = valid(answer_text(report_answer(reported(gpu_step()))))
    (gap,) = document["coverage"]["gaps"]
    assert (gap["gap"], gap["duration_ns"]) == ("ambiguous_extern_run", 20_000)
    assert gap["page"] == "gaps.md#gap-ambiguous_extern_run"
    assert gap["remedy"].startswith("profile one step before the replay")
    wall = sum(row["duration_ns"] for row in document["coverage"]["breakdown"])
    assert wall == sum(step["wall_ns"] for step in document["session"]["steps"])
    busy = sum(r["duration_ns"] for r in document["coverage"]["breakdown"] if r["scope"] != "idle")
    assert busy == sum(step["busy_ns"] for step in document["session"]["steps"])


def test_steps_of_one_number_are_reported_as_one() -> None:
    session = reported(gpu_step())
    analysis = session.analysis
    twice = reported(replace(analysis, steps=analysis.steps * 2))
    (once,), (both,) = (
        valid(answer_text(report_answer(each)))["session"]["steps"] for each in (session, twice)
    )
    assert both == once | {"wall_ns": 2 * once["wall_ns"]}


def test_findings_carry_the_utilisation_of_the_steps() -> None:
    session = recorded(RECORDED[0])
    document = valid(answer_text(findings_answer(session)))
    known = session.utilisation()["mfu"].tolist()
    assert [step["mfu"] for step in document["session"]["steps"]] == known
    assert all(0 < mfu < 1 for mfu in known)


def test_modules_are_distinguished_as_deep_as_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(FIXTURES / "cases" / "bert.session.pt.trace.json.gz")
    words = ["report", file, "--by", "module", "--depth", "2", "--top", "99", "--format", "json"]
    assert cli.main(words) == 0
    document = valid(capsys.readouterr().out)
    table = load(file).by_module(2)
    assert document["filters"] == {"depth": 2}
    assert [row["module"] for row in document["rows"]] == [
        None if pd.isna(name) else name for name in table["module"]
    ]
    assert sum(row["duration_ns"] for row in document["rows"]) == table["duration_ns"].sum()
    assert cli.main(["report", file, "--by", "op", "--depth", "2", "--format", "json"]) == 2
    assert "the depth is 2; ask for one of a report by module" in capsys.readouterr().err


def test_a_budget_is_of_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", str(FIXTURES / RECORDED[0]), "--budget", "9000"])
    assert ended.value.code == 2
    assert "--budget needs --format json" in capsys.readouterr().err


def test_each_command_prints_an_answer_of_the_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    two_ranks().save(tmp_path / "R")
    (tmp_path / "S").symlink_to(FIXTURES / RECORDED[0])
    row = SequenceRow(1, "aten.mm", None, "forward", "é", 3, None, "mm", "a.py", None, None)
    monkeypatch.setattr(joint_table, "load_example", lambda _: (None, None))
    monkeypatch.setattr(joint_table, "seq_columns", lambda *_: seq_table([row]))
    finding = doctor.Check("device", "ok", "H200 \x1b[31m é")
    monkeypatch.setattr(doctor, "examine", lambda: (finding,))
    commands = {
        "report S": "report",
        "report R": "report",
        "report S --findings": "findings",
        "report S --step 3": "by_line",
        "report S --by idle": "idle_by_line",
        "annotate S": "annotate",
        "export S -o E.csv": "written",
        "merge R -o M": "written",
        "attach S -o A --cache-dir C": "report",
        "cache list --dir C": "cache_list",
        "cache prune --all --dir C": "cache_prune",
        "seq-table example:function": "seq_table",
        "doctor": "doctor",
    }
    for command, name in commands.items():
        assert cli.main([*command.split(), "--format", "json", "--budget", "9000"]) == 0
        text = capsys.readouterr().out
        assert valid(text)["answer"] == name
        assert len(text) <= 9_000
        assert text.isascii() and text[:-1].isprintable()


def test_what_to_do_is_the_first_that_a_report_says_of_a_session() -> None:
    document = json.loads(answer_text(report_answer(reported(gpu_step()))))
    parts = [each for each in document if isinstance(document[each], dict)]
    assert parts == ["session", "findings", "coverage", "tables"]
