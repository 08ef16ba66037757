"""The texts that compare two versions of capture tell all of a session but its times."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from profiler_ext.sessions.session import FILE_NAME
from tests.cases.neutral import FOLDER, SUFFIX
from tests.gold.captured import write_texts
from tests.gold.cells import TAB
from tests.gold.recorded import path_of


def text_of(folder: Path, trace: bytes) -> str:
    """Return the text of a trace that lies where `python -m tests.cases` leaves it."""
    session = folder / "out" / "cond" / "rank_1" / FILE_NAME
    session.parent.mkdir(parents=True)
    session.write_bytes(gzip.compress(trace))
    (written,) = write_texts(folder / "out", folder / "texts")
    assert written == folder / "texts" / "cond.rank_1.txt"
    return written.read_text()


def test_a_text_is_the_same_when_kernels_take_longer_and_has_the_rows_of_the_gold_file(tmp_path):
    trace = gzip.decompress((FOLDER / f"cond{SUFFIX}").read_bytes())
    slower = json.loads(trace)
    for event in slower["traceEvents"]:
        if event.get("cat") == "kernel":
            event["dur"] += 0.25
    text = text_of(tmp_path / "as_it_was", trace)
    assert text_of(tmp_path / "slower", json.dumps(slower).encode()) == text
    gold = path_of("cond").read_text()
    assert rows_in(text) == [f"  {row.partition(TAB)[2]}" for row in rows_in(gold)]


def rows_in(text: str) -> list[str]:
    """Return the rows of the launches, without the legend."""
    return [line for line in text.splitlines() if line.startswith("  ")][1:]
