"""The private names of torch that are read or called, each declared once."""

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
    """Return each name that this torch should have and lacks, with what is lost."""
    expected = (name for name in ALL if not is_loaded or name.module in sys.modules)
    names = ((name.missing_reason(), name.purpose) for name in expected)
    return tuple(f"{reason}; lost is {purpose}" for reason, purpose in names if reason is not None)
