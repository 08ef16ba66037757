"""Owns the reading of a long file by several processes: this one, and some that it starts.

Threads would wait for each other: to decode JSON holds the interpreter's lock. The processes begin
anew, with this package alone; a copy of this one might hold what threads of others have locked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from profiler_ext.kineto.blocks import Reading, beginning, document_of
from profiler_ext.kineto.document import Document
from profiler_ext.kineto.file_text import FileText
from profiler_ext.kineto.portions import Portion, add_portion, portions, receive_portion

MIN_BYTES = 192 << 20
"""A portion takes ten times as long as to start the process that reads it."""
_MODULE = "profiler_ext.kineto.portion_process"
_PACKAGES = Path(__file__).parents[2]
_AUTOSTART = "PROFILER_EXT"
_KEEPS_MEMORY = f"glibc.malloc.mmap_threshold={32 << 20}:glibc.malloc.trim_threshold={64 << 20}"
"""Else each block's memory is given back, and asked for again: a third of the time."""


def reader_processes(text: FileText, jobs: int | None) -> int:
    """Return how many processes shall read a text.

    Args:
        text: the file's.
        jobs: so many at most; ``None`` for one a core.

    Returns:
        How many; one or none where it shall not be cut.
    """
    return min(jobs or _cores(), len(text) // MIN_BYTES) if sys.executable else 1


def _cores() -> int:
    """Return how many processors this process may use, which a container may bound."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def read_in_parallel(text: FileText, processes: int) -> Document:
    """Take a trace apart, and read its events, each process a portion of them.

    Args:
        text: the file.
        processes: how many.

    Returns:
        What the file is to one process, too.

    Raises:
        ValueError: One of them could not read its portion, or all go past a limit together: one
            process alone tells.
        OSError: One could not be started.
    """
    header, begin = beginning(text)
    cut_portions, rest = portions(text, begin, processes)
    reading = Reading(len(text), header)
    with ExitStack() as stack:
        reader_pipes = [stack.enter_context(_portion_reader(text, each)) for each in cut_portions[1:]]
        for own in cut_portions[:1]:
            add_portion(reading, text, own)
        for reader_pipe in reader_pipes:
            receive_portion(reading, reader_pipe)
    return document_of(text, header, reading, reading.add_blocks(text, rest, len(text)))


@contextmanager
def _portion_reader(text: FileText, portion: Portion) -> Iterator[BinaryIO]:
    """Start a process that reads a portion; give what it hands over. It ends with this."""
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb", buffering=0) as reader_pipe:
        try:
            process = _started(text.descriptor, writes, *portion)
        finally:
            os.close(writes)
        try:
            yield reader_pipe
        finally:
            process.kill()
            process.wait()


def _started(descriptor: int, writes: int, begin: int, end: int) -> subprocess.Popen[bytes]:
    """Start the process; it writes into a pipe of its own, as others print when Python starts."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _MODULE, *map(str, (descriptor, writes, begin, end))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(descriptor, writes),
        env=_environment(sys.path),
    )


def _environment(folders: Sequence[str]) -> dict[str, str]:
    """Return that of a process which finds the same modules, and keeps its memory."""
    own = {name: value for name, value in os.environ.items() if name != _AUTOSTART}
    paths = [str(_PACKAGES), *(folder for folder in folders if folder)]
    return own | {
        "PYTHONPATH": os.pathsep.join(paths),
        "GLIBC_TUNABLES": _KEEPS_MEMORY,
        "OPENBLAS_NUM_THREADS": "1",  # numpy starts threads for products, which wait busily
    }
