"""Of several process groups the terminal and the page say on which a collective was called."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import profiler_ext
from profiler_ext.exporters.html.page import html_text
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Interned
from profiler_ext.sessions.merging import merge
from tests.analyses import gpu_step, report
from tests.cases.neutral import FOLDER, SUFFIX

EVIL = "mesh <tp>\x1b[31m"


def of_groups(*names: str) -> Analysis:
    """Return a rank of a recorded step, whose collectives are of these groups in turn."""
    analysis = profiler_ext.load(FOLDER / f"fsdp2.rank_0{SUFFIX}").analysis
    found = analysis.communication
    codes = np.arange(len(found.launch), dtype=np.int32) % len(names)
    return replace(
        analysis, communication=replace(found, process_group=Interned(codes, tuple(names)))
    )


def shown(analysis: Analysis) -> list[list[str]]:
    """Return the words of the rows of the table, its headings first."""
    text = report(analysis, by="communication", width=120)
    return [line.split() for line in text.partition("\ncollective ")[2].splitlines()]


def test_a_terminal_has_a_column_of_groups_where_there_are_several() -> None:
    heading, *rows = shown(of_groups("dp", "tp"))
    assert heading[:5] == ["time/step", "%", "total", "group", "exposed"]
    assert [(row[0], row[4]) for row in rows] == [
        ("_allgather_base", "dp"),
        ("_reduce_scatter_base", "tp"),
        ("_allgather_base", "tp"),
        ("_reduce_scatter_base", "dp"),
    ]
    assert "group" not in shown(of_groups("dp"))[0]


def test_the_page_has_a_row_for_each_collective_of_each_group() -> None:
    page = html_text([of_groups("dp", EVIL)])
    section = page.partition('<section id="communication">')[2].partition("</section>")[0]
    assert section.count("<td>dp</td>") == section.count("<td>mesh &lt;tp&gt;") == 2
    assert "<tp>" not in section and "\x1b" not in section
    assert '<section id="communication">' not in html_text([gpu_step()])


def test_of_several_ranks_the_page_says_how_long_they_waited() -> None:
    first = profiler_ext.load(FOLDER / f"ddp.rank_0{SUFFIX}")
    second = profiler_ext.load(FOLDER / f"ddp.rank_1{SUFFIX}")
    page = html_text(merge([first, second]).analyses)
    section = page.partition('<section id="communication">')[2].partition("</section>")[0]
    assert section.count('<th class="number">') == 4 and ">waiting</th>" in section


@pytest.mark.parametrize("whole", ["dp", "tp"])
def test_of_a_group_that_is_not_whole_the_page_does_not_say_how_long_it_waited(whole: str) -> None:
    analysis = of_groups("dp", "tp")
    found = analysis.communication
    is_named = found.process_group.where(whole)
    waiting = np.ma.MaskedArray(found.exposed_ns // 2, mask=~is_named)
    page = html_text([replace(analysis, communication=replace(found, waiting_ns=waiting))])
    section = page.partition('<section id="communication">')[2].partition("</section>")[0]
    rows = section.split("<tr>")[2:]
    assert ">waiting</th>" in section
    assert [f"<td>{whole}</td>" in row for row in rows] == ["unknown" not in row for row in rows]
