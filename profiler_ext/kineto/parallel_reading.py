"""Reads a large trace file in several processes, each a portion of its events.

A portion provably begins at an event: if the one before it decodes as a list of events, its last
comma is followed by the next one. Threads would not help, as decoding JSON holds the GIL; forked
processes might hold locks of others' threads. So each process runs ``python -m
profiler_ext.kineto.parallel_reading FILE PIPE BEGIN END``, with both descriptors inherited.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from profiler_ext.kineto import blocks, checking, decoding, document
from profiler_ext.kineto.source import FileText, Text
from profiler_ext.records.stored import known

_LENGTH_BYTES = 8
MIN_BYTES = 192 << 20  # A portion takes ten times as long as to start the process that reads it
_MODULE = "profiler_ext.kineto.parallel_reading"
_AUTOSTART = "PROFILER_EXT"
# Else each block's memory is returned and allocated again: a third of the time
_KEEPS_MEMORY = f"glibc.malloc.mmap_threshold={32 << 20}:glibc.malloc.trim_threshold={64 << 20}"


class Portion(NamedTuple):
    """Where the first event of a portion begins, and where its last one ends."""

    begin: int
    end: int


class _Head(msgspec.Struct):
    """The message before the columns: everything else, and their types and lengths."""

    texts: decoding.Texts
    types: list[str]
    rows: list[int]
    events: int
    braces: int


def portions(text: Text, begin: int, count: int) -> tuple[list[Portion], int]:
    """Cut the events of a file into portions of about the same length, all but the last few.

    There are ``count`` at most, fewer where no event ends near the wanted place. Returns also
    where the last few events begin.
    """
    bytes_each = (len(text) - 2 * blocks.BLOCK_BYTES - begin) // count
    cut_portions: list[Portion] = []
    remaining = begin
    for place in (begin + number * bytes_each for number in range(1, count + 1)):
        # Within a portion that was cut off nothing is cut again, nor before the first event.
        if place >= remaining and (cut := blocks.next_cut(text, place)) is not None:
            end, behind = cut
            cut_portions.append(Portion(remaining, end))
            remaining = behind
    return cut_portions, remaining


def add_portion(reading: blocks.Reading, text: Text, portion: Portion) -> None:
    """Read the events of a portion; raises ValueError."""
    begin = reading.add_blocks(text, *portion)
    reading.add(blocks.last_block(begin, text[begin : portion.end]))


def send_portion(reading: blocks.Reading, out: BinaryIO) -> None:
    """Write what was read of a portion, for :func:`receive_portion` of another process."""
    texts, columns = reading.columns.columns()
    columns += [reading.starts.finished(), reading.ends.finished()]
    types, rows = [column.dtype.str for column in columns], [*map(len, columns)]
    head = msgspec.msgpack.encode(_Head(texts, types, rows, reading.events, reading.braces))
    out.write(len(head).to_bytes(_LENGTH_BYTES, "little") + head)
    for column in columns:
        out.write(column.view(np.uint8).data)
    out.flush()


def receive_portion(reading: blocks.Reading, pipe: BinaryIO) -> None:
    """Add another process's events of the next portion; raises ValueError."""
    length = int.from_bytes(_read(pipe, _LENGTH_BYTES), "little")
    head = msgspec.msgpack.decode(_read(pipe, length), type=known(_Head))
    checking.check_counts(reading.braces + head.braces, reading.events + head.events)
    *types, of_starts, of_ends = zip(head.types, head.rows, strict=True)
    columns = (_column(pipe, *each) for each in types)
    reading.columns.add_columns(reading.events, head.texts, columns)
    reading.starts.add(_column(pipe, *of_starts))
    reading.ends.add(_column(pipe, *of_ends))
    reading.events += head.events
    reading.braces += head.braces


def _column(pipe: BinaryIO, type: str, rows: int) -> npt.NDArray[Any]:
    column = np.empty(rows, type)
    _fill(pipe, column.view(np.uint8).data)
    return column


def _fill(pipe: BinaryIO, buffer: memoryview) -> None:
    while len(buffer):
        if not (count := pipe.readinto(buffer)):  # type: ignore[attr-defined]
            raise blocks.FastPathError("a portion was not handed over as a whole")
        buffer = buffer[count:]


def _read(pipe: BinaryIO, count: int) -> bytearray:
    buffer = bytearray(count)
    _fill(pipe, memoryview(buffer))
    return buffer


def main() -> None:
    """Read the portion that the command line names; a failure only sends less."""
    file, pipe, begin, end = map(int, sys.argv[1:])
    threading.Thread(target=_end_with_reader, args=(pipe,), daemon=True).start()
    reading = blocks.Reading(end - begin)
    add_portion(reading, FileText(file, "the file"), Portion(begin, end))
    with os.fdopen(pipe, "wb") as out:
        send_portion(reading, out)


def _end_with_reader(pipe: int) -> None:
    """End at once when the reader has closed the pipe: the requesting process has gone."""
    watch = select.poll()
    watch.register(pipe, 0)  # errors are reported for any event mask
    watch.poll()
    os._exit(1)


if __name__ == "__main__":
    main()


_PACKAGES = Path(__file__).parents[2]


def reader_processes(text: FileText, jobs: int | None) -> int:
    """Return how many processes shall read a text."""
    return min(jobs or _cores(), len(text) // MIN_BYTES) if sys.executable else 1


def _cores() -> int:
    """Return how many processors this process may use, which a container may limit."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def read_in_parallel(text: FileText, processes: int) -> document.Document:
    """Split a trace and read its events, each process a portion; raises ValueError or OSError."""
    header, begin = blocks.beginning(text)
    cut_portions, rest = portions(text, begin, processes)
    reading = blocks.Reading(len(text), header)
    with ExitStack() as stack:
        reader_pipes = [
            stack.enter_context(_portion_reader(text, each)) for each in cut_portions[1:]
        ]
        for own in cut_portions[:1]:
            add_portion(reading, text, own)
        for reader_pipe in reader_pipes:
            receive_portion(reading, reader_pipe)
    return blocks.document_of(text, header, reading, reading.add_blocks(text, rest, len(text)))


@contextmanager
def _portion_reader(text: FileText, portion: Portion) -> Iterator[BinaryIO]:
    """Start a process that reads a portion, and yield its pipe; both end with the block."""
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
    """Start the process with a pipe of its own, as others print when Python starts."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _MODULE, *map(str, (descriptor, writes, begin, end))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(descriptor, writes),
        env=_environment(sys.path),
    )


def _environment(folders: Sequence[str]) -> dict[str, str]:
    """Return an environment in which the process finds the same modules, and keeps its memory."""
    own = {name: value for name, value in os.environ.items() if name != _AUTOSTART}
    paths = [str(_PACKAGES), *(folder for folder in folders if folder)]
    return own | {
        "PYTHONPATH": os.pathsep.join(paths),
        "GLIBC_TUNABLES": _KEEPS_MEMORY,
        "OPENBLAS_NUM_THREADS": "1",  # numpy starts threads for products, which wait busily
    }
