"""Owns what a function that takes all its arguments as one was passed first."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import CodeType
from typing import Any


def first_vararg(code: CodeType, scope: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return the variable of ``*args`` and its first value, of code that takes no other argument.

    Args:
        code: that of a function.
        scope: its local variables.
    """
    if code.co_argcount or not code.co_flags & inspect.CO_VARARGS:
        return None
    name = code.co_varnames[code.co_kwonlyargcount]
    passed = scope.get(name)
    return (name, passed[0]) if type(passed) is tuple and passed else None
