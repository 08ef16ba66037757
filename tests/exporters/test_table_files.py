"""Tables come back from their files as they were."""

from __future__ import annotations

import sys

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from profiler_ext.errors import MissingExtraError, UsageError
from tests import frames as tables
from tests.analyses import cpu_step, gpu_step
from tests.exporters.tabled import EVERY_TABLE, empty, one_place, two_steps

AWKWARD = 'a "quoted", \r\n| <b>`cell`</b> \\ é'


@pytest.mark.parametrize("table", EVERY_TABLE)
@pytest.mark.parametrize("analysis", [gpu_step(), cpu_step(), two_steps(), empty()])
def test_csv_comes_back_as_it_was(table, analysis, tmp_path):
    written = table(analysis)
    tables.write_csv(written, tmp_path / "table.csv")
    read = tables.read_csv(tmp_path / "table.csv")
    assert_frame_equal(read, written)
    assert read.attrs == written.attrs


@pytest.mark.parametrize("table", EVERY_TABLE)
@pytest.mark.parametrize("analysis", [gpu_step(), cpu_step(), two_steps(), empty()])
def test_parquet_comes_back_as_it_was(table, analysis, tmp_path):
    written = table(analysis)
    tables.write_parquet(written, tmp_path / "table.parquet")
    read = tables.read_parquet(tmp_path / "table.parquet")
    assert_frame_equal(read, written)
    assert read.attrs == written.attrs


MODEL = "(the model itself)"


@pytest.mark.parametrize(
    "name", ["", MODEL, "'" + MODEL, '"', '""', "NA", "None", "<NA>", "1", AWKWARD, "\r", " x "]
)
def test_csv_keeps_every_name(name, tmp_path):
    written = tables.by_module(one_place(module=name, module_class=None))
    tables.write_csv(written, tmp_path / "table.csv")
    assert_frame_equal(tables.read_csv(tmp_path / "table.csv"), written)


def test_the_model_itself_has_a_word_in_csv_and_markdown():
    table = tables.by_module(one_place(module="", module_class="GPT"))
    rows = tables.csv_text(table).splitlines()[1:]
    assert [row.split(",")[:2] for row in rows] == [[MODEL, "GPT"]]
    assert "| (the model itself) | GPT |" in tables.markdown_text(table)


def test_csv_of_an_absent_value_is_an_empty_cell():
    table = tables.by_phase(cpu_step()).assign(phase=pd.array([None, ""], dtype="string"))
    assert [line.split(",")[0] for line in tables.csv_text(table).splitlines()] == [
        "phase",
        "",
        '""""""',
    ]


def test_parquet_without_pyarrow_names_the_command(monkeypatch, tmp_path):
    table = tables.by_phase(gpu_step())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"run: pip install 'profiler-ext\[parquet\]'$"):
        tables.write_parquet(table, tmp_path / "table.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("read", [tables.read_csv, tables.read_parquet])
def test_a_file_that_is_no_table_is_refused(read, tmp_path):
    (tmp_path / "table").write_bytes(b"launches\nmany\n")
    with pytest.raises(UsageError, match=r"cannot read .*table as a table"):
        read(tmp_path / "table")


def test_markdown_keeps_names_in_their_cells():
    text = tables.markdown_text(tables.by_module(one_place(module=AWKWARD, module_class=None)))
    assert text.splitlines()[2].startswith(
        '| a "quoted",  \\| \\<b\\>\\`cell\\`\\</b\\> \\\\ é |  |  | 1 | 20001 |'
    )
    assert len(text.splitlines()) == 3
