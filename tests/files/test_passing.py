"""A folder for a while is made where one can be made, and is gone after."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from profiler_ext.errors import OutputError
from profiler_ext.file_io import candidate_folders, temporary_folder

NOTHING_CAN_BE_MADE_IN = "/proc"


@pytest.fixture(autouse=True)
def working(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The temporary folder is not there, the working folder is."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    (tmp_path / "working").mkdir()
    monkeypatch.chdir(tmp_path / "working")
    return tmp_path / "working"


def test_it_is_in_the_temporary_folder_and_gone_after(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with temporary_folder("nothing is lost") as folder:
        (folder / "a").write_text("of it")
        assert folder.parent == tmp_path / "temporary"
    assert not folder.exists()


def test_without_a_temporary_folder_it_is_in_another_one_and_gone_after_an_error(
    tmp_path: Path,
) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(KeyError), temporary_folder("nothing is lost", tmp_path / "out") as folder:
        assert folder.parent == tmp_path / "out"
        raise KeyError
    assert list((tmp_path / "out").iterdir()) == []


def test_for_one_that_is_not_there_stands_the_nearest_that_is(tmp_path: Path) -> None:
    with temporary_folder("nothing is lost", tmp_path / "not" / "there") as folder:
        assert folder.parent == tmp_path
    assert not (tmp_path / "not").exists()


def test_else_it_is_in_the_working_folder(working: Path) -> None:
    with temporary_folder("nothing is lost", Path(NOTHING_CAN_BE_MADE_IN)) as folder:
        assert folder.parent == working
    assert list(working.iterdir()) == []


def test_its_name_is_of_utf_8(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, working: Path
) -> None:
    unnameable = tmp_path / os.fsdecode(b"of\xff")
    unnameable.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(unnameable))
    with temporary_folder("nothing is lost") as folder:
        assert folder.parent == working
        assert list(unnameable.iterdir()) == []


def test_where_none_can_be_made_the_error_says_where_why_and_what_it_costs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(NOTHING_CAN_BE_MADE_IN)
    message = rf"{tmp_path}/nowhere: No such file.*; /proc: .*\), so all is lost; set TMPDIR to"
    with pytest.raises(OutputError, match=message), temporary_folder("all is lost"):
        pass


def test_a_working_folder_that_was_removed_is_none(working: Path, tmp_path: Path) -> None:
    working.rmdir()
    assert list(candidate_folders(tmp_path, Path("of it"))) == [tmp_path / "nowhere", tmp_path]
    os.chdir(tmp_path)  # what comes after needs one


def test_it_is_on_the_first_disk_with_room_else_on_the_one_with_most(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, working: Path
) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    free = {tmp_path / "temporary": 100, tmp_path / "out": 2_000, working: 5_000}
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=free[place]))
    found = []
    for room_bytes in (0, 100, 1_000, 3_000, 9_000):
        with temporary_folder("none", tmp_path / "out", room_bytes=room_bytes) as folder:
            found.append(folder.parent.name)
    assert found == ["temporary", "temporary", "out", "working", "working"]
