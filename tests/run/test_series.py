"""The folders of a run that records again and again: so many, and nothing of anyone else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_ext.errors import UsageError
from profiler_ext.run.outcome import Series
from profiler_ext.sessions.session import FILE_NAME


def write(series: Series, step: int) -> None:
    place = series.folder_of_step(step)
    place.mkdir(parents=True, exist_ok=True)
    (place / FILE_NAME).write_text(str(step))
    series.keep(step)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("rank", ["", "rank_1"])
def test_only_the_last_sessions_are_kept(tmp_path: Path, rank: str) -> None:
    series = Series(tmp_path, rank, keep=2)
    for step in (3, 12, 1_000_000):
        write(series, step)
    assert names(tmp_path) == ["step_000012", "step_1000000"]
    assert (tmp_path / "step_000012" / rank / FILE_NAME).read_text() == "12"
    assert series.count == 3
    assert [folder.name for folder in series.folders] == names(tmp_path)


def test_what_is_not_ours_stays_in_a_folder_whose_session_goes(tmp_path: Path) -> None:
    series = Series(tmp_path, "", keep=1)
    write(series, 1)
    (tmp_path / "step_000001" / "notes.txt").write_text("mine")
    write(series, 2)
    assert names(tmp_path / "step_000001") == ["notes.txt"]
    assert names(tmp_path / "step_000002") == [FILE_NAME]


def test_sessions_of_an_earlier_run_go_by_force_alone(tmp_path: Path) -> None:
    write(Series(tmp_path, "", keep=9), 7)
    (tmp_path / "step_000008").mkdir()
    (tmp_path / "step_other").mkdir()
    later = Series(tmp_path, "", keep=9)
    with pytest.raises(UsageError, match="step_000007 and others; choose another folder"):
        later.begin(force=False)
    assert "step_000007" in names(tmp_path)
    later.begin(force=True)
    assert names(tmp_path) == ["step_000008", "step_other"]


def test_a_link_under_the_name_of_a_session_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    write(Series(elsewhere, "", keep=9), 7)
    out = tmp_path / "out"
    out.mkdir()
    (out / "step_000007").symlink_to(elsewhere / "step_000007")
    Series(out, "", keep=1).begin(force=True)
    assert (elsewhere / "step_000007" / FILE_NAME).exists()
