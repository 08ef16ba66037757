"""Owns what a file is called in a comparison: its path below the root that it lies under.

So a file is the same in two checkouts, on two machines and in two environments, and a torch that is
run from its sources is called as an installed one. Where two files of a run would be called the
same, each keeps its whole path.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from profiler_ext.records import Settings

_PACKAGES = ("torch", "triton")


def file_names(paths: Iterable[str], settings: Settings) -> dict[str, str]:
    """Return what each path is called.

    Args:
        paths: paths of a run.
        settings: has the roots.
    """
    roots = (*settings.user_roots, *map(_above_package, settings.library_roots))
    longest_first = sorted({root.rstrip("/") + "/" for root in roots}, key=len, reverse=True)
    short = {path: _below(path, longest_first) for path in dict.fromkeys(paths)}
    name_counts: dict[str, int] = {}
    for name in short.values():
        name_counts[name] = name_counts.get(name, 0) + 1
    return {path: name if name_counts[name] == 1 else path for path, name in short.items()}


def _above_package(root: str) -> str:
    """Return a root, of a package that is one by itself the folder above it."""
    path = PurePath(root)
    return str(path.parent) if path.name in _PACKAGES else root


def _below(path: str, roots: list[str]) -> str:
    root = next((root for root in roots if path.startswith(root)), "")
    return path[len(root) :]
