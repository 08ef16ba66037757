"""Owns which store this process keeps its records in: the one beside Inductor's cache."""

from __future__ import annotations

import functools
from pathlib import Path

from profiler_ext.store import Store
from profiler_ext.torch_compat import inductor


def process_store() -> Store:
    """Return the store of this process; Inductor's cache may move while it runs."""
    return _store_in(inductor.cache_dir())


@functools.cache
def _store_in(cache_dir: str) -> Store:
    return Store(Path(cache_dir) / "profiler_ext")
