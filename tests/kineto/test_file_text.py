"""What is too long to hold is read again from its file, and never from another one."""

import gzip
import os
import tempfile

import pytest

from profiler_ext.errors import TraceError
from profiler_ext.kineto import source
from profiler_ext.kineto.reader import read_trace
from profiler_ext.kineto.source import FileText
from tests.kineto.traces import EVENTS, text_of, written

MANY = EVENTS * 40
TEXT = text_of(MANY)


@pytest.fixture(autouse=True)
def everything_is_long(monkeypatch):
    monkeypatch.setattr(source, "IN_MEMORY_BYTES", 100)
    monkeypatch.setattr(source, "_PART_BYTES", 64)
    monkeypatch.setattr(source, "_WINDOW_BYTES", 256)


@pytest.fixture
def path(tmp_path):
    return written(tmp_path, TEXT)


@pytest.fixture
def packed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = tmp_path / "packed.pt.trace.json.gz"
    path.write_bytes(gzip.compress(TEXT))
    return path


def test_a_part_of_a_file_is_what_the_same_part_of_its_bytes_is(path):
    text = source.read_text(path)
    assert isinstance(text, FileText)
    parts = [slice(begin, begin + size) for begin in range(0, 2000, 37) for size in (0, 9, 300)]
    assert [text[part] for part in parts] == [TEXT[part] for part in parts]
    assert (len(text), text[:], text[5:]) == (len(TEXT), TEXT, TEXT[5:])


@pytest.mark.parametrize("change", ["removed", "renamed", "replaced"])
def test_events_outlive_the_name_of_their_file(path, change):
    trace = read_trace(path)
    if change == "removed":
        path.unlink()
    elif change == "renamed":
        path.rename(path.with_name("elsewhere"))
    else:
        other = path.with_name("other")
        other.write_bytes(b" " * len(TEXT))
        other.replace(path)
    assert list(trace.raw) == list(MANY)


@pytest.mark.parametrize("content", [b"", TEXT[:-500], TEXT + b" ", TEXT.replace(b"mm", b"bm")])
def test_a_file_that_was_written_into_is_one_clear_error(path, content):
    trace = read_trace(path)
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))  # as a later write has another time
    with pytest.raises(TraceError, match="was written into after it was opened; load it again"):
        trace.raw[100]


def test_what_is_unpacked_has_no_name(packed):
    trace = read_trace(packed)
    assert isinstance(trace.raw.text, FileText)
    assert list(packed.parent.iterdir()) == [packed]
    packed.unlink()
    assert list(trace.raw) == list(MANY)


def test_what_finds_no_room_on_the_disk_is_held(packed, monkeypatch):
    def full():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    trace = read_trace(packed)
    assert isinstance(trace.raw.text, bytes)
    assert list(trace.raw) == list(MANY)


@pytest.mark.parametrize(
    ("damage", "found"),
    [(lambda text: text[:-9], "is cut short"), (lambda text: text[:-8] + b"\0" * 8, "damaged")],
)
def test_long_gzip_that_is_damaged_is_one_clear_error(packed, damage, found):
    packed.write_bytes(damage(packed.read_bytes()))
    with pytest.raises(TraceError, match=found):
        read_trace(packed)


def test_a_file_is_closed_when_its_trace_goes(path):
    text = source.read_text(path)
    descriptor = text.descriptor
    os.fstat(descriptor)
    del text
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_file_that_is_odd_is_held(tmp_path):
    trace = read_trace(written(tmp_path, b"\xef\xbb\xbf" + TEXT))
    assert isinstance(trace.raw.text, bytes)
    assert list(trace.raw) == list(MANY)
