"""The list of torch's private names that are read or called, each declared once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

from profiler_ext.torch_compat.names import artifact_names, fx_names, kernel_names, running_names
from profiler_ext.torch_compat.private import Name


def _declared(module: ModuleType) -> Iterator[Name]:
    for value in vars(module).values():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Name):
                yield each


_MODULES = (kernel_names, fx_names, artifact_names, running_names, artifact_names)
ALL = tuple(dict.fromkeys(name for module in _MODULES for name in _declared(module)))


def missing_names(*, is_loaded: bool = False) -> tuple[str, ...]:
    """Return what this torch is to have and has not: the name, and what is lost without it."""
    expected = (name for name in ALL if not is_loaded or name.module in sys.modules)
    names = ((name.missing_reason(), name.purpose) for name in expected)
    return tuple(
        f"{missing_reason}; lost is {purpose}"
        for missing_reason, purpose in names
        if missing_reason is not None
    )
