"""A sample of mutants is drawn the same again, and no score hides what was not seen to die."""

from __future__ import annotations

import pytest

from verification.mutants.results import scores, survivors
from verification.mutants.rooms import drawn, room_of

LINEAGE = "profiler_ext.capture.lineage.order.x_find_lineages__mutmut_1"
RECORD = "profiler_ext.records.lineage.xǁLineageǁat__mutmut_2"
NESTING = "profiler_ext.attribution.trace.nesting.x_nested__mutmut_1"


def test_the_same_seed_draws_the_same_mutants_in_whatever_order_they_are_known():
    mutants = [f"m{number}" for number in range(100)]
    sample = drawn(mutants, 10, seed=3)
    assert len(set(sample)) == 10
    assert sample == drawn(reversed(mutants), 10, seed=3) != drawn(mutants, 10, seed=4)
    assert drawn(mutants, 200, seed=3) == sorted(mutants)


def test_a_mutant_is_of_the_room_of_its_module():
    assert [room_of(name) for name in (LINEAGE, RECORD, NESTING)] == [
        "lineage",
        "lineage",
        "attribution",
    ]
    with pytest.raises(ValueError, match="not enough values"):
        room_of("profiler_ext.cli.main.x_main__mutmut_1")


def test_what_no_test_covers_or_has_been_tried_on_counts_as_a_survivor():
    results = {LINEAGE: "killed", RECORD: "no tests", NESTING: "not checked"}
    assert survivors(results) == [NESTING, RECORD]
    assert list(scores(results)) == [
        "attribution: 0 of 1 died, 0%",
        "lineage: 1 of 2 died, 50%",
        "both: 1 of 3 died, 33%",
    ]


def test_one_that_breaks_the_process_is_dead_and_one_that_ran_out_of_time_may_have_been_slow():
    assert survivors({LINEAGE: "timeout", RECORD: "segfault", NESTING: "killed"}) == [LINEAGE]
