"""Owns torch's own trace of a cycle: it writes it into a file, which is gone once it is read.

Its text is kept for :meth:`profile.export_chrome_trace`. However the process ends, a file is left
behind only where it was killed as that one was written or read.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from profiler_ext.errors import OutputError
from profiler_ext.kineto.source import Text, read_text

_PART_BYTES = 1 << 20


class RawTrace:
    """The trace of the last cycle."""

    _text: Text | None = None

    @contextmanager
    def written(self, write: Callable[[str], object]) -> Iterator[Path]:
        """Give torch's trace, which is to be read in the block; the last one is gone.

        Args:
            write: has torch write into a path.

        Yields:
            The file.

        Raises:
            OutputError: Torch cannot write into the temporary folder.
            TraceError: What it wrote cannot be read.
        """
        self._text = None
        with _temporary_folder() as folder:
            _check_name(folder)
            path = folder / "trace.json"
            write(str(path))
            _check_written(path)
            self._text = read_text(path)
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


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    try:
        made = tempfile.TemporaryDirectory(prefix="profiler_ext-", ignore_cleanup_errors=True)
    except OSError as error:
        raise OutputError(
            f"no temporary folder can be made ({error.strerror or error}), so what was recorded is "
            "lost; set TMPDIR to a folder that can be written"
        ) from error
    try:
        with made as folder:
            yield Path(folder)
    finally:
        with suppress(OSError):  # to list it takes a file that can be opened, and this takes none
            Path(made.name).rmdir()


def _check_name(folder: Path) -> None:
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise OutputError(
            f"torch cannot write its trace into {folder.parent}, whose name is not UTF-8, so what "
            "was recorded is lost; set TMPDIR to another folder"
        ) from None


def _check_written(path: Path) -> None:
    """Torch says on standard error alone that it could not write, and not why."""
    if path.exists():
        return
    reason = ""
    try:
        path.touch()
    except OSError as error:
        reason = f" ({error.strerror})"
    raise OutputError(
        f"torch could not write its trace into {path.parents[1]}{reason}, so what was recorded is "
        "lost; make room there, or set TMPDIR to another folder"
    )
