"""Each list has one home: a row there is all that a new format, table or extra needs."""

from __future__ import annotations

import inspect
import json
import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from profiler_ext import cli
from profiler_ext.cli import run
from profiler_ext.errors import UsageError
from profiler_ext.exporters import formats, table_kinds
from profiler_ext.exporters import tables as made_tables
from profiler_ext.exporters.extras import CLUSTER, COMPLETION, EXTRAS, MCP, TRAINING
from profiler_ext.exporters.formats import FILE_NAME, FORMATS, SESSION, Format, format_of
from profiler_ext.exporters.table_kinds import (
    BY,
    PRINT_FORMATS,
    TABLES,
    WRITTEN,
    PrintFormat,
    TableKind,
    load_function,
)
from profiler_ext.exporters.tables.schema import COLUMNS
from profiler_ext.records.analysis import Analysis
from profiler_ext.sessions import output
from profiler_ext.sessions.session import Session
from profiler_ext.sessions.session_tables import SessionTables
from tests import frames as tables
from tests.analyses import cpu_step, gpu_step
from tests.test_merging import two_ranks

ROOT = Path(__file__).parents[1]
PAGES = {
    name: (ROOT / f"docs/{name}.md").read_text() for name in ("formats", "tables", "start/install")
}
PAGE_SCRIPT = (ROOT / "exporters/tensorboard_plugin/static/words.js").read_text()

every_format = pytest.mark.parametrize("format", FORMATS, ids=lambda each: each.name)
every_table = pytest.mark.parametrize("kind", TABLES, ids=lambda each: each.name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Session(gpu_step().recording).save(tmp_path / "S")
    return tmp_path / "S"


def printed(capsys: pytest.CaptureFixture[str], *description: object) -> str:
    assert cli.main([str(word) for word in description]) == 0
    return capsys.readouterr().out


def helped(capsys: pytest.CaptureFixture[str], command: str) -> str:
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    return capsys.readouterr().out


# Formats


@every_format
def test_a_format_has_all_that_commands_ask_for(format: Format) -> None:
    assert format.name and format.description and format.suffixes and format.target
    for writer in filter(None, (format.writer, format.ranks_writer)):
        first, _, *others = inspect.signature(load_function(writer)).parameters
        assert first == ("analyses" if writer == format.ranks_writer else "analysis")
        assert ("roots" in others) == format.shows_source
    assert format_of(Path(format.target)) is format


def test_formats_share_neither_names_nor_suffixes_nor_targets() -> None:
    names = [each.name for each in FORMATS]
    suffixes = [suffix for each in FORMATS for suffix in each.suffixes]
    targets = [each.target for each in FORMATS]
    assert all(len(set(each)) == len(each) for each in (names, suffixes, targets))


@every_format
def test_a_format_writes_what_its_path_names(format: Format, tmp_path: Path) -> None:
    session = Session(gpu_step().recording)
    for suffix in format.suffixes:
        written = session.export(tmp_path / f"of_suffix{suffix}")
        assert written.is_relative_to(tmp_path) and written.exists()
        assert format_of(tmp_path / f"of_suffix{suffix}") is format


@every_format
def test_a_format_holds_several_ranks_or_says_which_do(format: Format, tmp_path: Path) -> None:
    ranks = two_ranks()
    target = tmp_path / f"ranks{format.suffixes[0]}"
    if format.ranks_writer is not None:
        assert ranks.export(target).exists()
    else:
        with pytest.raises(UsageError, match=f"^{format.name} cannot hold several ranks; use one"):
            ranks.export(target)
        assert not target.exists()
        assert "analyses" not in vars(ranks)  # nobody waits for what is refused


def test_a_run_writes_and_lists_what_the_rows_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    session = Session(gpu_step().recording)
    output.write_outputs(session, tmp_path)
    files = {name: use for each in FORMATS for name, use in each.run_outputs}
    without = {f"{kind.name}.csv" for kind in WRITTEN if kind.is_optional}
    assert (
        {path.name for path in tmp_path.iterdir()}
        == set(files) - without
        == {name for name in files if name != "by_memory.csv"}
    )
    run.print_session(session, tmp_path, tmp_path, verbose=True)
    *_, listed = capsys.readouterr().out.partition(f"written to {tmp_path}:\n")
    *rows, following = listed.splitlines()
    assert rows == [f"  {name:24} {use}" for name, use in files.items() if name not in without]
    assert following.startswith(f"next: profiler-ext open {tmp_path}")
    assert FILE_NAME in files and SESSION.place_in(tmp_path) == tmp_path / FILE_NAME


def test_the_book_names_every_format() -> None:
    page = PAGES["formats"]
    for each in FORMATS:
        assert f"\n## {each.name}\n" in page
        assert all(f"`{name}`" in page for name, _ in each.run_outputs), each.name
        assert all(suffix in page for suffix in each.suffixes), each.name


def test_a_new_format_is_a_module_and_a_row(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def export_count(analysis: Analysis, path: Path) -> Path:
        path.write_text(f"{len(analysis.launches)} launches\n")
        return path

    module = ModuleType("profiler_ext.exporters.count")
    vars(module).update(export_count=export_count)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = Format(
        name="count",
        description="how many launches there are",
        suffixes=(".count",),
        target="all.count",
        writer="count:export_count",
        run_outputs=(("launches.count", "how many there are"),),
    )
    monkeypatch.setattr(formats, "FORMATS", (*FORMATS, row))

    count = f"{len(gpu_step().launches)} launches\n"
    assert ".count how many launches there are" in " ".join(helped(capsys, "export").split())
    target = folder / "all.count"
    assert printed(capsys, "export", folder, "-o", target) == f"{target}\n"
    assert (folder / "all.count").read_text() == count
    session = Session(gpu_step().recording)
    assert session.export(folder / "one.count").read_text() == count
    output.write_outputs(session, folder)
    assert (folder / "launches.count").read_text() == count
    run.print_session(session, folder, folder)
    assert f"written to {folder}: trace.pftrace, " in (text := capsys.readouterr().out)
    assert ", launches.count\n" in text
    with pytest.raises(UsageError, match="count cannot hold several ranks"):
        two_ranks().export(folder / "ranks.count")


def test_what_names_no_format_is_refused_with_the_list() -> None:
    with pytest.raises(UsageError, match=r"no format has the suffix of x\.txt; use one of \.pf"):
        format_of(Path("x.txt"))
    with pytest.raises(UsageError, match="no format 'txt'; use one of perfetto, chrome, html"):
        formats.format_named("txt")


# Tables


@every_table
@pytest.mark.parametrize("analysis", [gpu_step(), cpu_step()], ids=["gpu", "cpu"])
def test_a_table_is_called_as_its_row_says(kind: TableKind, analysis: Analysis) -> None:
    made = kind.make(analysis).to_pandas()
    session = Session(analysis.recording)
    assert list(getattr(session, kind.name)().columns) == list(made.columns)
    assert getattr(made_tables, kind.name) is load_function(kind.maker)
    assert getattr(SessionTables, kind.name).__doc__
    assert kind.description
    assert {*kind.keys, *(name for name, _ in kind.shown)} <= set(made.columns)
    assert not kind.keys or not made.duplicated(list(kind.keys)).any()
    assert kind.is_sum == ("fraction" in made.columns)


@every_table
def test_a_table_that_a_report_prints_has_its_words(kind: TableKind) -> None:
    if kind.by is None:
        assert (kind.title, kind.shown, kind.unnamed) == ("", (), "")
    else:
        load_function = (f"by_{kind.by}", f"{kind.by}_by_line", f"idle_by_{kind.by}")
        assert kind.name in (*load_function, kind.by, f"{kind.by}s")
        assert kind.title and kind.shown and kind.unnamed


def test_the_methods_of_a_session_are_the_tables() -> None:
    methods = {name for name, _ in inspect.getmembers(SessionTables, inspect.isfunction)}
    assert {name for name in methods if not name.startswith("_")} == {
        *("table", "columns"),
        *(kind.name for kind in TABLES),
    }


@every_table
def test_the_book_names_every_table(kind: TableKind) -> None:
    assert f"\n## {kind.name}\n" in PAGES["tables"]
    assert not kind.is_written or f"`{kind.name}.csv`" in PAGES["formats"]


def test_the_page_of_tensorboard_heads_tables_as_the_rows_do() -> None:
    for kind in (BY[by] for by in ("line", "module", "kernel", "phase")):
        assert f"  {kind.by}: {json.dumps(list(kind.headings))},\n" in PAGE_SCRIPT
        assert f'{kind.by}: "{kind.title}"' in PAGE_SCRIPT


def test_a_new_table_is_a_function_and_a_row(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType("profiler_ext.exporters.streams")
    vars(module).update(by_stream=made_tables.by_phase)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = replace(BY["phase"], name="by_stream", by="stream", maker="streams:by_stream")
    monkeypatch.setattr(table_kinds, "TABLES", (*TABLES, row))
    monkeypatch.setitem(BY, "stream", row)

    assert f"{[*BY][-2]}, stream" in " ".join(helped(capsys, "report").split())
    text = printed(capsys, "report", folder, "--by", "stream")
    assert text == printed(capsys, "report", folder, "--by", "phase")
    session = Session(gpu_step().recording)
    assert session.table("by_stream").equals(session.by_phase())
    ranks = two_ranks()
    assert ranks.table("by_stream").equals(ranks.by_phase())


def test_every_column_has_one_row_and_no_row_is_of_no_column() -> None:
    made = [
        kind.make(analysis).to_pandas() for kind in TABLES for analysis in (gpu_step(), cpu_step())
    ]
    made += [two_ranks().table(kind.name) for kind in TABLES]
    made.append(tables.seq_table([]))
    found = {(name, str(dtype)) for table in made for name, dtype in table.dtypes.items()}
    assert found == {(column.name, column.dtype) for column in COLUMNS.values()}
    description = [column.description for column in COLUMNS.values()]
    assert all(each and not each.endswith(".") for each in description)


def test_what_names_no_table_is_refused_with_the_list() -> None:
    for held in Session(gpu_step().recording), two_ranks():
        with pytest.raises(UsageError, match="no table 'lines'; ask for one of launches, attrib"):
            held.table("lines")
    with pytest.raises(UsageError, match="no report by 'steps'; ask for one of line, module"):
        Session(gpu_step().recording).report("steps")


def test_a_folder_of_tables_holds_those_that_are_written(tmp_path: Path) -> None:
    for suffix in "csv", "parquet":
        Session(gpu_step().recording).export(tmp_path / f"tables.{suffix}")
        found = {path.name for path in (tmp_path / f"tables.{suffix}").iterdir()}
        written = [kind for kind in WRITTEN if not kind.is_optional]
        assert found == {f"{kind.name}.{suffix}" for kind in written}


# Texts and extras


@pytest.mark.parametrize("form", PRINT_FORMATS, ids=lambda each: each.name)
def test_every_text_is_printed(
    form: PrintFormat, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert form.description
    assert printed(capsys, "report", folder, "--format", form.name).strip()
    if form.is_of_source:
        assert printed(capsys, "annotate", folder, "--format", form.name).strip()


def test_the_extras_are_those_of_the_project() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = declared["optional-dependencies"]
    for extra in EXTRAS:
        names = tuple(each.partition(">")[0] for each in wanted[extra.name])
        assert names == extra.packages
        assert extra.install == f"pip install 'profiler-ext[{extra.name}]'"
        assert re.search(rf"`\[(\w+,)*{extra.name}[\],]", PAGES["start/install"])
    used = {extra for each in FORMATS for extra in (each.writing, each.viewing) if extra}
    assert {*used, MCP, CLUSTER, COMPLETION, *TRAINING} == set(EXTRAS)  # which are no formats
