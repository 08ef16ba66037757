"""What becomes no fixture is told in a sentence, and nothing is written."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from profiler_ext.sessions.session import FILE_NAME
from tests.cases import neutral

_PLAIN = b'{"schemaVersion": 1, "traceEvents": []}'


@pytest.mark.parametrize(
    ("content", "expected"),
    [(gzip.compress(_PLAIN), "is a trace of plain torch.profiler"), (b"junk", "is not JSON")],
    ids=["a plain trace", "no JSON"],
)
def test_what_is_no_session_is_refused_before_anything_is_written(
    content: bytes,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("a", "b"):
        (tmp_path / "given" / name).mkdir(parents=True)
        whole = neutral.FOLDER / f"adamw_fused{neutral.SUFFIX}"
        (tmp_path / "given" / name / FILE_NAME).write_bytes(
            whole.read_bytes() if name == "a" else content
        )
    monkeypatch.setattr(neutral, "FOLDER", tmp_path / "fixtures")
    monkeypatch.setattr(sys, "argv", ["neutral", str(tmp_path / "given"), "a", "b"])
    with pytest.raises(SystemExit) as ended:
        neutral.main()
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "fixtures").exists()
