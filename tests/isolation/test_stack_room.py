"""The program may call as deep as without us, and finds its limit of recursion as it left it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from profiler_ext.isolation.user_state import RecursionHeadroom, isolated


@pytest.fixture(autouse=True)
def limit() -> Iterator[int]:
    """The limit before; it is put back afterwards."""
    found = sys.getrecursionlimit()
    yield found
    sys.setrecursionlimit(found)


def test_room_is_there_until_it_is_given_back(limit: int) -> None:
    room = RecursionHeadroom()
    room.make()
    assert sys.getrecursionlimit() == limit + 100
    room.restore()
    room.restore()
    assert sys.getrecursionlimit() == limit


def test_room_made_and_given_back_amid_work_of_ours_is_the_programs(limit: int) -> None:
    room = RecursionHeadroom()
    with isolated():
        room.make()
    assert sys.getrecursionlimit() == limit + 100
    with isolated():
        room.restore()
    assert sys.getrecursionlimit() == limit


def test_a_limit_that_the_program_sets_meanwhile_stays(limit: int) -> None:
    room = RecursionHeadroom()
    with isolated():
        room.make()
    sys.setrecursionlimit(limit + 7)
    with isolated():
        room.restore()
    assert sys.getrecursionlimit() == limit + 7
