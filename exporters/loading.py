"""Owns how a row of a list names a function of this package, which is loaded when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def load_function(function: str) -> Callable[..., Any]:
    """Load a function.

    Args:
        function: ``module:name``, the module below this package.

    Returns:
        The function.
    """
    module, _, name = function.partition(":")
    loaded: Callable[..., Any] = getattr(import_module(f"{__package__}.{module}"), name)
    return loaded
