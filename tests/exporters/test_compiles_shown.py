"""Where compilations are drawn: a lane of Perfetto, and a section of report.html."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from pathlib import Path

from profiler_ext.exporters.html import html_text
from profiler_ext.exporters.notebook import session_html
from profiler_ext.exporters.perfetto import export_perfetto
from profiler_ext.exporters.views.compiles import compile_text
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.compiles import Compilation, CompilePhase, CompileSpan
from tests.analyses import gpu_step
from tests.exporters.test_compiles import AGAIN, FORWARD
from tests.trace_processor import reading

WITHIN = replace(
    AGAIN,
    started_ns=100_000,
    duration_ns=100,
    spans=(
        CompileSpan("dynamo", CompilePhase.DYNAMO, 100_000, 100, 0),
        CompileSpan("inductor_compile", CompilePhase.INDUCTOR, 100_040, 20, 1),
    ),
)
QUERY = """
select slice.name as name, slice.dur as dur, slice.depth as depth, track.name as track
from slice join track on slice.track_id = track.id
where slice.category = 'compile' order by slice.ts
"""


def of(*compiles: Compilation) -> Analysis:
    step = gpu_step()
    return replace(step, recording=replace(step.recording, compiles=compiles))


def test_perfetto_has_a_lane_of_the_compilations_within_the_trace(tmp_path: Path) -> None:
    before = replace(FORWARD, spans=(CompileSpan("dynamo", CompilePhase.DYNAMO, -5, 2, 0),))
    path = export_perfetto(of(before, WITHIN), tmp_path / "a.pftrace")
    with reading(path) as reader:
        found, errors = reader.rows(QUERY), reader.import_errors()
    assert found == [
        ("compile forward from /home/me/model.py:12 (0/1)", 100, 0, "compiling"),
        ("Inductor: inductor_compile", 20, 1, "compiling"),
    ]
    assert errors == []


def test_a_trace_in_which_nothing_was_compiled_has_no_such_lane(tmp_path: Path) -> None:
    path = export_perfetto(of(), tmp_path / "a.pftrace")
    with reading(path) as reader:
        assert reader.rows("select name from track where name = 'compiling'") == []


def test_the_page_has_a_row_for_each_compilation_and_its_texts_are_escaped() -> None:
    hostile = replace(WITHIN, function="<script>alert(1)</script>")
    page = html_text([of(FORWARD, hostile)])
    section = page.partition('<section id="compiles">')[2].partition("</section>")[0]
    assert section.count("<tr><td") == 2
    assert "forward at /home/me/model.py:12 (0/0)" in section
    assert "again, as 0/0 failed: n == 1" in section
    assert "&lt;script&gt;alert(1)" in section and "<script>" not in section
    assert '<section id="compiles">' not in html_text([of()])


def test_a_notebook_says_what_compiling_took() -> None:
    assert f"<p>{escape(compile_text(of(FORWARD)) or '')}</p>" in session_html([of(FORWARD)])
    assert "compiling took" not in session_html([of()])


def test_the_page_shows_the_longest_and_the_rest_can_be_opened() -> None:
    many = (replace(WITHIN, index=index, duration_ns=index + 1) for index in range(25))
    section = html_text([of(*many)]).partition('<section id="compiles">')[2]
    assert "<summary>5 more</summary>" in section.partition("</section>")[0]
