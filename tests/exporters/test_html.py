"""The page needs no network, shows the ledger and the top rows, and runs no name as code."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from exporters.html import export_html, html_text
from profiler_ext.errors import OutputError
from profiler_ext.records import Analysis, LedgerLine, Recording, Settings, Step
from tests.analyses import GPU_MARKS, GPU_PLACES, GPU_ROWS, cpu_step, gpu_step
from tests.handmade import launches, shares, trace

EVIL = "\"'></script><img onerror=alert(1) src=x>"


class Page(HTMLParser):
    """The tags of a page, its tables as rows of cells, and its texts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.tables = [], [], [], []
        self.in_cell = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag):
        self.in_cell = self.in_cell and tag not in ("td", "th")

    def handle_data(self, data):
        self.texts.append(data)
        if self.in_cell:
            self.tables[-1][-1][-1] += data.strip()


def cells(page, number):
    return [tuple(row) for row in page.tables[number]]


def evil():
    places = tuple(
        replace(
            place,
            module=EVIL,
            module_class=EVIL,
            file=EVIL,
            code=EVIL,
            aten_op=EVIL,
            gap=place.gap and EVIL,
        )
        for place in GPU_PLACES
    )
    marks = tuple(replace(mark, name=EVIL) for mark in GPU_MARKS)
    kernels = launches(marks, tuple(replace(row, kernel=EVIL) for row in GPU_ROWS))
    return replace(
        gpu_step(),
        recording=Recording(trace(marks), settings=Settings(command=(EVIL,), torch_version=EVIL)),
        places=places,
        launches=kernels,
        idle=tuple(replace(span, cpu_activity=EVIL) for span in gpu_step().idle),
        ledger=(LedgerLine(3, 0, "compiled", EVIL, 10), LedgerLine(3, 0, "idle", "idle", 5)),
        notes=(EVIL,),
    )


def test_the_ledger_adds_up_to_the_wall_time():
    assert cells(Page(html_text(gpu_step())), 0) == [
        ("time", "part", "", "wall time of the steps"),
        ("130 us", "13.0%", "", "compiled: led to source lines"),
        ("20.0 us", "2.0%", "", "compiled: library calls with an open boundary"),
        ("74.5 us", "7.5%", "", "eager: led to ATen ops only"),
        ("775 us", "77.5%", "", "device idle"),
        ("1.00 ms", "100.0%", "", "total"),
    ]


def test_lines_have_their_time_by_phase():
    phases = ("forward", "backward", "gradient accumulation", "optimizer", "other")
    assert cells(Page(html_text(gpu_step())), 1)[:4] == [
        ("time", "part", "", *phases, "line", "code"),
        ("100 us", "42.6%", "", "50.0 us", "50.0 us", "", "", "", "model.py:12", "h = self.up(x)"),
        ("74.5 us", "31.8%", "", "", "", "4.00 us", "60.5 us", "10.0 us", "(no source line)", ""),
        ("33.3 us", "14.2%", "", "13.3 us", "20.0 us", "", "", "", "model.py:13", "h = F.gelu(h)"),
    ]


def test_modules_and_kernels_have_their_tables():
    page = Page(html_text(cpu_step()))
    assert cells(page, 2)[1] == ("100 us", "47.6%", "", "100 us", "", "mlp.up", "Linear")
    assert cells(page, 3)[1:] == [
        ("100 us", "47.6%", "", "100 us", "", "extern_kernels.addmm", "extern"),
        ("60.0 us", "28.6%", "", "60.0 us", "", "cpp_fused_gelu_0", "cpp"),
        ("50.0 us", "23.8%", "", "", "50.0 us", "aten::_fused_adamw_", "eager"),
    ]


def test_a_step_has_a_bar_by_phase():
    text = html_text(cpu_step())
    assert "step 0: 500 us, device busy 42.0%" in text
    assert (
        '<span class="forward" style="width:76.191%" title="forward 160 us"></span>'
        '<span class="optimizer" style="width:23.809%" title="optimizer 50.0 us"></span>'
    ) in text


def test_cells_carry_nanoseconds_to_sort_by():
    assert '<td class="number" data-value="100000">47.6%</td>' in html_text(cpu_step())


def test_no_name_becomes_a_tag_or_an_attribute():
    page, plain = Page(html_text(evil())), Page(html_text(gpu_step()))
    assert set(page.tags) == set(plain.tags)
    assert "img" not in page.tags
    assert "onerror" not in page.attributes
    assert page.tags.count("script") == 1
    assert EVIL in cells(page, 2)[1][-1]


def test_the_policy_lets_only_the_pages_own_script_run():
    text = html_text(gpu_step())
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text


def test_the_page_asks_for_nothing_from_the_network():
    page = Page(html_text(gpu_step()))
    assert {"src", "href", "action"}.isdisjoint(page.attributes)
    assert "url(" not in html_text(gpu_step())


def test_what_is_left_out_is_counted():
    places = tuple(replace(GPU_PLACES[1], line=number) for number in range(60))
    row = replace(GPU_ROWS[1], parts=tuple((at, 50_000 // 60 + (at < 20)) for at in range(60)))
    analysis = replace(
        gpu_step(), places=places, launches=launches(GPU_MARKS, (row,)), shares=shares((row,))
    )
    table = cells(Page(html_text(analysis)), 1)
    assert len(table) == 52
    assert table[-1] == ("8.33 us", "16.7%", "", "", "(10 more)")


def test_many_steps_are_counted():
    steps = tuple(Step(number, number * 10, number * 10 + 10) for number in range(15))
    text = html_text(replace(gpu_step(), steps=steps))
    assert "step 11: 10 ns" in text
    assert "step 12: 10 ns" not in text
    assert "and 3 more steps" in text


def test_nothing_recorded_says_so_and_keeps_the_notes():
    recording = Recording(trace=trace(()))
    analysis = Analysis(recording, (), launches((), ()), (), shares(()), notes=("capture was off",))
    page = Page(html_text(analysis))
    assert "No step was profiled, so there is nothing to sum." in page.texts
    assert "capture was off" in page.texts
    assert page.tables == []


def test_the_page_is_written_as_it_is(tmp_path):
    export_html(gpu_step(), tmp_path / "deep" / "report.html")
    written = (tmp_path / "deep" / "report.html").read_text(encoding="utf-8")
    assert written == html_text(gpu_step())
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["report.html"]


def test_a_name_that_is_no_unicode_is_written(tmp_path):
    analysis = replace(gpu_step(), notes=("lone \ud800 surrogate",))
    export_html(analysis, tmp_path / "report.html")
    assert "lone \ufffd surrogate" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(OutputError):
        export_html(gpu_step(), tmp_path / "taken" / "report.html")
