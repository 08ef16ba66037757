"""A recorded session in which anything was changed is read or refused in one sentence."""

from __future__ import annotations

import pytest

from verification.hostile.fields import CASES
from verification.hostile.pool import run_mutation, run_named

SEEDS = range(48)
FIELDS = list(CASES)[::53]


def test_mutations_of_recorded_sessions(pool):
    found = pool.map(run_mutation, SEEDS)
    assert [run for runs in found for run in runs if not run.is_good] == []


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_with_what_does_not_belong_there(pool, name):
    runs = pool.submit(run_named, name, ("tables",)).result()
    assert [run for run in runs if not run.is_good] == []
