import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from profiler_ext.errors import OutputError
from profiler_ext.file_io import replacing


def test_a_file_is_there_whole_with_its_folders_and_no_temporary_is_left(tmp_path):
    path = tmp_path / "new" / "file.bin"

    with replacing(path) as file:
        file.write(b"all of it")

    assert path.read_bytes() == b"all of it"
    assert list(path.parent.iterdir()) == [path]


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file.bin"
    path.write_bytes(b"old")

    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"half")
        raise ZeroDivisionError

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_way_is_an_output_error_and_stays_as_it_was(tmp_path):
    folder = tmp_path / "taken"
    folder.mkdir()

    refused = pytest.raises(OutputError, match=r"cannot write .*taken: Is a directory; choose")
    with refused, replacing(folder) as file:
        file.write(b"text")

    assert list(tmp_path.iterdir()) == [folder]
    assert list(folder.iterdir()) == []


def test_a_file_where_a_folder_should_be_is_an_output_error(tmp_path):
    (tmp_path / "file").write_bytes(b"old")

    refused = pytest.raises(OutputError, match=r"cannot write .*below: .*; choose another place")
    with refused, replacing(tmp_path / "file" / "below") as file:
        file.write(b"text")

    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_full_disk_is_an_output_error_that_says_so(tmp_path):
    refused = pytest.raises(OutputError, match="No space left on device")
    with refused, replacing(tmp_path / "file"):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("mask", "rights"), [(0o077, 0o600), (0o022, 0o644), (0o027, 0o640)])
def test_a_file_has_its_final_rights_from_the_first_moment(mask, rights, tmp_path):
    before = os.umask(mask)
    try:
        with replacing(tmp_path / "file") as file:
            (temporary,) = tmp_path.iterdir()
            seen = [
                stat.S_IMODE(temporary.stat().st_mode),
                stat.S_IMODE(os.fstat(file.fileno())[0]),
            ]
            assert os.umask(mask) == mask  # that of other threads' files is not touched
    finally:
        os.umask(before)
    assert [*seen, stat.S_IMODE((tmp_path / "file").stat().st_mode)] == [rights] * 3


def test_no_call_changes_the_rights_or_the_mask_of_the_process(tmp_path, monkeypatch):
    for name in ("umask", "chmod", "fchmod"):
        monkeypatch.setattr(os, name, lambda *_: pytest.fail("rights were changed"))
    with replacing(tmp_path / "file") as file:
        file.write(b"text")
    assert (tmp_path / "file").read_bytes() == b"text"


def test_a_link_at_the_target_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "victim").write_bytes(b"kept")
    (tmp_path / "file").symlink_to(tmp_path / "victim")
    with replacing(tmp_path / "file") as file:
        file.write(b"new")
    assert (tmp_path / "victim").read_bytes() == b"kept"
    assert not (tmp_path / "file").is_symlink()


def test_a_device_or_a_pipe_at_the_target_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(OutputError, match="it is no regular file"), replacing(path):
            pytest.fail("it was opened")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_name_of_the_longest_length_is_written_and_a_longer_one_refused(tmp_path):
    longest = "é" * 127
    with replacing(tmp_path / longest) as file:
        file.write(b"text")
    assert (tmp_path / longest).read_bytes() == b"text"
    with pytest.raises(OutputError, match="File name too long"), replacing(tmp_path / ("x" * 256)):
        pytest.fail("it was opened")
    assert [path.name for path in tmp_path.iterdir()] == [longest]


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_no_file_takes_the_number_of_a_closed_standard_stream(closed, tmp_path):
    code = f"""
import os
from pathlib import Path
from profiler_ext.file_io import replacing
for number in {closed}:
    os.close(number)
with replacing(Path({str(tmp_path / "file")!r})) as file:
    assert file.fileno() > 2
    assert all(os.path.exists(f"/proc/self/fd/{{n}}") == (n not in {closed}) for n in range(3))
    file.write(b"text")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "file").read_bytes() == b"text"


@pytest.mark.parametrize("name", ["write", "fsync", "replace"])
def test_wherever_the_disk_is_full_the_old_file_stays_and_nothing_else(name, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "file").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full if name == "fsync" else lambda _: None)
    monkeypatch.setattr(Path, "replace", full if name == "replace" else Path.replace)
    with (
        pytest.raises(OutputError, match="No space left on device"),
        replacing(tmp_path / "file") as file,
    ):
        file.write(b"new")
        if name == "write":
            full()
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]
