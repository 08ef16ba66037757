"""Torch's own trace of a cycle is there for as long as its owner, and its file is gone at once."""

from __future__ import annotations

import gzip
import resource
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest

from profiler_ext.errors import OutputError, TraceError
from profiler_ext.kineto.reader import read_trace
from profiler_ext.profiling.torch_views import RawTrace


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def written(path: str) -> None:
    Path(path).write_text("{}")


def interrupted(path: str) -> NoReturn:
    written(path)
    raise KeyboardInterrupt


def test_the_trace_is_copied_as_its_name_says_and_has_no_file_of_its_own(tmp_path: Path) -> None:
    raw, plain, packed = RawTrace(), tmp_path / "a.json", tmp_path / "a.json.gz"
    assert not raw.copy_to(str(plain))
    with raw.written(written) as path:
        assert path.read_text() == "{}"
    assert list(tmp_path.iterdir()) == []
    assert raw.copy_to(str(plain))
    assert raw.copy_to(str(packed))
    assert (plain.read_text(), gzip.decompress(packed.read_bytes())) == ("{}", b"{}")


def test_what_ends_the_writing_leaves_nothing_and_the_last_trace_is_no_more(tmp_path: Path) -> None:
    raw = RawTrace()
    with raw.written(written):
        pass
    with pytest.raises(KeyboardInterrupt), raw.written(interrupted):
        pass
    assert not raw.copy_to(str(tmp_path / "a.json"))
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_made_a_session_can_be_exported(tmp_path: Path) -> None:
    raw = RawTrace()
    with pytest.raises(TraceError), raw.written(written) as path:
        read_trace(path)
    assert raw.copy_to(str(tmp_path / "a.json"))


def test_where_torch_could_not_write_the_error_says_so(tmp_path: Path) -> None:
    refused = pytest.raises(OutputError, match=f"could not write its trace into {tmp_path}, so")
    with refused, RawTrace().written(lambda _: None):
        pass


@pytest.mark.parametrize("part", ["", '{"traceEvents": [{'])
def test_where_a_disk_takes_a_part_only_the_error_says_so(tmp_path: Path, part: str) -> None:
    message = f"could not write the whole of its trace into {tmp_path}, so"
    with (
        pytest.raises(OutputError, match=message),
        RawTrace().written(lambda to: Path(to).write_text(part)),
    ):
        pass


def test_where_no_file_can_be_opened_the_error_says_so_and_nothing_is_left(tmp_path: Path) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    refused = pytest.raises(OutputError, match=rf"into {tmp_path} \(Too many open files\), so")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, most[1]))
        with refused, RawTrace().written(lambda _: None):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
    assert list(tmp_path.iterdir()) == []


def test_where_no_temporary_folder_can_be_made_torch_writes_into_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    raw = RawTrace(tmp_path / "out")
    with raw.written(written) as path:
        assert path.parents[1] == tmp_path
    assert list(tmp_path.iterdir()) == []
    assert raw.copy_to(str(tmp_path / "a.json"))


def test_where_none_can_be_made_at_all_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    monkeypatch.chdir("/proc")
    refused = pytest.raises(OutputError, match=r"recorded is lost; set TMPDIR to")
    with refused, RawTrace().written(written):
        pass
