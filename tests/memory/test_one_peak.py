"""The peak of a step is one number of bytes wherever it is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler_ext import cli
from profiler_ext.exporters.html import html_text
from profiler_ext.exporters.json_output import answers
from profiler_ext.exporters.perfetto import export_perfetto
from profiler_ext.exporters.tables import folders, read_csv
from profiler_ext.exporters.tensorboard_plugin.writing import make_document
from profiler_ext.memory.over_time import memory_of_steps
from profiler_ext.serving.folders import Folders
from profiler_ext.serving.handlers import answer_call
from tests.memory.test_recorded_peaks import PEAKS, RECORDED, recorded
from tests.trace_processor import reading

NAME = "gpt_graphs"
PEAK = PEAKS[NAME][0]
SESSION = RECORDED / f"{NAME}.session.pt.trace.json.gz"
ON_DEVICE = "t.name glob 'GPU 0 *' and t.name != 'GPU 0 allocated'"


def test_every_output_has_the_allocators_peak(tmp_path: Path) -> None:
    analysis = recorded(NAME).analysis
    folders.export_csv(analysis, tmp_path)
    of_csv = read_csv(tmp_path / "by_memory.csv").query("device == 0 and step == 5")
    assert of_csv.peak_bytes.sum() == PEAK
    report = answers.report_answer(recorded(NAME))
    of_json = next(each for each in report.memory if each.device == 0)
    assert (of_json.peak_bytes, sum(of_json.kinds_bytes.values())) == (PEAK, PEAK)
    table = json.loads(recorded(NAME).report("memory", format="json", top=None))["rows"]
    assert sum(r["peak_bytes"] for r in table if (r["device"], r["step"]) == (0, 5)) == PEAK
    assert f"({PEAK:,} bytes) in step 5" in html_text([analysis])
    assert f"({PEAK:,} bytes) in step 5" in recorded(NAME).report("memory")


def test_the_trace_processor_reads_the_same_by_kind(tmp_path: Path) -> None:
    analysis = recorded(NAME).analysis
    at_ns = next(each.peak_ns for each in memory_of_steps(analysis) if each.peak.step == 5)
    with reading(export_perfetto(analysis, tmp_path / "trace.pftrace")) as reader:
        rows = reader.rows(
            "select sum(c.value) from counter c join counter_track t on c.track_id = t.id "
            f"where c.ts = {at_ns} and {ON_DEVICE}"
        )
    assert rows == [(float(PEAK),)]


def test_what_lines_explain_and_the_rest_of_the_table_are_the_peak() -> None:
    table = [
        row
        for row in recorded(NAME).columns("by_memory", step=5).records()
        if row["device"] == 0 and row["peak_bytes"]
    ]
    lines = {row["line"] for row in table if row["line"] is not None}
    explained = 0
    for line in lines:
        answer = json.loads(
            recorded(NAME).explain(f"line:memory47_program.py:{line}", format="json")
        )
        explained += sum(m["peak_bytes"] for m in answer["memory"] if m["device"] == 0)
    assert explained + sum(row["peak_bytes"] for row in table if row["line"] is None) == PEAK


def test_the_server_has_the_table_and_the_peak() -> None:
    served = Folders.of([RECORDED])
    opened = answer_call(served, "open_session", {"session": str(SESSION), "budget": 60_000})
    assert [each["peak_bytes"] for each in opened.document["memory"] if each["device"] == 0] == [
        PEAK
    ]
    asked = {"session": str(SESSION), "by": "memory", "step": 5, "top": 3}
    answered = answer_call(served, "report", asked)
    assert not answered.is_error and answered.document["answer"] == "by_memory"
    assert len(answered.document["rows"]) == 3


def test_a_session_without_a_record_says_how_to_make_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = RECORDED.parent / "mlp.session.pt.trace.json.gz"
    served = Folders.of([RECORDED.parent])
    reply = answer_call(served, "report", {"session": str(other), "by": "memory"})
    assert reply.is_error and "run --memory" in reply.document["message"]
    assert cli.main(["report", str(other), "--memory"]) == 2
    assert "run --memory" in capsys.readouterr().err


def test_the_first_screen_has_a_line_on_the_peak(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(SESSION)]) == 0
    (line,) = (each for each in capsys.readouterr().out.splitlines() if "peak memory" in each)
    assert line.split()[:4] == ["peak", "memory", "206", "MiB"]
    assert "optimizer state 50.3%, parameters 24.9%" in line


def test_tensorboards_overview_has_the_peak() -> None:
    overview = make_document(recorded(NAME).analysis).overview
    assert [each for each in overview if f"({PEAK:,} bytes) in step 5, optimizer at" in each]
