"""Owns which runs a log folder holds: each file of attribution in it is one.

A run is called after its folder, as TensorBoard calls runs, and the process: ``big/rank0``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from profiler_ext.exporters.tensorboard_plugin.document import SUFFIX


def has_runs(log_dir: Path) -> bool:
    """Say whether there is anything to show; looks no further than the first file."""
    return next(_files(log_dir), None) is not None


def runs_by_name(log_dir: Path) -> dict[str, Path]:
    """Return the files of a log folder by the names of their runs, in order of name."""
    return dict(sorted((_name(log_dir, path), path) for path in _files(log_dir)))


def _files(log_dir: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(log_dir):
        for path in (Path(folder) / name for name in names):
            # Whoever reads what is no file, as a pipe, may wait for ever.
            if path.name.endswith(SUFFIX) and not path.name.startswith(".") and path.is_file():
                yield path


def _name(log_dir: Path, path: Path) -> str:
    return path.relative_to(log_dir).as_posix().removesuffix(SUFFIX)
