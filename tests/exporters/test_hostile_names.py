"""No name steers a terminal, runs in a spreadsheet or ends a table, and none is lost in a file."""

from __future__ import annotations

import csv
import io
import json
import re

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from profiler_ext.errors import CaptureWarning, OutputError
from profiler_ext.exporters import notebook
from profiler_ext.exporters.html import html_text
from profiler_ext.exporters.perfetto import export_perfetto
from profiler_ext.exporters.tensorboard_plugin.writing import make_document
from profiler_ext.exporters.terminal.annotate import annotate
from profiler_ext.printable import printable, printable_lines
from profiler_ext.sessions.session import Session
from tests import frames as tables
from tests.analyses import gpu_step
from tests.exporters.hostile import HOSTILE, STEERING, hostile_step, steering
from tests.exporters.tabled import EVERY_TABLE

NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?")


def is_formula(cell: str) -> bool:
    return cell.startswith(tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")) and not NUMBER.fullmatch(
        cell
    )


@pytest.mark.parametrize("form", ["text", "csv", "json", "md"])
def test_no_report_steers_a_terminal_and_each_keeps_its_lines(form):
    session = Session(hostile_step().recording)
    session.analysis = hostile_step()
    for by in ("line", "module", "op", "kernel", "compile"):
        text = session.report(by, None, form)
        assert steering(text) == set()
        assert "\nprofiler-ext: all is well" not in text


def test_annotated_source_and_what_a_notebook_shows_steer_nothing():
    assert steering(annotate([hostile_step()], {})) == set()
    page = notebook.session_html([hostile_step()])
    assert steering(page) == set()
    assert "<script" not in page and "<img" not in page


def test_no_cell_is_a_formula_in_a_file_or_on_standard_output():
    for make in EVERY_TABLE:
        table = make(hostile_step())
        for text in (tables.csv_text(table), tables.printed_csv(table)):
            rows = list(csv.reader(io.StringIO(text, newline="")))
            assert {len(row) for row in rows} == {len(table.columns)}
            assert [cell for row in rows for cell in row if is_formula(cell)] == []


def test_every_column_comes_back_from_csv_as_it_was(tmp_path):
    for make in EVERY_TABLE:
        table = make(hostile_step())
        tables.write_csv(table, tmp_path / "table.csv")
        assert_frame_equal(tables.read_csv(tmp_path / "table.csv"), table)


def column():
    """Return a table whose modules have the names."""
    names = HOSTILE.values()
    table = tables.by_module(gpu_step()).head(1)
    repeated = pd.concat([table] * len(names), ignore_index=True)
    return repeated.assign(module=pd.array(list(names), dtype="string"))


def test_every_name_comes_back_from_csv_and_with_pandas_alone_by_one_call(tmp_path):
    tables.write_csv(column(), tmp_path / "table.csv")
    assert tables.read_csv(tmp_path / "table.csv").module.tolist() == list(HOSTILE.values())
    read = pd.read_csv(tmp_path / "table.csv", lineterminator="\n").replace("^'", "", regex=True)
    assert read.module.tolist() == list(HOSTILE.values())
    assert read.duration_ns.tolist() == column().duration_ns.tolist()


def test_no_name_is_a_formula_or_steers_what_a_terminal_gets():
    names = list(HOSTILE.values())
    for text in (tables.csv_text(column()), tables.printed_csv(column())):
        rows = list(csv.reader(io.StringIO(text, newline="")))
        assert len(rows) == 1 + len(names)
        assert [cell for row in rows for cell in row if is_formula(cell)] == []
    assert steering(tables.printed_csv(column())) == set()
    head, _, *rows = tables.markdown_text(column()).splitlines()
    assert len(rows) == len(names)
    assert {cells(row) for row in rows} == {cells(head)}
    assert [row for row in rows if re.search(r"(?<!\\)[<`]", row) or steering(row)] == []


def cells(row):
    return len(re.findall(r"(?<!\\)(?:\\\\)*\|", row))


def test_negative_numbers_stay_numbers(tmp_path):
    table = tables.launches(gpu_step()).assign(start_ns=pd.array([-5] * 9, dtype="Int64"))
    table = table.assign(name=pd.array(["-5"] * 9, dtype="string"))
    tables.write_csv(table, tmp_path / "table.csv")
    plain = pd.read_csv(tmp_path / "table.csv")
    assert (plain.start_ns.tolist(), plain.name.tolist()) == ([-5] * 9, ["'-5"] * 9)
    assert_frame_equal(tables.read_csv(tmp_path / "table.csv"), table)


def test_the_report_s_page_has_no_element_and_no_control_of_a_name():
    page, plain = html_text([hostile_step()]), html_text([gpu_step()])
    for element in ("<script", "</script>", "<img", "<!--", "alert(1)</"):
        assert page.count(element) == plain.count(element)
    (data,) = re.findall(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.S)
    assert [text for text in strings(json.loads(data)) if steering(text) - {"\n"}] == []
    assert steering(page) - {"\t"} == steering(plain) - {"\t"}


def test_tensorboard_s_view_has_no_control_of_a_name():
    document = make_document(hostile_step())
    shown = [
        document.heading,
        *document.notes,
        *document.ops,
        *(text for file in document.files for _, text in file.lines),
        *(file.name for file in document.files),
        *(text for row in (*document.tables.line, *document.tables.kernel) for text in row.names),
        *(text for row in document.tables.module for text in row.names),
    ]
    assert [text for text in shown if steering(text)] == []


def test_a_perfetto_trace_has_every_kernel_s_name_as_it_is(tmp_path):
    export_perfetto(hostile_step(), tmp_path / "trace.pftrace")
    data = (tmp_path / "trace.pftrace").read_bytes()
    kernels = {name for name in hostile_step().launches.kernel.strings if name}
    assert [name for name in kernels if name.encode() not in data] == []


@pytest.mark.parametrize("name", STEERING.values(), ids=STEERING)
def test_errors_and_warnings_steer_nothing(name):
    for kind in (OutputError, CaptureWarning):
        assert steering(str(kind(f"cannot read {name}"))) == set()
    assert str(OutputError("two\nlines")) == "two\nlines"


def test_printable_text_stays_as_it_is():
    for text in ("", "héllo 世界 🎉", "a b", "x" * 1000):
        assert printable(text) is text
    assert printable("a\tb\x1b") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    assert printable_lines("if x:\n\ty\r\n") == "if x:\n        y\N{REPLACEMENT CHARACTER}\n"


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
