"""The edited programs compute the same, and the judge is right about rows made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from profiler_ext.memory.rules import RULES
from verification.memory_prices.judging import is_right, table, time_is_right, tried_table
from verification.memory_prices.mended import MENDED
from verification.memory_prices.programs import TRIALS, Claim
from verification.memory_prices.unfitted import UNFITTED

CLAIM = Claim("blocks.*", (("chunks", 4), ("larger batch", 2)))
OTHER = ("gpt_batch", "gpt_compiled_blocks", "gpt_8bit")  # another batch; compiled; a library
OWN = [each for each in TRIALS if each.name.startswith("gpt") and each.name not in OTHER]
OWN += [each for each in MENDED if each.name in ("gpt_tied", "lstm_zeroed", "ddpm")]
OWN += [each for each in UNFITTED if each.name == "wide_foreach"]
ROUNDED = ("gpt_weights",)  # bfloat16 weights


@pytest.mark.parametrize("trial", OWN, ids=lambda each: each.name)
def test_both_forms_compute_the_same(trial: Any) -> None:
    claim = Claim(trial.blocks or CLAIM.module, CLAIM.figures)
    steps = (trial.make(each, True) for each in (None, claim))  # each draws its own dropout
    losses = [[float(step()) for _ in range(2)] for step in steps]
    tolerance = 2e-2 if trial.name in ROUNDED else 1e-5
    assert losses[0] == pytest.approx(losses[1], rel=tolerance)


def row(saved: int, took_ns: int) -> dict[str, Any]:
    return {
        "name": "gpt_blocks",
        "as_it_is": {"peak_bytes": 1_000_000_000, "step_ns": 100_000_000},
        "edited": {"peak_bytes": 1_000_000_000 - saved, "step_ns": 100_000_000 + took_ns},
        "claims": [claim()],
    }


def claim(extra_ns: int | None = 10_000_000) -> dict[str, Any]:
    return {
        "rule": "kept_activations",
        "module": "blocks.*",
        "saved_bytes": 400_000_000,
        "extra_ns": extra_ns,
        "figures": [],
    }


@pytest.mark.parametrize(
    ("saved", "took_ns", "right"),
    [
        (400_000_000, 10_000_000, True),
        (383_000_000, 14_900_000, True),
        (420_000_000, 6_700_000, True),
        (370_000_000, 10_000_000, False),
        (400_000_000, 15_100_000, False),
        (400_000_000, -10_000_000, False),
    ],
)
def test_bytes_are_right_within_a_twentieth_and_time_within_a_half(
    saved: int, took_ns: int, right: bool
) -> None:
    assert is_right(row(saved, took_ns), claim()) is right
    assert f"{int(right)} of 1 are right" in table([row(saved, took_ns)])


def test_a_time_that_is_not_said_is_not_judged_and_noise_is_no_time() -> None:
    assert time_is_right(row(400_000_000, 50_000_000), claim(None)) is None
    assert is_right(row(400_000_000, 50_000_000), claim(None))
    assert time_is_right(row(400_000_000, -900_000), claim(900_000)) is True


def test_a_claim_that_is_not_made_is_not_right() -> None:
    silent = {**row(400_000_000, 10_000_000), "claims": []}
    assert "no such claim" in table([silent]) and "0 of 1 are right" in table([silent])


def test_trials_that_nothing_was_fitted_to_are_of_all_rules_and_of_other_programs() -> None:
    assert {each.rule for each in MENDED} == {each.name for each in RULES}
    names = [each.name for each in (*TRIALS, *MENDED, *UNFITTED)]
    assert len(set(names)) == len(names)


def tried(**more: Any) -> dict[str, Any]:
    row = {
        "remedies": ["checkpoint_blocks"], "verdict": "saves memory", "claimed_bytes": 400_000_000,
        "base_peak_bytes": 1_000_000_000, "peak_bytes": 610_000_000,
        "base_reserved_bytes": 1_200_000_000, "reserved_bytes": 1_100_000_000,
    }  # fmt: skip
    return {"name": "gpt_blocks", "tried": [row | more]}


def test_what_try_measured_stands_beside_what_was_claimed() -> None:
    assert "| 1,000 | 400 | 390 | +2.6% | yes |" in tried_table([tried()])
    reserved = tried(remedies=["expandable_segments"], claimed_bytes=50_000_000)
    text = tried_table([reserved, {"name": "t5", "failure": "it ended with 1"}])
    assert "| 50 | 100 | -50.0% | no |" in text and "0 of 1 claims were right" in text
    assert "nothing claimed could be tried" in tried_table([tried(claimed_bytes=None)])
    broken = tried(peak_bytes=None, verdict="breaks the script")
    assert "| not measured |" in tried_table([broken]) and "0 of 0" in tried_table([broken])
