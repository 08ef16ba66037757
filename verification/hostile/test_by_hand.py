"""Every file made by hand is read or refused in one sentence, in bounded time and memory."""

from __future__ import annotations

import pytest

from verification.hostile import sizes
from verification.hostile.pool import run_named
from verification.hostile.table import BY_HAND

WAYS = ("report", "tables")
LARGE = (
    "100,000 ops of one time",
    "20,000 eager launches, each at a line",
    "ops nested 80,000 deep",
    "20,000 steps",
    "100,000 ops that cross like stairs",
    "30,000 calls of a graph",
)
"""Of those that take seconds; `python -m verification.hostile` runs them all, and every way."""
NAMES = [name for name in BY_HAND if name not in sizes.CASES or name in LARGE]


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_file_is_read_or_refused_in_a_sentence(pool, name):
    runs = pool.submit(run_named, name, WAYS).result()
    assert [run for run in runs if not run.is_good] == []
    if refusal := BY_HAND[name].refused:
        assert runs[0].outcome == "refused"
        assert refusal in runs[0].detail
