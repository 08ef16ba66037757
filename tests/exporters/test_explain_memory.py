"""Explain has the memory of a line, module or kernel: the same bytes as the table."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from profiler_ext.sessions.session import Session
from tests.analyses import gpu_step
from tests.memory.test_recorded_peaks import PEAKS, recorded

NAME = "gpt_compiled"
PEAK = PEAKS[NAME][0]


def explained(name: str):
    return json.loads(recorded(NAME).explain(name, format="json"))


def test_the_lines_of_the_file_add_up_to_what_has_a_line_at_the_peak() -> None:
    sums: Counter[int] = Counter()
    for row in recorded(NAME).columns("by_memory", step=5).records():
        if row["device"] == 0 and row["line"] is not None:
            sums[row["line"]] += row["peak_bytes"]
    for line, size in sums.items():
        every = explained(f"memory47_program.py:{line}")["memory"]
        (facts,) = (each for each in every if each["device"] == 0)
        assert facts["peak_bytes"] == size == sum(row["peak_bytes"] for row in facts["rows"])
        assert (facts["device_peak_bytes"], facts["step"]) == (PEAK, 5)
        assert sum(reason["peak_bytes"] for reason in facts["reasons"]) == size


def test_the_model_itself_has_all_that_has_a_module() -> None:
    rows = recorded(NAME).columns("by_memory", step=5).records()
    size = sum(r["peak_bytes"] for r in rows if r["device"] == 0 and r["module"] is not None)
    (facts,) = (m for m in explained("(model)")["memory"] if m["device"] == 0)
    assert facts["peak_bytes"] == size


@pytest.mark.parametrize("format", ["text", "md"])
def test_a_page_says_it(format: str) -> None:
    text = " ".join(recorded(NAME).explain("memory47_program.py:19", format=format).split())
    assert "Memory of device 0" in text
    assert "37 MiB of 404 MiB (9.2%) at the peak, in step 5, backward; the step" in text
    assert "Memory of the CPU" not in text
    assert "at the peak: saved by a compiled forward; the largest for" in text


def test_without_memory_nothing_is_said() -> None:
    session = Session(gpu_step().recording)
    answer = json.loads(session.explain("up", format="json"))
    assert answer["memory"] == []
    assert "Memory" not in session.explain("up")
