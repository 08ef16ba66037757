"""A program's own module of our name is the program's; ours is there under another name."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from profiler_ext import renaming
from profiler_ext.version import VERSION

ROOT = Path(__file__).parents[1]


def test_another_module_of_our_name_is_seen_in_the_program_s_folder(tmp_path: Path) -> None:
    assert not renaming.is_shadowed([str(tmp_path)])
    (tmp_path / "profiler_ext.py").write_text("")
    assert renaming.is_shadowed([str(tmp_path)])
    assert not renaming.is_shadowed([str(ROOT)])


def test_what_an_editable_install_leaves_next_to_us_is_no_other_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It adds a folder with our exporters alone, found where the checkout is on no path."""
    (tmp_path / "site" / "profiler_ext" / "exporters").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    assert not renaming.is_shadowed([])
    (tmp_path / "mine" / "profiler_ext" / "models").mkdir(parents=True)
    assert renaming.is_shadowed([str(tmp_path / "mine")])


def test_both_are_there_each_under_its_name(tmp_path: Path) -> None:
    (tmp_path / "profiler_ext.py").write_text("__version__ = 'theirs'")
    code = f"""
import sys
from importlib import import_module
from profiler_ext import renaming
assert renaming.is_shadowed([{str(tmp_path)!r}])
name = renaming.load_under_alias()
sys.path.insert(0, {str(tmp_path)!r})
session = import_module(name + ".sessions.session")
errors = import_module(name + ".errors")
try:
    session.load("no such place")
except errors.TraceError as error:
    print(type(error).__module__, session.Session.__module__)
import profiler_ext
print(profiler_ext.__version__, import_module(name).__version__)
print([each for each in sys.modules if each.startswith("profiler_ext")])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.stdout.splitlines() == [
        "_profiler_ext_of_run.errors _profiler_ext_of_run.sessions.session",
        f"theirs {VERSION}",
        "['profiler_ext']",
    ], done.stderr


def test_python_m_runs_the_working_folder_s_module_and_python_p_m_runs_ours(tmp_path: Path) -> None:
    """As the README says; for ``-m`` the choice is Python's."""
    (tmp_path / "profiler_ext.py").write_text("print('theirs')")

    def reported(*flags: str) -> str:
        command = [sys.executable, *flags, "-m", "profiler_ext", "--help"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True
        )
        return done.stdout.partition("\n")[0]

    assert reported() == "theirs"
    assert reported("-P") == "usage: profiler-ext COMMAND [OPTION ...]"
