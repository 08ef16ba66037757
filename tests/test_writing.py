import errno

import pytest

from profiler_ext.errors import OutputError
from profiler_ext.writing import replacing


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
