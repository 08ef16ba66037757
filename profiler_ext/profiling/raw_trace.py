"""Owns the file into which torch writes its trace of a cycle, before a session is made of it."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import weakref
from pathlib import Path

from profiler_ext.errors import OutputError


class RawTrace:
    """The trace of the last cycle, in a temporary folder that goes when this goes."""

    _path: Path | None = None

    def fresh(self) -> Path:
        """Return where torch can write a trace; the last one is gone.

        Raises:
            OutputError: Torch cannot write into the temporary folder.
        """
        if self._path is None:
            folder = _temporary_folder()
            weakref.finalize(self, _remove_folder, folder, os.getpid())
            self._path = folder / "trace.json"
        self._path.unlink(missing_ok=True)
        return self._path

    def copy_to(self, path: str) -> bool:
        """Copy it, compressed where the name ends with ``.gz``; tell whether there is one."""
        if self._path is None or not self._path.exists():
            return False
        if not path.endswith(".gz"):
            shutil.copyfile(self._path, path)
            return True
        with self._path.open("rb") as source, gzip.open(path, "wb") as target:
            shutil.copyfileobj(source, target)
        return True


def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="profiler_ext-"))
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        folder.rmdir()
        raise OutputError(
            f"torch cannot write its trace into {folder.parent}, whose name is not UTF-8, so what "
            "was recorded is lost; set TMPDIR to another folder"
        ) from None
    return folder


def _remove_folder(folder: Path, process_id: int) -> None:
    """Remove a folder in the process that made it; a forked child ends with the same finalizer."""
    if os.getpid() == process_id:
        shutil.rmtree(folder, ignore_errors=True)
