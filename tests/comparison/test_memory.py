"""Two sides' memory at the peak: line by line, in every output, and as a gate."""

from __future__ import annotations

import json
from functools import lru_cache
from html import escape
from pathlib import Path

import pytest

from profiler_ext import diff
from profiler_ext.comparison.comparison import Comparison
from profiler_ext.comparison.gate import Outcome, judge
from profiler_ext.errors import UsageError
from profiler_ext.exporters.diff.gate import result_lines, workflow_commands
from profiler_ext.exporters.html.comparison import comparison_page
from profiler_ext.exporters.json_output.comparison import comparison_answer
from profiler_ext.sessions.comparing import ComparedSessions
from profiler_ext.sessions.session import Session
from tests.analyses import gpu_step
from tests.memory.test_recorded_peaks import PEAKS, recorded

BASE, HEAD = "gpt_compiled", "gpt_eager"


@lru_cache
def compared() -> ComparedSessions:
    return diff(recorded(BASE), recorded(HEAD))


def comparison() -> Comparison:
    return compared().comparison


def test_the_rows_add_up_to_both_peaks() -> None:
    memory = comparison().memory
    assert memory is not None
    assert (memory.base_bytes, memory.head_bytes) == (max(PEAKS[BASE]), max(PEAKS[HEAD]))
    assert sum(row.base_bytes for row in memory.rows) == memory.base_bytes
    assert sum(row.head_bytes for row in memory.rows) == memory.head_bytes
    changes = [abs(row.delta_bytes) for row in memory.rows]
    assert changes == sorted(changes, reverse=True)


def test_a_line_is_one_row_of_both_sides() -> None:
    memory = comparison().memory
    assert memory is not None
    of_line = {row.subject.line: row for row in memory.rows if row.subject.file is not None}
    assert len(of_line) == sum(row.subject.file is not None for row in memory.rows)
    assert (of_line[34].base_bytes, of_line[34].head_bytes) == (512, 169_869_824)
    kinds = {row.subject.kind for row in memory.rows if row.subject.file is None}
    assert {"parameters", "optimizer_state", "workspaces"} <= kinds


def test_the_texts_say_it() -> None:
    said = "peak memory: 404 MiB -> 513 MiB, +109 MiB (+26.9%)"
    row = "512 B   162 MiB   +162 MiB"
    text = compared().report(top=1)
    assert said in text and row in text
    markdown = compared().report(top=1, format="md")
    assert "| 512 B | 162 MiB | +162 MiB | memory47\\_program.py:34" in markdown
    page = comparison_page(comparison())
    assert escape(said) in page and 'id="memory"' in page and "+162 MiB" in page


def test_the_answer_has_all_rows() -> None:
    cut = json.loads(compared().report(top=3, format="json"))
    assert len(cut["memory"]["rows"]) == 3
    memory = json.loads(compared().report(top=None, format="json"))["memory"]
    left = [each["total"] for each in cut["cuts"] if each["where"] == "memory.rows"]
    assert left == [len(memory["rows"])]
    assert memory["base"]["peak_bytes"] == sum(row["base_bytes"] for row in memory["rows"])
    assert memory["head"]["peak_bytes"] == sum(row["head_bytes"] for row in memory["rows"])
    assert sum(memory["head"]["kinds_bytes"].values()) == memory["head"]["peak_bytes"]


@pytest.mark.parametrize(
    ("condition", "outcome"),
    [
        ("memory > +5%", Outcome.FAILED),
        ("memory > +100MiB", Outcome.FAILED),
        ("memory > +110MiB", Outcome.PASSED),
        ("memory > +5% and > +110MiB", Outcome.PASSED),
        ("memory < -1%", Outcome.PASSED),
    ],
)
def test_a_gate_fails_on_the_peak(condition: str, outcome: Outcome) -> None:
    gate = judge(comparison(), [condition])
    assert gate.outcome is outcome
    if outcome is Outcome.FAILED:
        (result,) = gate.results
        assert result.judged[0].lines[0].subject.line == 34
        assert "+162 MiB" in "\n".join(result_lines(result))
        (command,) = workflow_commands(gate, comparison(), Path("/"))
        assert command.startswith("::error file=") and "line=34" in command
    facts = comparison_answer(comparison(), gate=gate).gate
    assert facts is not None and facts.conditions[0].checked[0].unit == "bytes"


def test_a_side_without_a_record_is_a_note_and_no_gate() -> None:
    without = Session(gpu_step().recording)
    one_sided = diff(recorded(BASE), without)
    assert one_sided.comparison.memory is None
    assert "only the base has a memory record" in one_sided.report()
    with pytest.raises(UsageError, match="run --memory"):
        judge(one_sided.comparison, ["memory > +5%"])
    assert "memory" not in diff(without, without).report()
