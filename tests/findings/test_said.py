"""The rules say of each recorded session what a person judged to be right."""

from __future__ import annotations

import pytest

from tests.findings.said import every, sections

EVERY = every()


@pytest.mark.parametrize("name", EVERY)
def test_the_rules_say_what_was_judged(name: str) -> None:
    assert EVERY[name]() == sections()[name]


def test_each_judged_session_is_there() -> None:
    assert set(sections()) == set(EVERY)
