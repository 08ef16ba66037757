"""Errors that nothing on the stack tells apart need one run; what may tell them needs each."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from verification.faults.__main__ import ERRORS
from verification.faults.handlers import are_distinguished

ROOT = Path(__file__).parents[2]

BOTH = (RuntimeError, MemoryError)


def _here() -> bool:
    return are_distinguished(BOTH, sys._getframe(1))


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


def test_no_context_manager_of_ours_tells_planted_errors_apart():
    """What stands around a ``yield`` is on no stack: a handler there would not be seen."""
    paths = (path for room in ("profiler_ext", "exporters") for path in (ROOT / room).rglob("*.py"))
    found = {name for path in paths for name in _around_yields(ast.parse(path.read_text()))}
    planted = {error.__name__ for error in ERRORS if issubclass(error, Exception)}
    assert {"OSError", "BaseException"} <= found, "those that there are, are found"
    assert found & planted == set()


def _around_yields(tree: ast.Module) -> Iterator[str]:
    """Yield what is caught of what a ``yield`` raises, by the names in the handlers."""
    for block in (each for each in ast.walk(tree) if isinstance(each, ast.Try)):
        within = (node for part in block.body for node in ast.walk(part))
        if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in within):
            kinds = [each.type for each in block.handlers if each.type is not None]
            yield from (
                node.id for kind in kinds for node in ast.walk(kind) if isinstance(node, ast.Name)
            )
