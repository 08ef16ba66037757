"""The recordings that a page's commands work on: laid into a folder, read and led once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pytest

from profiler_ext.exporters.formats import FILE_NAME
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.recording import Recording
from profiler_ext.sessions import session
from tests.cases.neutral import SUFFIX

RECORDED = Path(__file__).parents[1] / "fixtures" / "h200"
_read, _attribute = session.read_recording, session.attribution.attribute
WIDTH = "96"
"""Of the terminal whose output the pages show."""
_KEPT = 12


def lay(words: str, folder: Path) -> None:
    """Lay recordings into a folder.

    Args:
        words: ``NAME=RECORDING`` each, of ranks ``NAME=RECORDING+RECORDING``.
        folder: where a page's commands work.
    """
    for word in words.split():
        name, _, sources = word.partition("=")
        recorded = [RECORDED / f"{source}{SUFFIX}" for source in sources.split("+")]
        for number, path in enumerate(recorded):
            into = folder / name / f"rank_{number}" if len(recorded) > 1 else folder / name
            into.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, into / FILE_NAME)


@contextmanager
def read_once() -> Iterator[None]:
    """Let each recording be read once, wherever it lies; what else is read is read as it is."""
    by_size = {path.stat().st_size: path for path in RECORDED.rglob(f"*{SUFFIX}")}

    def read(path: Path, jobs: int | None = 1) -> Recording:
        original = by_size.get(path.stat().st_size) if path.exists() else None
        if original is None or original.read_bytes() != path.read_bytes():
            return _read(path, jobs)
        return _recording(original)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "read_recording", read)
        patch.setattr(session.attribution, "attribute", _attributed)
        yield


@lru_cache(maxsize=_KEPT)
def _recording(path: Path) -> Recording:
    return _read(path)


_ANALYSES: dict[int, Analysis] = {}


def _attributed(recording: Recording) -> Analysis:
    """Attribute a recording that is kept once, any other as it comes."""
    made = _ANALYSES.get(id(recording))
    if made is None or made.recording is not recording:
        made = _ANALYSES[id(recording)] = _attribute(recording)
    if len(_ANALYSES) > _KEPT:
        _ANALYSES.pop(next(iter(_ANALYSES)))
    return made
