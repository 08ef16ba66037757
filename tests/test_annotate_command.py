"""``profiler-ext annotate`` prints the source of a session that it reads from disk."""

import json
from pathlib import Path

import pytest

from profiler_ext import cli
from profiler_ext.session import Session
from tests.analyses import gpu_step
from tests.test_cli import folder, printed, refused, session

__all__ = ["folder", "session"]  # fixtures


def test_a_session_without_lines_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "annotate", folder)
    assert text.splitlines()[1:] == ["No device time was led to a source line."]


def test_machines_get_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(printed(capsys, "annotate", folder, "--format", "json"))
    assert document == {"schema_version": 1, "files": []}


def test_a_file_that_is_not_in_it_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no source file 'model.py'" in refused(capsys, "annotate", folder, "model.py")


def test_a_pipe_gets_whole_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = Session(gpu_step().recording)
    step.analysis = gpu_step()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("profiler_ext.session.load", lambda _: step)
    assert cli.main(["annotate", "anywhere"]) == 0
    assert "return self.down(h.to(x.dtype))" in capsys.readouterr().out
