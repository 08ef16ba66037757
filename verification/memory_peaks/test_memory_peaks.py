"""The judge is right about recorded H100 peaks and rows made by hand; own programs train."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from verification.memory_peaks.cases import CASES
from verification.memory_peaks.judging import (
    is_exact,
    is_named,
    reserved_off_bytes,
    row_of,
    shares,
    table,
    without_us_bytes,
)
from verification.memory_peaks.programs import PROGRAMS

RECORDED = Path(__file__).parents[2] / "tests" / "fixtures" / "h200" / "memory"
PEAK = 537_559_040  # ``max_memory_allocated()`` of each of its steps, as the program printed it
OWN = ("gpt", "lstm", "recommender", "recommender_sparse", "unet")


def counts(peak_bytes: int, **more: Any) -> dict[str, Any]:
    return {"0": {"peak_bytes": peak_bytes, "reserved_bytes": 0, "is_steady": False} | more}


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    row = row_of(RECORDED / "gpt_eager.session.pt.trace.json.gz")
    return {"name": "gpt", "before": counts(PEAK), "counted": [counts(PEAK)] * 3, **row}


def test_a_recorded_peak_is_the_allocators_and_named(recorded: dict[str, Any]) -> None:
    assert is_exact(recorded) and is_named(recorded)
    assert without_us_bytes(recorded) == 0
    assert reserved_off_bytes(recorded) is None  # no step is known to be steady
    text = table([recorded])
    assert "| gpt | 513 | 0 | not known | 0 |" in text
    assert "to the byte in 1 of 1." in text and "have a kind in 1 of 1" in text


def test_a_byte_more_or_a_missing_block_is_not_exact(recorded: dict[str, Any]) -> None:
    assert not is_exact(recorded | {"counted": [counts(PEAK), counts(PEAK), counts(PEAK + 1)]})
    peaks = [each | {"blocks_bytes": PEAK - 512} for each in recorded["peaks"]]
    assert not is_exact(recorded | {"peaks": peaks})
    unseen = [each | {"unseen_bytes": 512} for each in recorded["peaks"]]
    assert not is_exact(recorded | {"peaks": unseen})


def test_without_an_allocator_that_counts_nothing_is_exact(recorded: dict[str, Any]) -> None:
    row = recorded | {"before": {}, "counted": [{}] * 3}
    assert not is_exact(row) and without_us_bytes(row) is None
    assert "| not known | not known | not known |" in table([row])


def test_reserved_memory_is_compared_in_steady_steps(recorded: dict[str, Any]) -> None:
    peaks = [each | {"unused_bytes": 1000} for each in recorded["peaks"]]
    steady = counts(PEAK, reserved_bytes=PEAK + 1000, is_steady=True)
    row = recorded | {"peaks": peaks, "counted": [steady] * 3}
    assert reserved_off_bytes(row) == 0
    more = counts(PEAK, reserved_bytes=PEAK + 900, is_steady=True)
    assert reserved_off_bytes(row | {"counted": [steady, more, steady]}) == 100


def test_what_is_unnamed_stands_with_all_that_is_known_of_it(recorded: dict[str, Any]) -> None:
    peaks = [dict(each) for each in recorded["peaks"]]
    unnamed = {
        "missing": "kind, reason", "block_bytes": 512, "requested_bytes": 400, "kind": "other",
        "phase": "other", "born": "before the recording", "freed": "not in the recording",
        "op": "aten::empty", "module": "", "line": "", "name": "", "kernel": "",
        "gap": "before_recording", "pool": 0, "has_stack": False, "count": 2,
        "bytes": PEAK // 10,
    }  # fmt: skip
    peaks[0] |= {"unnamed": [unnamed], "shares": dict.fromkeys(peaks[0]["shares"], 0.9)}
    row = recorded | {"peaks": peaks}
    assert not is_named(row) and shares(row)["kind"] == 0.9
    (line,) = (line for line in table([row]).splitlines() if "aten::empty" in line)
    assert line.startswith("| gpt | 10.00 | 2 | 512 | 400 | kind, reason | other |")


def test_a_failure_stands_in_the_table_and_is_not_judged(recorded: dict[str, Any]) -> None:
    text = table([recorded, {"name": "fsdp1_rank0", "failure": "not run: it needs 2 GPUs"}])
    assert "| fsdp1_rank0 | not run: it needs 2 GPUs |" in text and "in 1 of 1." in text


def test_there_are_forty_programs_and_each_name_stands_once() -> None:
    names = [each.name for each in (*PROGRAMS, *CASES)]
    assert len(PROGRAMS) == 40 and len(set(names)) == len(names)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("name", OWN)
def test_own_programs_train(name: str) -> None:
    (program,) = (each for each in PROGRAMS if each.name == name)
    step = program.make(True)
    losses = [float(step()) for _ in range(2)]  # type: ignore[arg-type]
    assert all(map(math.isfinite, losses)) and losses[0] != losses[1]
