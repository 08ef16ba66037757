"""A comparison as a page, in a browser, and as a trace, in Perfetto's trace processor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import profiler_ext
from profiler_ext import cli
from profiler_ext.comparison.comparison import BY, compare
from profiler_ext.comparison.gate import judge
from profiler_ext.comparison.records import Verdict
from profiler_ext.comparison.sides import RunOfRanks
from profiler_ext.errors import UsageError
from profiler_ext.exporters.diff.texts import device_rows, signed
from profiler_ext.exporters.html.comparison import comparison_page, export_comparison
from profiler_ext.exporters.perfetto import export_sides
from tests.browser import open_page
from tests.comparison.by_hand import launch, run
from tests.comparison.recordings import H200, recorded
from tests.gate.by_hand import compared, program
from tests.trace_processor import Reader, reading

SLOWER = compared(program(), program(up=1_060_000, shift=4))
SMALL = "cases/graph_break", "cases/in_a_thread"
BEFORE, AFTER = (H200 / f"{name}.session.pt.trace.json.gz" for name in SMALL)
ON_STREAMS = "from slice s join track t on t.id = s.track_id where t.name like 'stream %'"


def test_a_browser_shows_what_changed_the_gate_and_each_table(tmp_path: Path) -> None:
    path = export_comparison(SLOWER, tmp_path / "c.html", judge(SLOWER, ["total > +3%"]))
    with open_page() as (page, troubles):
        page.goto(path.as_uri())
        assert page.inner_text("#total").startswith(
            "step as recorded: 10.1 ms -> 10.5 ms, +360 us (+3.6%)"
        )
        assert page.inner_text("#gate h2") == "Gate: 1 failed"
        assert "model.py:14  h = self.up(x)  +360 us" in page.inner_text("#gate tbody")
        lines = page.locator("#line tbody tr").all_inner_texts()
        (slower,) = (each for each in lines if "slower" in each)
        assert "model.py:10 -> :14" in slower and "+6.0%" in slower
        assert page.locator("main section[id] > details").count() == len(BY)
        page.click("#module summary")
        assert page.locator("#module tbody tr").first.is_visible()
        assert troubles == []


@pytest.mark.parametrize("by", ["line", "module", "op", "kernel", "phase"])
def test_each_changed_row_is_on_the_page_with_its_difference(by: str) -> None:
    text = comparison_page(SLOWER)
    section = text[text.index(f'<section id="{by}">') :].partition("</section>")[0]
    shown = re.findall(
        r'<tr class="(\w+)">(?:<td class="number">[^<]*</td>){2}<td class="number">([^<]*)<',
        section,
    )
    hidden = (Verdict.EQUAL, Verdict.NOT_SIGNIFICANT)
    rows = [r for r in device_rows(SLOWER.table(by)) if r.change.verdict not in hidden]
    assert rows
    elsewhere = (Verdict.NEW, Verdict.REMOVED)  # neither better nor worse
    verdicts = (row.change.verdict for row in rows)
    kinds = ["moved" if each in elsewhere else str(each) for each in verdicts]
    assert shown == [
        (kind, signed(row.change.delta_ns)) for kind, row in zip(kinds, rows, strict=True)
    ]


def test_work_that_moved_from_eager_to_compiled_is_neither_better_nor_worse() -> None:
    eager, compiled = (
        H200 / f"worked/gpt_{each}.session.pt.trace.json.gz" for each in ("eager", "compiled")
    )
    for sides, way in (
        ((eager, compiled), "eager to compiled"),
        ((compiled, eager), "compiled to"),
    ):
        text = comparison_page(profiler_ext.diff(*sides).comparison)
        breakdown = text[text.index('<section id="breakdown">') :].partition("</section>")[0]
        kinds = dict(re.findall(r'<tr class="(\w+)">.*?<b>(compiled|eager): ', breakdown))
        assert list(kinds) == ["moved"]
        assert breakdown.count(f"moved from {way}") == 2


def test_no_name_becomes_a_part_of_the_page() -> None:
    hostile = "</td><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m$style"
    steps = [[*step, launch(50, 3_000, hostile, module=hostile)] for step in program()]
    text = comparison_page(compare([run(program(), hostile)], [run(steps, hostile)]))
    assert "<script" not in text and "<img" not in text and "\x1b" not in text
    assert "&lt;script&gt;alert(1)" in text


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    path = tmp_path_factory.mktemp("comparison") / "c.pftrace"
    profiler_ext.diff(BEFORE, AFTER).export(path)
    with reading(path) as reader:
        yield reader


def test_a_trace_of_both_sides_is_taken_without_an_import_error(both: Reader) -> None:
    assert both.import_errors() == []


def test_each_group_of_tracks_says_whose_it_is(both: Reader) -> None:
    groups = [
        name for (name,) in both.rows("select name as name from track where parent_id is null")
    ]
    assert {name.partition(": ")[0] for name in groups} == {"base", "head"}
    assert {"base: GPU 0 - NVIDIA H200", "head: GPU 0 - NVIDIA H200"} <= set(groups)


def test_each_launch_of_both_sides_is_drawn_once_with_its_time(both: Reader) -> None:
    expected = [
        (f"{side}: GPU 0 - NVIDIA H200", launches.name[row], int(launches.duration_ns[row]))
        for side, name in zip(("base", "head"), SMALL, strict=True)
        for launches in (recorded(name).analyses[0].launches,)
        for row in range(len(launches))
        if launches.device[row] >= 0
    ]
    drawn = both.rows(
        "select p.name as side, s.name as name, s.dur as dur from slice s "
        "join track t on t.id = s.track_id join track p on p.id = t.parent_id "
        "where t.name like 'stream %'"
    )
    assert sorted(drawn) == sorted(expected)


def test_both_sides_begin_their_first_step_at_one_moment(both: Reader) -> None:
    firsts = both.rows(
        "select p.name as side, min(s.ts) as ts from slice s join track t on t.id = s.track_id "
        "join track p on p.id = t.parent_id where t.name = 'steps' group by p.name order by p.name"
    )
    assert [side.partition(":")[0] for side, _ in firsts] == ["base", "head"]
    assert firsts[0][1] == firsts[1][1]


def test_several_runs_of_one_process_number_have_their_own_tracks(tmp_path: Path) -> None:
    one, other = (recorded(name) for name in SMALL)
    runs = [one, replace(one, name="again")], [other]
    path = export_sides(runs, tmp_path / "c.pftrace")
    with reading(path) as reader:
        assert reader.import_errors() == []
        groups = reader.rows("select name as name from track where parent_id is null")
        assert {name.partition(": ")[0] for (name,) in groups} == {"base 1", "base 2", "head"}
        drawn = reader.rows(f"select count(*) as count {ON_STREAMS}")
    launches = [each.analyses[0].launches for each in (one, one, other)]
    assert drawn == [(sum(int((of.device >= 0).sum()) for of in launches),)]


def test_ranks_of_a_run_keep_what_their_clocks_differ_by(tmp_path: Path) -> None:
    ranks = [recorded(f"cases/ddp.rank_{n}").analyses[0] for n in (0, 1)]
    run_of_ranks = RunOfRanks("run", tuple(ranks))
    path = export_sides(([run_of_ranks], [recorded(SMALL[0])]), tmp_path / "c.pftrace")
    with reading(path) as reader:
        drawn = reader.rows(
            "select p.name as side, min(s.ts) as ts from slice s "
            "join track t on t.id = s.track_id join track p on p.id = t.parent_id "
            "where t.name = 'steps' group by p.name order by p.name"
        )
    assert [name.partition(" GPU")[0] for name, _ in drawn] == [
        "base: rank 0:",
        "base: rank 1:",
        "head:",
    ]
    first, second = (a.recording.trace.base_ns + a.steps[0].start_ns for a in ranks)
    assert drawn[1][1] - drawn[0][1] == second - first
    assert min(drawn[0][1], drawn[1][1]) == drawn[2][1]


def test_the_command_writes_what_it_is_asked_for(tmp_path: Path, capsys) -> None:
    page = tmp_path / "c.html"
    given = ["diff", str(BEFORE), str(AFTER), "--top", "1", "-o", str(page)]
    assert cli.main([*given, "--fail-if", "device > +900%", "--too-few", "warn"]) == 0
    assert "Gate: 1 too few" in page.read_text()
    assert f"written to {page}" in capsys.readouterr().err
    assert cli.main([*given[:-1], str(tmp_path / "c.pdf")]) == 2
    assert "is written as .html or .pftrace" in capsys.readouterr().err


def test_a_comparison_is_written_as_a_page_or_a_trace(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is written as .html or .pftrace"):
        profiler_ext.diff(BEFORE, AFTER).export(tmp_path / "c.csv")
