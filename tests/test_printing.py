"""What commands do where standard output is closed, full, without a reader, or ASCII only."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from profiler_ext import cli, joint_table
from profiler_ext.cli import common, doctor
from profiler_ext.exporters.formats import FORMATS
from profiler_ext.exporters.table_kinds import PRINT_FORMATS
from profiler_ext.exporters.tables import SequenceRow, seq_table
from profiler_ext.exporters.terminal import annotate
from profiler_ext.store import Store
from tests.store.records import keep
from tests.test_merging import two_ranks

SESSION = Path(__file__).parent / "fixtures" / "h200" / "mlp.session.pt.trace.json.gz"
ROOT = Path(__file__).parents[1]

REPORTS = {
    **{f"report {each.name}": f"report S --format {each.name}" for each in PRINT_FORMATS},
    **{f"annotate {form}": f"annotate S --format {form}" for form in annotate.FORMATS},
    **{f"export {each.name}": f"export S -o out{each.suffixes[0]}" for each in FORMATS},
    "report ranks": "report R",
    "merge": "merge R -o M",
    "attach": "attach S -o A --cache-dir C",
    "cache list": "cache list --dir C",
    "cache list json": "cache list --format json --dir C",
    "cache prune": "cache prune --older-than 9 --dir C",
    "seq-table": "seq-table example:function",
    "doctor": "doctor",
}
every_command = pytest.mark.parametrize("command", REPORTS.values(), ids=REPORTS)


class Failing(io.TextIOWrapper):
    """A stream whose file cannot be written."""

    def __init__(self, code: int) -> None:
        super().__init__(io.BytesIO(), "utf-8", write_through=True)
        self.code = code

    def write(self, text: str) -> int:
        raise OSError(self.code, os.strerror(self.code))


def test_a_stream_of_the_program_s_own_has_to_be_written_to_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Written:
        def write(self, text: str) -> None:
            texts.append(text)

    texts: list[str] = []
    monkeypatch.setattr(sys, "stdout", Written())
    monkeypatch.setattr(sys, "stderr", Written())
    common.print_line("one line")
    common.console().print("another")
    common.print_message("a third")
    assert "".join(texts) == "one line\nanother\nprofiler-ext: a third\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the commands are asked for; nothing here needs torch."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "S").symlink_to(SESSION)
    two_ranks().save(tmp_path / "R")
    keep(Store(tmp_path / "C" / "profiler_ext"), "fkey")
    row = SequenceRow(1, "aten.mm", None, "forward", "é", 3, None, "mm", "a.py", None, None)
    monkeypatch.setattr(joint_table, "load_example", lambda _: (None, None))
    monkeypatch.setattr(joint_table, "seq_columns", lambda *_: seq_table([row]))
    finding = doctor.Check("device", "ok", "H200 · é")
    monkeypatch.setattr(doctor, "examine", lambda: (finding,))
    return tmp_path


def ended(
    command: str, out: io.TextIOBase | None, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str]:
    """Run a command with another standard output; return its exit code, and what it told."""
    printed = io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", printed)
        return cli.main(command.split()), printed.getvalue()


@every_command
def test_a_closed_or_full_output_is_one_sentence_and_leaves_no_temporary_file(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = io.StringIO()
    closed.close()
    full = Failing(errno.ENOSPC)
    for out, reason in (None, "it is closed"), (closed, "it is closed"), (full, "No space left"):
        code, printed = ended(command.replace("-o A", "--force -o A"), out, monkeypatch)
        assert code == 2
        (sentence,) = [line for line in printed.splitlines() if "cannot write to standard" in line]
        assert sentence.startswith("profiler-ext: ") and reason in sentence
        assert "Traceback" not in printed
    assert list(place.rglob(".*")) == []


@every_command
def test_a_reader_that_has_gone_is_reported_nothing(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, printed = ended(command, Failing(errno.EPIPE), monkeypatch)
    assert code == 141
    assert [line for line in printed.splitlines() if "standard output" in line] == []


@every_command
def test_what_ascii_lacks_is_escaped(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = io.BytesIO()
    out = io.TextIOWrapper(data, "ascii")
    assert ended(command, out, monkeypatch)[0] == 0
    assert data.getvalue().decode("ascii").strip() != ""
    assert out.errors == "strict"  # the stream is as it was


def test_nobody_to_tell_is_no_failure(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (None, Failing(errno.ENOSPC)):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            patch.setattr(sys, "stdout", out := io.StringIO())
            assert cli.main(["report", "nowhere"]) == 2
            assert out.getvalue() == ""  # an error is never taken for output


def test_a_terminal_gets_a_path_without_controls_and_a_program_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common.print_line("a\x1b[31m")
    assert capsys.readouterr().out == "a\x1b[31m\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    common.print_line("a\x1b[31m")
    assert capsys.readouterr().out == "a\N{REPLACEMENT CHARACTER}[31m\n"


_PAGE = "(docs/reference/errors.md#output)"
REDIRECTED = {
    ">&-": (2, f"profiler-ext: [output] cannot write to standard output: it is closed {_PAGE}\n"),
    "2>&-": (0, ""),
    ">/dev/full": (
        2,
        "profiler-ext: [output] cannot write to standard output: No space left on device "
        f"{_PAGE}\n",
    ),
    ">/dev/full 2>/dev/full": (2, ""),
    ">&- 2>&-": (2, ""),
    "| true": (141, ""),
}


@pytest.mark.parametrize("redirection", REDIRECTED)
def test_python_itself_has_nothing_left_to_complain_of_at_the_end(
    redirection: str, tmp_path: Path
) -> None:
    finished = in_shell(f"-m profiler_ext cache list --dir {tmp_path}", redirection)
    assert (finished.returncode, finished.stderr) == REDIRECTED[redirection]


def test_help_without_a_reader_is_quiet() -> None:
    finished = in_shell("-m profiler_ext --help", "| true")
    assert (finished.returncode, finished.stderr) == (141, "")


def in_shell(words: str, redirection: str) -> subprocess.CompletedProcess[str]:
    """Run Python with its streams redirected; a reader has gone before it begins."""
    command = f"{sys.executable} {words} {redirection}"
    if redirection == "| true":
        command = f"( sleep 0.2; {sys.executable} {words} ) | true; exit ${{PIPESTATUS[0]}}"
    return subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


_ENDED = """
import os, signal, sys
from profiler_ext import cli
signal.signal(signal.SIGINT, signal.default_int_handler)
os.fsync = lambda _: os.kill(os.getpid(), int(sys.argv[1]))
cli.main(["export", "S", "-o", "out.json.gz"])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_amid_writing_ends_a_command_without_a_traceback_and_leaves_no_file(place, number):
    files = sorted(place.iterdir())
    finished = subprocess.run(
        [sys.executable, "-c", _ENDED, str(int(number))],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (-number, b"")
    assert sorted(place.iterdir()) == files
