"""Torch's own trace of a cycle lies in a temporary folder, which goes with it."""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path

import pytest

from profiler_ext.errors import OutputError
from profiler_ext.profiling.raw_trace import RawTrace


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_trace_is_copied_as_its_name_says_and_goes_with_its_owner(tmp_path: Path) -> None:
    raw, plain, packed = RawTrace(), tmp_path / "a.json", tmp_path / "a.json.gz"
    assert not raw.copy_to(str(plain))
    path = raw.fresh()
    path.write_text("{}")
    assert raw.copy_to(str(plain))
    assert raw.copy_to(str(packed))
    assert (plain.read_text(), gzip.decompress(packed.read_bytes())) == ("{}", b"{}")
    assert raw.fresh() == path
    assert not path.exists()
    del raw
    assert not path.parent.exists()


def test_a_temporary_folder_that_is_not_utf_8_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / os.fsdecode(b"of\xff")
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with pytest.raises(OutputError, match=r"is not UTF-8.* set TMPDIR to"):
        RawTrace().fresh()
    assert list(folder.iterdir()) == []
