"""``profiler-ext annotate`` prints the source of a session that it reads from disk."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from profiler_ext import cli
from profiler_ext.sessions.merging import load
from profiler_ext.sessions.session import Session
from tests.analyses import gpu_step
from tests.test_cli import folder, printed, refused, session

__all__ = ["folder", "session"]  # fixtures


def test_a_session_without_lines_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "annotate", folder)
    assert text.splitlines()[1:] == ["No device time is attributed to a source line."]


def test_machines_get_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(printed(capsys, "annotate", folder, "--format", "json"))
    assert document == {"answer": "annotate", "schema_version": 3, "cuts": [], "files": []}


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
    monkeypatch.setattr("profiler_ext.sessions.merging.load", lambda *_, **__: step)
    assert cli.main(["annotate", "anywhere"]) == 0
    assert "return self.down(h.to(x.dtype))" in capsys.readouterr().out


def test_a_folder_of_ranks_is_summed_and_one_rank_can_be_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = gpu_step().recording
    for rank in (0, 1):
        settings = replace(step.settings, rank=rank, world_size=2)
        Session(replace(step, settings=settings)).save(tmp_path / f"rank_{rank}")
    summed = printed(capsys, "annotate", tmp_path).splitlines()
    alone = printed(capsys, "annotate", tmp_path, "--rank", "1").splitlines()
    assert "2 ranks · 1 step" in summed[0]
    assert "rank 1 of 2 · 1 step" in alone[0]
    assert summed[2].startswith("model.py: ") and summed[2].endswith(" in 1 step of 2 ranks")
    both = json.loads(printed(capsys, "annotate", tmp_path, "--format", "json"))["files"]
    one = json.loads(printed(capsys, "annotate", tmp_path, "--rank", "0", "--format", "json"))
    assert [file["duration_ns"] for file in both] == [2 * f["duration_ns"] for f in one["files"]]
    assert "there is no rank 7" in refused(capsys, "annotate", tmp_path, "--rank", "7")
    assert load(tmp_path).annotate("model.py", rank=1) == load(tmp_path / "rank_1").annotate(
        "model.py"
    )
