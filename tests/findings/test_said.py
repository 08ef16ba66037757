"""The rules say of each recorded session what a person judged to be right."""

from __future__ import annotations

import pytest

from tests.findings.said import every, sections

EVERY = every()


@pytest.mark.parametrize("name", EVERY)
def test_the_rules_say_what_was_judged(name: str) -> None:
    assert EVERY[name]() == sections()[name]


@pytest.mark.parametrize("name", [each for each in EVERY if each.startswith("findings ")])
def test_a_flaw_is_found_on_an_h200_and_neither_its_remedy_nor_a_tuned_model_has_any(
    name: str,
) -> None:
    rule, _, remedied = name.removeprefix("findings ").partition(".")
    *found, _ = sections()[name].splitlines()
    expected = [] if remedied or rule.startswith("tuned_") else [rule]
    assert [line.split()[0] for line in found] == expected


def test_each_judged_session_is_there() -> None:
    assert set(sections()) == set(EVERY)
