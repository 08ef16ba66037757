"""Errors that nothing on the stack tells apart need one run; what may tell them needs each."""

from __future__ import annotations

import contextlib
import sys

from tests.faults.handlers import are_told_apart

BOTH = (RuntimeError, MemoryError)


def _here() -> bool:
    return are_told_apart(BOTH, sys._getframe(1))


def test_what_takes_all_of_them_ends_the_question() -> None:
    def caught() -> bool:
        try:
            return _here()
        except Exception:
            return False

    try:
        found = caught()
    except MemoryError:
        raise
    assert not found


def test_a_handler_of_one_of_them_tells_them_apart() -> None:
    try:
        found = _here()
    except (ValueError, MemoryError):
        raise
    assert found
    with contextlib.suppress(RuntimeError):
        assert _here()


def test_what_takes_all_and_raises_again_leaves_it_to_those_around() -> None:
    def cleaned() -> bool:
        try:
            return _here()
        except Exception:
            raise

    try:
        found = cleaned()
    except RuntimeError:
        raise
    assert found


def test_a_handler_whose_types_cannot_be_found_may_tell_them_apart() -> None:
    def kinds() -> tuple[type[Exception], ...]:
        return (ValueError,)

    try:
        found = _here()
    except kinds():
        raise
    assert found


def test_a_handler_of_neither_does_not_tell_them_apart() -> None:
    def caught() -> bool:
        try:
            try:
                return _here()
            except KeyError:
                return False
        except Exception:
            return False

    assert not caught()
