"""Owns what commands print, and what happens where it cannot be printed.

A closed or full standard output is an error in one sentence, a reader that has gone none at
all. What an encoding lacks is escaped. Each text is flushed by itself: in ``run`` the same
stream is the script's own, and what fails of ours must not fail again when Python ends.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, cast

from profiler_ext.errors import OutputError, StdoutClosedError
from profiler_ext.printable import printable

if TYPE_CHECKING:
    from profiler_ext.exporters.rich_parts import Console


def write(text: str) -> None:
    """Print a text that is clean already.

    Raises:
        OutputError: Standard output is closed or full.
        StdoutClosedError: Nobody reads it any more.
    """
    try:
        _write_to(sys.stdout, text)
    except (OSError, ValueError) as error:
        if isinstance(error, BrokenPipeError):
            raise StdoutClosedError("nobody reads standard output any more") from error
        reason = getattr(error, "strerror", None) or "it is closed"
        raise OutputError(f"cannot write to standard output: {reason}") from error


def print_line(line: str) -> None:
    """Print one line; a program that reads it gets it as it is, a terminal without controls.

    Raises:
        OutputError: Standard output is closed or full.
    """
    write((printable(line) if _is_terminal(sys.stdout) else line) + "\n")


def print_message(sentence: str) -> None:
    """Print a sentence about the run on standard error; where that fails, nobody can be told."""
    with suppress(OSError, ValueError):
        _write_to(sys.stderr, f"profiler-ext: {printable(sentence)}\n")


def print_usage(text: str) -> None:
    """Print what the argument parser has to say on standard error."""
    with suppress(OSError, ValueError):
        _write_to(sys.stderr, text)


def console(file_width: int | None = None) -> Console:
    """Return a console that prints on standard output.

    Args:
        file_width: how wide lines may be where standard output is a file or a pipe; by default
            as wide as a terminal.
    """
    from profiler_ext.exporters.rich_parts import Console

    made = Console(file=cast(IO[str], _Printed()), highlight=False)
    if file_width is not None and not made.is_terminal:
        made.width = file_width
    return made


class _Printed(io.TextIOBase):
    """Standard output as a console writes to it: every text goes through :func:`write`."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return _encoding(sys.stdout)

    def isatty(self) -> bool:
        return _is_terminal(sys.stdout)

    def write(self, text: str) -> int:
        write(text)
        return len(text)


def _write_to(stream: IO[str] | None, text: str) -> None:
    if stream is None:
        raise OSError(errno.EBADF, "it is closed")
    flush = getattr(stream, "flush", _no_flush)
    flush()  # what others wrote; where that fails, it is theirs to tell
    encoding = _encoding(stream)
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError), _redirected_to_devnull(stream):
            stream.flush()
        raise


def _no_flush() -> None:
    """Flush a stream of the program's own, which can only be written to."""


@contextmanager
def _redirected_to_devnull(stream: IO[str]) -> Iterator[None]:
    """Let a stream lead nowhere meanwhile, so that what is left in it can be dropped."""
    number = stream.fileno()
    saved_fd = os.dup(number)
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, number)
        yield
    finally:
        os.dup2(saved_fd, number)
        os.close(devnull)
        os.close(saved_fd)


def _encoding(stream: IO[str] | None) -> str:
    return getattr(stream, "encoding", None) or "utf-8"


def _is_terminal(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (ValueError, AttributeError):  # it is closed, or a program's own and only written to
        return False
