"""Every export of a session counts eager and compiled work of a line together."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from profiler_ext.exporters.chrome_trace import export_chrome_trace
from profiler_ext.exporters.html.data import report_data
from profiler_ext.exporters.html.links import link
from profiler_ext.exporters.html.page import html_text
from profiler_ext.exporters.perfetto import export_perfetto
from profiler_ext.exporters.perfetto.flows import forward_launches
from profiler_ext.exporters.tensorboard_plugin.document import SUFFIX, Document, read_checked
from profiler_ext.exporters.tensorboard_plugin.export import export_tensorboard
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.share_sums import largest_places
from profiler_ext.records.vocabulary import LaunchKind
from profiler_ext.sessions.session import load
from tests import frames as tables
from tests.attribution.reading import assert_conserves
from tests.eager_session import PROGRAM, eager_session
from tests.handmade import pieces
from tests.trace_processor import reading

EAGER_BLOCK, COMPILED_BLOCK = "blocks.0", "blocks.1"
SOURCE = {"/src/train.py": PROGRAM.read_text()}
SHARED_LINES = {16, 17}
"""The lines of the block that runs eagerly and compiled."""


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return eager_session().analysis


def line_of(code: str) -> int:
    numbers = [at for at, text in enumerate(PROGRAM.read_text().splitlines(), 1) if code in text]
    assert len(numbers) == 1
    return numbers[0]


def time_by_line(analysis: Analysis, **filters: Any) -> dict[int, int]:
    table = tables.by_line(analysis, **filters)
    return dict(zip(table["line"].tolist(), table["duration_ns"].tolist(), strict=True))


def test_all_of_it_is_attributed_and_adds_up(analysis: Analysis) -> None:
    assert_conserves(analysis)
    session = eager_session()
    for scope in ("compiled", "eager", "all"):
        session.assert_coverage(1.0, scope=scope)
    assert session.notes == ()


def test_a_line_that_ran_both_ways_is_one_row_and_scopes_tell_its_parts_apart(
    analysis: Analysis,
) -> None:
    whole = time_by_line(analysis)
    compiled, eager = (time_by_line(analysis, scope=each) for each in ("compiled", "eager"))
    assert compiled.keys() & eager.keys() >= SHARED_LINES
    assert whole == {at: compiled.get(at, 0) + eager.get(at, 0) for at in whole}
    tops = set(tables.by_module(analysis, scope="compiled")["module"].dropna())
    assert {top.rpartition(".")[0] or top for top in tops} == {COMPILED_BLOCK, "blocks", "broken"}


def test_launches_say_their_scope(analysis: Analysis) -> None:
    launches = tables.launches(analysis)
    by_scope = launches.groupby("scope")["duration_ns"].sum().to_dict()
    assert by_scope == {
        scope: int(tables.by_phase(analysis, scope=scope)["duration_ns"].sum())
        for scope in ("compiled", "eager")
    }
    compiled = launches[launches["scope"] == "compiled"]
    assert set(compiled["kind"]) <= {LaunchKind.CPP, LaunchKind.EXTERN}
    assert (compiled["graph"].notna()).all()


def test_backward_of_an_eager_line_has_the_line_of_its_forward(analysis: Analysis) -> None:
    rows = tables.attribution(analysis)
    backward = rows[(rows["phase"] == "backward") & (rows["module"] == f"{EAGER_BLOCK}.norm")]
    assert set(backward["line"]) == {line_of("functional.gelu")}
    assert set(backward["evidence"]) == {"line_of_forward_op"}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_table_files_say_the_same(analysis: Analysis, tmp_path: Path, suffix: str) -> None:
    folder = eager_session().export(tmp_path / f"tables.{suffix}")
    read = tables.read_csv if suffix == "csv" else tables.read_parquet
    for name in ("launches", "idle_by_line", "idle_by_cause", "coverage"):
        expected = eager_session().table(name)
        pd.testing.assert_frame_equal(read(folder / f"{name}.{suffix}"), expected)


def test_idle_time_is_attributed_to_the_lines_that_waited(analysis: Analysis) -> None:
    table = tables.idle_by_line(analysis)
    idle = tables.coverage(analysis).query("scope == 'idle'")["duration_ns"].sum()
    assert int(table["duration_ns"].sum()) == int(idle)
    lines = set(table["line"].dropna())
    assert {line_of("loss.backward()"), line_of("optimizer.step()")} <= lines
    assert set(table["file"].dropna()) == {"/src/train.py"}
    one = tables.idle_by_line(analysis, step=3)
    assert 0 < int(one["duration_ns"].sum()) < int(idle)
    assert len(tables.idle_by_line(analysis, rank=1)) == 0


def test_the_report_says_how_much_is_attributed_and_where_the_device_waited() -> None:
    report = eager_session().report(verbose=True)
    assert "eager: attributed to source" in report
    assert "Attributed to source: compiled 100.0%, eager 100.0%." in report
    assert (
        f"CPU launch overhead at train.py:{line_of('loss.backward()')}  loss.backward()" in report
    )
    assert f"train.py:{line_of('functional.gelu')}" in report
    by_idle = eager_session().report(by="idle", format="csv")
    assert by_idle.startswith("device,file,line,function,code,user_file,user_line,module")


def test_a_notebook_shows_the_same() -> None:
    shown = eager_session()._repr_html_()
    assert "eager: attributed to source" in shown
    assert "Attributed to source: compiled 100.0%, eager 100.0%." in shown
    assert f"CPU launch overhead at train.py:{line_of('loss.backward()')}  loss.backward()" in shown


def test_annotated_source_has_eager_time_in_its_margin(analysis: Analysis) -> None:
    (file,) = json.loads(eager_session().annotate("train.py", format="json"))["files"]
    shown = {row["line"]: sum(row["phases_ns"].values()) for row in file["lines"]}
    assert {at: time for at, time in shown.items() if time} == time_by_line(analysis)


def test_the_page_holds_the_time_of_each_line(analysis: Analysis) -> None:
    data, _ = report_data([analysis], SOURCE)
    whole = data["slices"][0]
    times = iter(whole["times"])
    time: dict[int, int] = {}
    for site in whole["sites"]:
        for place in data["sites"][site][-1]:
            _, line = data["lines"][data["places"][place][0]]
            time[line] = time.get(line, 0) + next(times)
    assert time == time_by_line(analysis)
    page = html_text([analysis], SOURCE)
    assert "Attributed to source: compiled 100.0%, eager 100.0%." in page
    line = f"train.py:{line_of('loss.backward()')}"
    assert f"CPU launch overhead at {link('line', line)}  loss.backward()" in page


def test_perfetto_draws_lines_modules_and_waiting(analysis: Analysis, tmp_path: Path) -> None:
    with reading(export_perfetto(analysis, tmp_path / "trace.pftrace")) as reader:
        assert reader.import_errors() == []
        drawn = dict(reader.rows("select name, count(*) as n from slice group by name"))
        waiting = reader.rows("""
            select extract_arg(arg_set_id, 'debug.source_paths[0]') as path from slice
            where category = 'idle' and name glob 'idle: * at train.py:*'
        """)
        scopes = reader.rows("""
            select extract_arg(arg_set_id, 'debug.scope') as scope, count(*) as n from slice
            where scope is not null group by scope order by scope
        """)
    assert {f"train.py:{line}" for line in time_by_line(analysis)} <= {
        name.partition("  ")[0] for name in drawn
    }
    assert {EAGER_BLOCK, f"{EAGER_BLOCK}.up", COMPILED_BLOCK, "broken", "head"} <= drawn.keys()
    at = [piece.place for piece in pieces(analysis) if piece.place.file is not None]
    assert len(at) > 200
    assert sorted(path for (path,) in waiting) == sorted(f"{p.file}:{p.line}" for p in at)
    codes = analysis.launches.scope.where("compiled")
    assert scopes == [("compiled", int(codes.sum())), ("eager", int((~codes).sum()))]


def test_arrows_lead_from_an_eager_forward_to_its_backward(analysis: Analysis) -> None:
    launches, pairs = analysis.launches, forward_launches(analysis)
    lines = launch_lines(analysis)
    eager = {b: f for b, f in pairs.items() if launches.scope[b] == "eager"}
    assert {launches.phase[row] for row in eager} == {"backward"}
    assert {launches.phase[row] for row in eager.values()} == {"forward"}
    assert all(lines[backward] == lines[forward] for backward, forward in eager.items())
    is_wanted = launches.phase.where("backward") & launches.scope.where("eager")
    assert eager.keys() == set(np.flatnonzero(is_wanted & (launches.step == 2)).tolist())


def launch_lines(analysis: Analysis) -> list[tuple[object, ...]]:
    """Return the line and module of each launch's largest part."""
    places = [analysis.places[place] for place in largest_places(analysis)]
    return [(place.file, place.line, place.module) for place in places]


def test_a_trace_for_chrome_loads_back_with_the_same_lines(
    analysis: Analysis, tmp_path: Path
) -> None:
    path = export_chrome_trace(analysis, tmp_path / "trace.pt.trace.json.gz")
    again = load(path).analysis
    pd.testing.assert_frame_equal(tables.by_line(again), tables.by_line(analysis))
    pd.testing.assert_frame_equal(tables.idle_by_line(again), tables.idle_by_line(analysis))
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    linears = [
        event["args"]
        for event in events
        if event.get("name") == "aten::linear" and event["args"].get("compile.scope") == "eager"
    ]
    position = f"train.py:{line_of('self.down(hidden)')}"
    assert [args for args in linears if args["compile.lines"][0].startswith(position)]


def test_tensorboard_shows_eager_lines(analysis: Analysis, tmp_path: Path) -> None:
    export_tensorboard(analysis, tmp_path)
    (path,) = tmp_path.glob(f"*{SUFFIX}")
    document = msgspec.json.decode(read_checked(path), type=Document)
    shown = {row.line: sum(row.phase_ns) for row in document.tables.line}
    assert shown == time_by_line(analysis)
    assert "eager: attributed to source" in {account.name for account in document.breakdown}
    assert "Attributed to source: compiled 100.0%, eager 100.0%." in document.overview
    assert any("CPU launch overhead at train.py:" in text for text in document.overview)


@pytest.mark.filterwarnings("ignore:.*copy keyword.*")
@pytest.mark.filterwarnings("ignore:Downcasting object dtype arrays")
def test_the_stock_plugin_reads_it(
    analysis: Analysis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = pytest.importorskip("torch_tb_profiler.profiler.data")
    path = export_tensorboard(analysis, tmp_path)
    with caplog.at_level(logging.WARNING):
        parsed = data.RunProfileData.parse("rank0", None, str(path), str(tmp_path))
    names = {stat.name for stat in parsed.op_list_groupby_name}
    position = f"train.py:{line_of('self.down(hidden)')}"
    assert f"[forward] aten::linear @ {position}" in names
    assert f"[forward] aten::linear @ train.py:{line_of('self.head(')}" in names


def test_ranks_together_sum_eager_and_idle_time_by_line(analysis: Analysis) -> None:
    two = [analysis, analysis]
    merged = tables.of_ranks(two, analysis.recording.trace.base_ns, "by_line")
    assert dict(zip(merged["line"], merged["duration_ns"], strict=True)) == {
        line: 2 * time for line, time in time_by_line(analysis).items()
    }
    idle = tables.of_ranks(two, analysis.recording.trace.base_ns, "idle_by_line")
    assert int(idle["duration_ns"].sum()) == 2 * int(
        tables.idle_by_line(analysis)["duration_ns"].sum()
    )
