"""What is exported without source has none: no line's text, no generated code, in any format."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest

import profiler_ext
from profiler_ext import cli
from profiler_ext.exporters.formats import FORMATS
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.recording import Recording

RECORDED = Path(__file__).parent / "fixtures" / "h200" / "cases"
SESSION = RECORDED / "user_triton.session.pt.trace.json.gz"


def texts(recording: Recording) -> set[str]:
    """Return the text of each line that a recording holds, as far as it is long enough to tell."""
    places = profiler_ext.Session(recording).analysis.places
    frames = [frame.code for place in places for frame in place.stack]
    return {text for text in (*frames, *(p.code for p in places)) if text and len(text) > 12}


@pytest.mark.parametrize("target", [each.target for each in FORMATS])
def test_an_export_without_source_has_the_text_of_no_line(target: str, tmp_path: Path) -> None:
    target = tmp_path / target
    words = ["export", str(SESSION), "--no-source", "-o", str(target)]
    assert cli.main(words) == 0
    files = [target] if target.is_file() else [f for f in target.rglob("*") if f.is_file()]
    written = b"".join(_unpacked(file.read_bytes()) for file in files)
    known = texts(profiler_ext.load(SESSION).recording)
    assert known and written
    assert [text for text in known if text.encode() in written] == []


def test_a_session_without_source_is_attributed_as_before(tmp_path: Path) -> None:
    session = profiler_ext.load(SESSION)
    bare = profiler_ext.load(session.without_source().save(tmp_path))
    columns = ["file", "line", "duration_ns"]
    assert bare.by_line()[columns].equals(session.by_line()[columns])
    assert texts(bare.recording) == set()
    assert bare.recording.generated == ()
    assert [gap.reason for gap in bare.recording.gaps].count(GapReason.SOURCE_OFF) == 1
    assert bare.without_source().recording.gaps == bare.recording.gaps


def _unpacked(data: bytes) -> bytes:
    if data[:2] == b"\x1f\x8b":
        return gzip.decompress(data)
    return zlib.decompress(data) if data[:1] == b"x" else data
