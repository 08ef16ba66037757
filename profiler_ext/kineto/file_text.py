"""Owns the text of a file that is too long to hold: a part is read when somebody asks for it.

The file stays open, so it may be renamed, replaced or removed meanwhile; nobody may write into it.
"""

from __future__ import annotations

import functools
import os

from profiler_ext.errors import TraceError

IN_MEMORY_BYTES = 32 << 20
"""Shorter texts are held: a thousand small files shall not need a thousand open ones."""

_WINDOW_BYTES = 16 << 10
_WINDOWS = 32
CAN_READ_AGAIN = hasattr(os, "pread")


class FileText:
    """The text of an open file, a part at a time: ``text[begin:end]``."""

    def __init__(self, descriptor: int, name: str) -> None:
        """Take over an open file; it is closed when this goes.

        Args:
            descriptor: the file, open for reading.
            name: what messages call it.
        """
        file = _File(descriptor, name)
        self._file = file
        # Events are mostly asked for one after the other, and two or three places in turn.
        self._window = functools.lru_cache(maxsize=_WINDOWS)(functools.partial(_window, file))

    @property
    def descriptor(self) -> int:
        """The open file, for a process that reads it too."""
        return self._file.descriptor

    def __len__(self) -> int:
        """Return how many bytes it has."""
        return self._file.bytes

    def __getitem__(self, part: slice) -> bytes:
        """Return some bytes.

        Raises:
            TraceError: The file is not what it was.
        """
        begin, end, _ = part.indices(self._file.bytes)
        window, first = divmod(begin, _WINDOW_BYTES)
        last = end - begin + first
        if last <= _WINDOW_BYTES:
            return self._window(window)[first:last]
        return self._file.read(begin, end - begin)


class _File:
    """An open file that is as it was when it was opened, or every use of it raises."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.descriptor, self._name = descriptor, name
        self._written = self._state()
        self.bytes = self._written[0]

    def __del__(self) -> None:
        os.close(self.descriptor)

    def read(self, begin: int, count: int) -> bytes:
        parts, end = [], begin + count
        while begin < end and (part := os.pread(self.descriptor, end - begin, begin)):
            parts.append(part)
            begin += len(part)
        if begin < end or self._state() != self._written:
            raise TraceError(
                f"{self._name} was written into after it was opened; load it again, and write a "
                "new file instead"
            )
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _state(self) -> tuple[int, int]:
        """Return what a write changes; another name, or none any more, does not."""
        state = os.fstat(self.descriptor)
        return state.st_size, state.st_mtime_ns


def _window(file: _File, number: int) -> bytes:
    begin = number * _WINDOW_BYTES
    return file.read(begin, min(_WINDOW_BYTES, file.bytes - begin))
