"""Completion scripts: each shell has one; bash completes commands, options, values, files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from profiler_ext import cli

# What bash does when Tab is pressed after the last word.
_PRESS_TAB = """
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
$(complete -p profiler-ext | sed 's/.*-F \\([^ ]*\\).*/\\1/')
echo "${COMPREPLY[@]}"
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "profile_out").mkdir()
    source = script("bash", capsys) + _PRESS_TAB

    def completed(*words: str) -> list[str]:
        command = ["bash", "-c", source, "bash", "profiler-ext", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert completed("re") == ["report"]
    assert completed("report", "--b") == ["--by", "--budget"]
    assert completed("report", "--by", "mo") == ["module"]
    assert completed("cache", "p") == ["prune"]
    assert completed("completion", "z") == ["zsh"]
    assert completed("run", "t") == ["train.py"]
    assert completed("open", "p") == ["profile_out"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_have_a_script_with_every_command(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script(shell, capsys)
    assert [name for name in cli._COMMANDS if name not in text] == []


def test_without_the_library_the_error_names_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "bash"]) == 2
    assert "pip install 'profiler-ext[completion]'" in capsys.readouterr().err
