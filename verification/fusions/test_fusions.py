"""The pairs compute the same, and the judge is right about rows made by hand."""

from __future__ import annotations

import math

import pytest

from verification.flaws.measuring import sizes_of
from verification.fusions.__main__ import NAMES, builder
from verification.fusions.judging import is_close, marked_lines, said_ms, table

DIFFERS = ("eager_random",)  # it draws other numbers


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo's
@pytest.mark.parametrize("name", NAMES)
def test_both_forms_compute_the_same(name: str) -> None:
    results = []
    for flawed in (True, False):
        step = builder(name)(flawed, sizes_of(is_tiny=True))
        with step.within():
            results.append([float(step.run()) for _ in range(2)])
    assert all(math.isfinite(each) for own in results for each in own)
    assert name in DIFFERS or results[0] == pytest.approx(results[1], rel=2e-2, abs=2e-2)


@pytest.mark.parametrize("name", NAMES)
def test_each_has_lines_that_a_finding_may_name(name: str) -> None:
    assert marked_lines(name)


def row(said: float, gain: float, line: int | None = None) -> dict:
    file, known = min(marked_lines("stencil"))
    found = {"rule": "missed_fusion", "file": file, "line": line or known, "saving_ms": said}
    return {
        "name": "stencil",
        "lines": [list(each) for each in marked_lines("stencil")],
        "findings": [found, {**found, "rule": "launch_bound"}],
        "flawed_ms": 2.0,
        "remedied_ms": 2.0 - gain,
        "gain_ms": gain,
        "gain_interval_ms": [gain - 0.1, gain + 0.1],
    }


def test_a_claim_counts_at_its_lines_and_is_close_within_a_factor_of_two() -> None:
    assert said_ms(row(0.5, 0.4)) == 0.5
    assert said_ms(row(0.5, 0.4, line=1)) == 0
    assert [is_close(row(0.5, gain)) for gain in (0.2, 0.4, 0.9, 1.1, 0.05)] == [
        *(False, True, True, False, False)
    ]


def test_the_table_sums_up_what_was_said_and_won() -> None:
    rows = [row(0.5, 0.4), row(0.5, 0.05), {"name": "windows", "failure": "a\nb"}]
    assert table(rows).splitlines()[2:] == [
        "| stencil | 2.000 | 1.600 | 0.400 [0.300, 0.500] | 0.500 | 1.25 |",
        "| stencil | 2.000 | 1.950 | 0.050 [-0.050, 0.150] | 0.500 | 10.00 |",
        "| windows | failed: a b | | | | |",
        "",
        "Said to be missed: 2 of 3. Of these won: 1, within a factor of 2: 1.",
    ]
