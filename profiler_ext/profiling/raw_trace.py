"""Owns torch's own trace of a cycle: it writes it into a file, which is gone once it is read.

Its text is kept for :meth:`profile.export_chrome_trace`. However the process ends, a file is left
behind only where it was killed as that one was written or read.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from profiler_ext.errors import OutputError
from profiler_ext.files.passing import temporary_folder
from profiler_ext.kineto.source import Text, read_text

_PART_BYTES = 1 << 20
_ROOM_BYTES = 1 << 30
"""A trace of two million events is as large; torch says not before how large one will be."""
_END = b"}"


class RawTrace:
    """The trace of the last cycle."""

    _text: Text | None = None

    def __init__(self, *fallback_folders: Path) -> None:
        """Take where to have torch write, if not into the temporary folder.

        Args:
            *others: folders, before the working folder.
        """
        self._fallback_folders = fallback_folders

    @contextmanager
    def written(self, write: Callable[[str], object]) -> Iterator[Path]:
        """Give torch's trace, which is to be read in the block; the last one is gone.

        Args:
            write: has torch write into a path.

        Yields:
            The file.

        Raises:
            OutputError: Torch can write into no folder for a while.
            TraceError: What it wrote cannot be read.
        """
        self._text = None
        cost = "what was recorded is lost"
        with temporary_folder(cost, *self._fallback_folders, room_bytes=_ROOM_BYTES) as folder:
            path = folder / "trace.json"
            write(str(path))
            text = read_text(path) if path.exists() and path.stat().st_size else b""
            if not _is_complete(text):
                raise _not_written(path)
            self._text = text
            yield path

    def copy_to(self, path: str) -> bool:
        """Copy it, compressed where the name ends with ``.gz``; tell whether there is one."""
        text = self._text
        if text is None:
            return False
        with gzip.open(path, "wb") if path.endswith(".gz") else open(path, "wb") as target:  # noqa: PTH123
            for begin in range(0, len(text), _PART_BYTES):
                target.write(text[begin : begin + _PART_BYTES])
        return True


def _is_complete(text: Text) -> bool:
    """Tell whether a text ends as a trace does."""
    return bytes(text[-_PART_BYTES:]).rstrip().endswith(_END)


def _not_written(path: Path) -> OutputError:
    """Torch says on standard error alone that it could not write, and not why."""
    what = "the whole of its trace" if path.exists() else "its trace"
    reason = ""
    try:
        (path.parent / "room").write_bytes(bytes(_PART_BYTES))
    except OSError as error:
        reason = f" ({error.strerror})"
    return OutputError(
        f"torch could not write {what} into {path.parents[1]}{reason}, so what was recorded is "
        "lost; make room there, or set TMPDIR to another folder"
    )
