"""Whether anything on the stack tells errors apart: two that nothing does take one way."""

from __future__ import annotations

import ast
import builtins
import functools
import linecache
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

Errors = Sequence[type[BaseException]]


def are_distinguished(errors: Errors, frame: FrameType | None) -> bool:
    """Tell whether a handler might treat the errors in different ways, up to what ends them all.

    Args:
        errors: raised in the frame.
        frame: where they are raised.
    """
    while frame is not None:
        for handlers in _around(frame):
            if any(_tells(each, errors, frame) for each in handlers):
                return True
            if any(_ends(each, errors, frame) for each in handlers):
                return False
        frame = frame.f_back
    return False


def _around(frame: FrameType) -> Iterator[list[ast.expr | ast.ExceptHandler | None]]:
    """Yield what handles an error in a frame, from the innermost: handlers, ``suppress``."""
    found = [
        each
        for each in _blocks(frame.f_code.co_filename)
        if each.body[0].lineno <= frame.f_lineno <= (each.body[-1].end_lineno or 0)
    ]
    for block in sorted(found, key=lambda each: -each.lineno):
        if isinstance(block, ast.With):
            calls = [item.context_expr for item in block.items]
            yield [each for call in calls if _is_suppress(call) for each in call.args]
        else:
            yield list(block.handlers)


@functools.cache
def _blocks(path: str) -> list[Any]:
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return []
    return [each for each in ast.walk(tree) if isinstance(each, ast.Try | ast.With)]


def _is_suppress(call: Any) -> bool:
    return isinstance(call, ast.Call) and ast.unparse(call.func).endswith("suppress")


def _matches(handler: Any, errors: Errors, frame: FrameType) -> list[bool] | None:
    """Tell which errors a handler takes; ``None`` where its types cannot be found."""
    kind = handler.type if isinstance(handler, ast.ExceptHandler) else handler
    if kind is None:
        return [True] * len(errors)
    try:
        named = [_value(each, frame) for each in getattr(kind, "elts", [kind])]
        return [any(issubclass(error, each) for each in named) for error in errors]
    except (KeyError, AttributeError, TypeError):
        return None


def _value(node: ast.expr, frame: FrameType) -> Any:
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, frame), node.attr)
    if not isinstance(node, ast.Name):
        raise TypeError(ast.unparse(node))
    for names in (frame.f_locals, frame.f_globals, vars(builtins)):
        if node.id in names:
            return names[node.id]
    raise KeyError(node.id)


def _tells(handler: Any, errors: Errors, frame: FrameType) -> bool:
    matched = _matches(handler, errors, frame)
    return matched is None or len(set(matched)) > 1


def _ends(handler: Any, errors: Errors, frame: FrameType) -> bool:
    """Tell whether the errors end here: taken, and not raised again."""
    if not all(_matches(handler, errors, frame) or [False]):
        return False
    body = getattr(handler, "body", [])
    return not any(isinstance(each, ast.Raise) for part in body for each in ast.walk(part))
