"""What is said of slow steps that no recording has, and of what could not be kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profiler_ext.errors import OutputError
from profiler_ext.run.outcome import failure_lines
from profiler_ext.run.remarks import missed_slow_steps
from profiler_ext.run.window import MissedSteps

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
def test_where_something_of_ours_failed_it_is_reported_where_torchs_trace_is(failed: Any) -> None:
    [lines] = failure_lines(failed)
    assert "of ours" in lines
    assert f"torch's own trace of what was recorded is {TRACE}; the script was not" in lines


def test_what_is_the_users_to_mend_is_reported_as_it_is() -> None:
    assert failure_lines(recorder(OutputError("the disk is full"))) == ("the disk is full",)


def test_where_nothing_failed_nothing_is_reported() -> None:
    assert failure_lines(recorder()) == ()


def test_nothing_is_reported_where_none_was_missed() -> None:
    assert missed_slow_steps(MissedSteps()) == ()


def test_the_number_the_last_one_and_the_reason_are_reported() -> None:
    missed = MissedSteps()
    missed.add(12, had_open_region=True)
    missed.add(30, had_open_region=False)
    assert missed_slow_steps(missed) == (
        "2 slow steps are in no recording, last step 30: it fell between two: a larger --steps, or "
        "a smaller --every, leaves fewer between",
    )
