"""The commands that read a session: what they print, write and refuse; none needs torch."""

import csv
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from profiler_ext import cli
from profiler_ext.cli import doctor
from profiler_ext.exporters.formats import FORMATS, Format
from profiler_ext.sessions.session import FILE_NAME, Session, load
from profiler_ext.torch_compat import points
from profiler_ext.torch_compat.patches import Point
from tests.compiling import torch

RECORDING = Path(__file__).parent / "fixtures" / "h200" / "default.pt.trace.json.gz"


@pytest.fixture(scope="module")
def session() -> Session:
    return load(RECORDING)


@pytest.fixture
def folder(tmp_path: Path, session: Session) -> Path:
    """A folder that holds a session."""
    session.save(tmp_path / "out")
    return tmp_path / "out"


def printed(capsys: pytest.CaptureFixture[str], *command: str | Path) -> str:
    assert cli.main([str(word) for word in command]) == 0
    written = capsys.readouterr()
    assert written.err == ""
    return written.out


def refused(capsys: pytest.CaptureFixture[str], *command: str | Path) -> str:
    """The command must fail with one sentence and without a traceback."""
    assert cli.main([str(word) for word in command]) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("profiler-ext: ")
    assert written.err.count("\n") == 1
    return written.err


@pytest.mark.parametrize("by", ["line", "module", "op", "kernel", "phase"])
def test_a_report_begins_with_what_to_do_and_the_step_time_breakdown(
    by: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--by", by, "--top", "3", "--verbose")
    lines = printed(capsys, "report", folder, *options).splitlines()
    assert lines[1].startswith("Top recommendations: step ")
    assert "Step time breakdown" in lines[lines.index("") + 1]
    _, heads = (line for line in lines if "time/step  %" in line)
    assert by in heads.split("time/step")[0]


@pytest.mark.parametrize("command", ["report", "annotate"])
def test_without_a_folder_it_is_that_of_the_last_run(
    command: str,
    tmp_path: Path,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    session.save(tmp_path / "profile_out")
    monkeypatch.chdir(tmp_path)
    text = printed(capsys, command)
    assert text
    assert text == printed(capsys, command, "profile_out")


def test_top_says_how_many_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = printed(capsys, "report", folder, "--by", "kernel", "--top", "2", "--format", "csv")
    more = printed(capsys, "report", folder, "--by", "kernel", "--top", "5", "--format", "csv")
    rows = [list(csv.reader(io.StringIO(text))) for text in (few, more)]
    assert rows[1][:3] == rows[0][:3]
    assert len(rows[0]) < len(rows[1])


def test_a_report_is_of_the_work_that_one_asks_for(
    folder: Path, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    narrowed = ("--phase", "backward", "--scope", "compiled", "--format", "csv", "--top", "99")
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "report", folder, *narrowed))))
    whole = session.by_line(phase="backward", scope="compiled")
    assert [int(row["duration_ns"]) for row in rows] == whole.duration_ns.tolist()
    assert len(rows) > 0


def test_csv_json_and_markdown_hold_the_same_rows(
    folder: Path, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    def text(form: str) -> str:
        return printed(capsys, "report", folder, "--by", "phase", "--format", form)

    phases = set(session.by_phase().phase)
    assert {row["phase"] for row in csv.DictReader(io.StringIO(text("csv")))} == phases
    assert {row["phase"] for row in json.loads(text("json"))["rows"]} == phases
    table = [line.split("|")[1].strip() for line in text("md").splitlines() if "|" in line]
    assert phases <= set(table)


def test_a_trace_file_is_a_session_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--by", "op", "--format", "csv")
    assert printed(capsys, "report", folder / FILE_NAME, *words) == printed(
        capsys, "report", folder, *words
    )


@pytest.mark.parametrize("format", [each for each in FORMATS if not each.how_to_view])
def test_export_prints_what_it_wrote(
    format: Format, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / format.target
    assert printed(capsys, "export", folder, "-o", target) == f"{target}\n"
    assert target.exists()


def test_the_option_that_named_the_format_still_works_and_says_what_does_now(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", str(folder), "--to", "csv"]) == 0
    written = capsys.readouterr()
    assert written.out == f"{folder / 'tables.csv'}\n"
    assert written.err == (
        "profiler-ext: --to is deprecated; the suffix of -o names the format: -o tables.csv\n"
    )


def test_an_export_needs_a_suffix_that_names_a_format(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "give -o PATH, whose suffix names the format: trace.pf" in refused(
        capsys, "export", folder
    )
    assert "no format has the suffix of x.docx" in refused(capsys, "export", folder, "-o", "x.docx")
    assert "no format 'docx'" in refused(capsys, "export", folder, "--to", "docx")


def test_export_writes_where_it_is_reported(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "elsewhere" / "trace.json.gz"
    assert printed(capsys, "export", folder, "-o", target) == f"{target}\n"
    assert len(load(target).launches()) == len(load(folder).launches())


def test_what_is_no_session_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.json").write_text('{"traceEvents": [{"ph": "B", "name": "x", "ts": 1}]}')
    (tmp_path / "list.json").write_text("[1, 2, 3]")
    (tmp_path / "broken.json").write_text('{"traceEvents": [{"ph": ')
    (tmp_path / "binary.json.gz").write_bytes(b"\x1f\x8b not really gzip")
    (tmp_path / "empty.json").write_text("")
    for name in ("list.json", "broken.json", "binary.json.gz", "empty.json", "gone.json"):
        assert name in refused(capsys, "report", tmp_path / name)
        assert name in refused(capsys, "export", tmp_path / name, "-o", tmp_path / "t.csv")
    (tmp_path / "empty").mkdir()
    assert f"holds no {FILE_NAME}" in refused(capsys, "report", tmp_path / "empty")
    assert "another tool wrote it" in refused(capsys, "report", tmp_path / "other.json")


def test_a_session_that_was_cut_off_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / FILE_NAME
    file.write_bytes(file.read_bytes()[:-2000])
    assert FILE_NAME in refused(capsys, "report", folder)


def test_an_export_onto_a_file_that_is_in_the_way_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken.csv").write_text("kept")
    refused(capsys, "export", folder, "-o", tmp_path / "taken.csv")
    refused(capsys, "export", folder, "-o", tmp_path / "taken.csv" / "t.pftrace")
    assert (tmp_path / "taken.csv").read_text() == "kept"


def test_doctor_names_torch_the_device_and_every_place_that_capture_stands_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdict, *lines = printed(capsys, "doctor", "--verbose").splitlines()
    assert verdict.startswith("Ready")
    found = {line.split(maxsplit=2)[1]: line.split()[0] for line in lines}
    assert found["torch"] == "ok"
    assert f"torch{'':24}{torch.__version__}" in next(x for x in lines if " torch " in x)
    assert found["CompiledFxGraph.post_compile"] == "ok"
    assert {"device", "FX", "pyarrow", "tensorboard"} <= set(found)


def test_doctor_is_2_where_capture_cannot_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = Point("torch._inductor.compile_fx", "no_such_function", (), "the call sites")
    monkeypatch.setattr(points, "ALL", (*points.ALL, gone))
    problem = "torch._inductor.compile_fx.no_such_function is not there"
    for command in (["doctor"], ["doctor", "--verbose"]):
        assert cli.main(command) == 2
        verdict, *lines = capsys.readouterr().out.splitlines()
        assert verdict == f"Not ready: {problem}; unavailable: the call sites"
        assert [line.split("no_such_function ")[-1].strip() for line in lines if problem in line]


def test_doctor_begins_with_its_verdict_and_has_15_lines_at_most(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = doctor.examine()
    lines = printed(capsys, "doctor").splitlines()
    assert lines[0].startswith("Ready: ")
    assert lines[-1] == "`profiler-ext doctor --verbose` lists every check."
    assert len(lines) <= 15
    gone = [doctor.Check(f"name {n}", "missing", "it is not there") for n in range(9)]
    absent = [replace(each, state="off") if each.subject == "mcp" else each for each in found]
    monkeypatch.setattr(doctor, "examine", lambda: (*absent, *gone))
    lines = printed(capsys, "doctor").splitlines()
    assert lines[0] == f"Ready, with limits: 9 of {len(found) + 9} checks failed"
    assert [line.split()[-2:] for line in lines if line.startswith("  missing")][-1] == [
        "6",
        "more",
    ]
    assert "  not installed   mcp" in lines
    assert f"{'':18}pip install 'profiler-ext[mcp]'" in lines
    assert len(lines) <= 15


def test_doctor_says_what_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFILER_EXT_RIDE", "0")
    found = {finding.subject: finding.state for finding in doctor.examine()}
    assert found["provenance in the cache"] == "off"


def test_a_command_line_that_makes_no_sense_is_2_with_the_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in ([], ["run"], ["explain"], ["merge"], ["report", "x", "--by", "docx"]):
        with pytest.raises(SystemExit) as stopped:
            cli.main(command)
        assert stopped.value.code == 2
        assert "usage: profiler-ext" in capsys.readouterr().err


AUTOSTART = """
import sys
assert "torch" not in sys.modules
import torch
from profiler_ext.profiling import switch
print(switch.current() is not None)
"""


@pytest.mark.parametrize(("value", "on"), [("1", True), ("0", False), ("", False)])
def test_the_environment_switches_capture_on_when_torch_is_imported(
    value: str, on: bool, tmp_path: Path
) -> None:
    root = str(Path(__file__).parent.parent)
    finished = subprocess.run(
        [sys.executable, "-c", "import profiler_ext\n" + AUTOSTART],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root, "PROFILER_EXT": value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.stdout, finished.stderr) == (f"{on}\n", "")


LEARNS = """
import torch
import profiler_ext
from profiler_ext.profiling import switch
learns = [switch.current().learns]
for ask in (lambda: profiler_ext.enable(learn=False), profiler_ext.profile):
    ask()
    learns.append(switch.current().learns)
print(*learns)
"""


@pytest.mark.parametrize(
    ("learn", "expected"),
    [("", "False False True"), pytest.param("1", "True True True", marks=pytest.mark.whole)],
)
def test_capture_that_the_environment_asks_for_learns_once_a_recording_is_asked_for(
    learn: str, expected: str, tmp_path: Path
) -> None:
    variables = {"PROFILER_EXT": "1", "PROFILER_EXT_LEARN": learn}
    root = str(Path(__file__).parent.parent)
    finished = subprocess.run(
        [sys.executable, "-c", "import profiler_ext\n" + LEARNS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.stdout, finished.stderr) == (f"{expected}\n", "")
