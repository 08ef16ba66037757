"""That C++ is compiled once for all tests: Inductor's files are linked from cache to cache.

The files are named by what was compiled and how, so a cache that begins with them differs from an
empty one in time alone. What torch keeps of graphs, and what we keep, is never among them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

_OF_GRAPHS = ("fxgraph", "aotautograd", "profiler_ext")


def share(of: Path, cache: Path) -> None:
    """Link the compiled C++ of one cache, whose processes have ended well, into another."""

    def kept(_: str, names: list[str]) -> set[str]:
        return {name for name in names if name in _OF_GRAPHS or name.endswith((".lock", ".py"))}

    def link(source: str, target: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.link(source, target)

    if of.is_dir():  # nothing may have been compiled
        shutil.copytree(of, cache, ignore=kept, copy_function=link, dirs_exist_ok=True)
