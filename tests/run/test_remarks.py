"""What is said of slow steps that no recording has, and of what could not be kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profiler_ext.errors import OutputError
from profiler_ext.run.outcome import said_by
from profiler_ext.run.pace import Missed
from profiler_ext.run.remarks import slow_ones_missed

TRACE = Path("out/torch.pt.trace.json.gz")


def raised(error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def recorder(failure: Exception | None = None, lost: str | None = None) -> Any:
    return SimpleNamespace(failure=failure, lost=lost, trace=TRACE)


@pytest.mark.parametrize(
    "failed", [recorder(raised(RuntimeError("of ours"))), recorder(lost="RuntimeError: of ours")]
)
def test_where_something_of_ours_failed_it_is_said_where_torchs_trace_is(failed: Any) -> None:
    [said] = said_by(failed)
    assert "of ours" in said
    assert f"torch's own trace of what was recorded is {TRACE}; the script was not" in said


def test_what_is_the_users_to_mend_is_said_as_it_is() -> None:
    assert said_by(recorder(OutputError("the disk is full"))) == ("the disk is full",)


def test_where_nothing_failed_nothing_is_said() -> None:
    assert said_by(recorder()) == ()


def test_nothing_is_said_where_none_was_missed() -> None:
    assert slow_ones_missed(Missed()) == ()


def test_the_number_the_last_one_and_the_reason_are_told() -> None:
    missed = Missed()
    missed.add(12, was_held=True)
    missed.add(30, was_held=False)
    assert slow_ones_missed(missed) == (
        "2 slow steps are in no recording, last step 30: it fell between two: a larger --steps, or "
        "a smaller --every, leaves fewer between",
    )
