"""Source paths are kept relative to roots: no home folder leaks, and they lead back."""

import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from profiler_ext import source_paths
from profiler_ext.source_paths import expand, shorten

SITE_PACKAGES = sysconfig.get_path("purelib")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a project in it, which is the working folder; the script lies elsewhere."""
    (tmp_path / "home" / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "home" / "project")
    monkeypatch.setattr(source_paths, "script_folder", lambda: str(tmp_path / "scripts"))
    return tmp_path / "home"


def test_the_longest_root_that_holds_a_path_names_it(home: Path) -> None:
    assert shorten(f"{home}/project/model.py") == "<working>/model.py"
    assert shorten(f"{home}/other/model.py") == "<home>/other/model.py"
    assert shorten(f"{home.parent}/scripts/train.py") == "<script>/train.py"
    assert shorten(f"{SITE_PACKAGES}/torch/nn.py") == "<site-packages>/torch/nn.py"


@pytest.mark.usefixtures("home")
def test_a_path_under_no_root_stays() -> None:
    assert shorten("/elsewhere/model.py") == "/elsewhere/model.py"
    assert shorten("<string>") == "<string>"
    assert expand("<string>") == "<string>"


def test_a_folder_whose_name_begins_like_a_root_is_not_under_it(home: Path) -> None:
    assert shorten(f"{home}2/model.py") == f"{home}2/model.py"


def test_no_home_folder_is_left_in_a_short_path(home: Path) -> None:
    files = [f"{home}/{name}" for name in ("model.py", "project/model.py", "a/b/c.py")]
    assert [file for file in files if str(home) in shorten(file)] == []


def test_a_short_path_leads_back(home: Path) -> None:
    for file in (f"{home}/project/a/model.py", f"{home}/x.py", f"{SITE_PACKAGES}/torch/nn.py"):
        assert expand(shorten(file)) == file


def test_a_short_path_of_another_machine_gets_this_process_s_folder(home: Path) -> None:
    assert expand("<working>/model.py") == f"{home}/project/model.py"


def test_the_user_s_own_folders_are_the_script_s_and_the_working_folder(home: Path) -> None:
    assert source_paths.user_roots() == (f"{home.parent}/scripts", f"{home}/project")
    assert SITE_PACKAGES in source_paths.library_roots()
    assert f"{home}/project" not in source_paths.library_roots()


def test_a_torch_that_lies_outside_the_libraries_folders_is_a_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = ModuleType("torch")
    found.__path__ = ["/home/me/pytorch/torch"]
    monkeypatch.setitem(sys.modules, "torch", found)
    assert source_paths.library_roots()[-1] == "/home/me/pytorch/torch"
    found.__path__ = [f"{SITE_PACKAGES}/torch"]
    assert not any(root.endswith("/torch") for root in source_paths.library_roots())
