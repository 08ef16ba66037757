"""The questions that the page of Perfetto answers are answered, on a recorded training step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import profiler_ext
from profiler_ext.exporters.perfetto import queries
from tests.book.recordings import RECORDED
from tests.cases.neutral import SUFFIX
from tests.trace_processor import reading

PAGE = Path(__file__).parents[2] / "docs" / "perfetto.md"
(QUESTIONS,) = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Any, ...]]]:
    session = profiler_ext.load(RECORDED / f"worked/gpt_compiled{SUFFIX}")
    path = session.export(tmp_path_factory.mktemp("trace") / "step.pftrace")
    asked = re.findall(r"^-- (\d+)\. [^\n]*\n(.*?);$", QUESTIONS, re.DOTALL | re.MULTILINE)
    with reading(path) as reader:
        reader.rows(queries())
        return {number: reader.rows(sql) for number, sql in asked}


def test_each_question_is_answered(answers: dict[str, list[tuple[Any, ...]]]) -> None:
    assert [*answers] == [str(number) for number in range(1, 11)]
    assert [number for number, rows in answers.items() if not rows] == ["10"]


def test_the_answers_are_those_of_the_tables(answers: dict[str, list[tuple[Any, ...]]]) -> None:
    session = profiler_ext.load(RECORDED / f"worked/gpt_compiled{SUFFIX}")
    lines = session.by_line()
    told = lines[lines.file.str.endswith("gpt.py") & (lines.line == 36)].duration_ns.sum()
    assert sum(row[2] for row in answers["1"]) == told
    steps = session.launches().groupby("step").duration_ns.agg(["count", "sum"])
    expected = [(step, *map(int, row)) for step, row in zip(steps.index, steps.values, strict=True)]
    assert answers["7"] == expected
    assert sum(row[-1] for row in answers["8"]) == session.idle_by_cause().duration_ns.sum()
