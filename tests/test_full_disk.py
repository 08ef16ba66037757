"""Wherever the disk gets full, an export fails in one sentence and leaves what was there."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from profiler_ext import cli
from profiler_ext.errors import OutputError
from profiler_ext.exporters.formats import FORMATS, format_named
from profiler_ext.sessions import output
from profiler_ext.sessions.merging import load
from profiler_ext.sessions.session import FILE_NAME, Session
from profiler_ext.store import Store, to_bytes
from tests.store.records import record

SESSION = Path(__file__).parent / "fixtures" / "h200" / "mlp.session.pt.trace.json.gz"
_BUFFER_BYTES = 16_384


class Disk(io.RawIOBase):
    """A file on a disk that takes so many writes, and no more."""

    left = 0

    def __init__(self, handle: int) -> None:
        self._file = io.FileIO(handle, "wb")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def write(self, data: bytes) -> int:
        Disk.left -= 1
        if Disk.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._file.write(bytes(data)[:_BUFFER_BYTES])

    def close(self) -> None:
        self._file.close()
        super().close()


@pytest.fixture(scope="module")
def session() -> Session:
    one = load(SESSION)
    assert isinstance(one, Session) and one.analysis
    return one


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fdopen

    def opened(handle: int, mode: str, **options: bool) -> IO[bytes]:
        if mode != "wb":
            return real(handle, mode, **options)
        return io.BufferedWriter(Disk(handle), _BUFFER_BYTES)

    monkeypatch.setattr(os, "fdopen", opened)


def every_write(write: Callable[[], object], folder: Path) -> Iterator[int]:
    """Let each write fail in turn, until none does; nothing half-written may ever be there."""
    for number in range(1000):
        Disk.left = number
        try:
            write()
        except OutputError as error:
            assert "No space left on device" in str(error)
            assert [path for path in folder.rglob("*") if path.name.startswith(".")] == []
            yield number
        else:
            return


def written(session: Session, form: str, target: Path) -> Path:
    return format_named(form).write(session.analysis, target)


EXPORTS = {each.name: each.target for each in FORMATS}


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize("form", EXPORTS)
def test_an_export_leaves_the_old_files_whole_at_every_write(
    form: str, session: Session, tmp_path: Path
) -> None:
    target = tmp_path / EXPORTS[form]
    Disk.left = 1000
    written(session, form, target)
    files = [path for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    before = [path.read_bytes() for path in files]
    for number in every_write(lambda: written(session, form, target), tmp_path):
        assert [path.read_bytes() for path in files] == before, number
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == files


@pytest.mark.usefixtures("disk")
def test_a_new_export_is_there_whole_or_not_at_all(session: Session, tmp_path: Path) -> None:
    target = tmp_path / "t.json.gz"
    failed = list(every_write(lambda: written(session, "chrome", target), tmp_path))
    assert len(failed) >= 1
    assert len(load(target).launches()) == len(session.launches())


@pytest.mark.usefixtures("disk")
def test_a_record_of_the_store_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for _ in every_write(lambda: store.put("fkey", "d1", to_bytes(record())), tmp_path):
        assert store.find("fkey") == []
    assert store.holds("fkey", "d1")


@pytest.mark.usefixtures("disk")
def test_a_session_that_cannot_be_written_is_kept_elsewhere_or_reported_to_be_lost(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    kept = output._save_elsewhere

    def kept_on_another_disk(session: Session) -> str:
        Disk.left = 1000
        return kept(session)

    for keep, ending in (kept, "recorded is lost"), (kept_on_another_disk, " instead"):
        monkeypatch.setattr(output, "_save_elsewhere", keep)
        Disk.left = 0
        with pytest.raises(OutputError, match=f"No space left on device; .*{ending}$"):
            output.write_outputs(session, tmp_path / "out")
    (folder,) = (tmp_path / "tmp").iterdir()
    assert len(load(folder).launches()) == len(session.launches())
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.usefixtures("disk")
def test_where_only_the_rest_cannot_be_written_the_session_is_there(
    session: Session, tmp_path: Path
) -> None:
    Disk.left = 1000
    session.save(tmp_path)
    Disk.left = 1000 - Disk.left  # as many writes as the session takes
    with pytest.raises(OutputError, match=f"the session itself is in {tmp_path}: `profiler-ext ex"):
        output.write_outputs(session, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_without_a_temporary_folder_it_is_kept_in_the_working_folder(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").write_text("in the way")
    (tmp_path / "working").mkdir()
    monkeypatch.chdir(tmp_path / "working")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(OutputError, match=f"recorded is in {tmp_path}/working/.* instead$"):
        output.write_outputs(session, tmp_path / "out")
    (folder,) = (tmp_path / "working").iterdir()
    assert len(load(folder).launches()) == len(session.launches())


def test_where_nothing_can_be_written_at_all_the_error_says_so(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").write_text("in the way")
    monkeypatch.chdir("/proc")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(OutputError, match=r"no temporary folder .* either, so .* is lost$"):
        output.write_outputs(session, tmp_path / "out")
    with pytest.raises(OutputError, match=r"choose another place$"):
        output.write_outputs(session, tmp_path / "out", keep=False)


REFUSED = {
    "a folder": "t.pftrace",
    "below a file": "file/below/t.pftrace",
    "a pipe": "pipe",
    "too long": "x" * 300,
    "too deep": "/".join(["y" * 200] * 30),
    "read-only": "/proc/nowhere/t.pftrace",
}


@pytest.mark.parametrize("form", EXPORTS)
@pytest.mark.parametrize("target", REFUSED.values(), ids=REFUSED)
def test_a_target_that_cannot_be_one_is_refused_in_a_sentence(
    target: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("kept")
    os.mkfifo(tmp_path / "pipe")
    folders = ("t.pftrace", "t.pftrace/launches.csv", "t.pftrace/launches.parquet")
    for folder in (*folders, "t.pftrace/rank0.pt.trace.json.gz"):
        (tmp_path / folder).mkdir()
    before = sorted(tmp_path.rglob("*"))
    words = ("export", str(SESSION), "--to", form, "-o", str(tmp_path / target))
    assert cli.main(words) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert (
        "\nprofiler-ext: [output] cannot write " in written.err
        and written.err.count("\n") == 2  # the first says that --to is deprecated
    )
    made = set(tmp_path.rglob("*")) - set(before)
    assert [path for path in made if path.is_file()] == []
