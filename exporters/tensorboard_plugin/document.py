"""The file that the view reads: small, whole, and readable without pandas or the trace.

Rows are what the summing tables say; parts say what launches are made of, so that the page
leads from any row to the launches it is fused into. Times are nanoseconds over all steps.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Final, Literal

import msgspec

from profiler_ext.errors import TraceError
from profiler_ext.kineto import source
from profiler_ext.kineto.checking import TOO_DEEP, OverLimitError, check_object_count
from profiler_ext.records.stored import known

SUFFIX = ".attribution.json.gz"
FORMAT: Final = "profiler_ext.attribution"
VERSION = 1


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of a table."""

    names: tuple[str, ...]  # what it is called, one text for each heading of its table
    launches: int  # how many launches have a part in it
    phase_ns: tuple[int, ...]  # its time, one number for each of ``Document.phases``
    inclusive_ns: int  # the time of those launches, each counted whole
    file: int | None = None  # index into ``Document.files``, for a source line
    line: int | None = None  # 1-based line number, for a source line
    near: str = ""  # how near it is to its roofline, ``""`` where that is not known
    could_save_ns: int = 0  # how much sooner it could be over by the roofline model


class Fusion(msgspec.Struct, frozen=True, array_like=True):
    """Launches of one kernel that hold the same ops of the same lines in the same phases."""

    kernel: int  # index into the table of kernels
    launches: int  # how many they are
    duration_ns: int  # their time


class Part(msgspec.Struct, frozen=True, array_like=True):
    """What one op of one line and module has in the launches of one content."""

    fusion: int  # index into ``Document.fusions``
    line: int  # index into the table of that name
    module: int  # index into the table of that name
    op: int  # index into ``Document.ops``
    phase: int  # index into ``Document.phases``
    launches: int  # how many of the launches hold it
    duration_ns: int  # its part of them


class Source(msgspec.Struct, frozen=True):
    """The text of a source file."""

    name: str  # its path, without the root it lies under
    missing: str  # why there is no more than the recorded lines; ``""`` where the file is whole
    lines: tuple[tuple[int, str], ...]  # line numbers and texts


class Account(msgspec.Struct, frozen=True):
    """One line of the ledger."""

    name: str
    duration_ns: int


class FindingText(msgspec.Struct, frozen=True):
    """A finding in words."""

    at_stake: str  # the time, and which part of a step it is
    what: str  # what is to be mended
    where: str  # its place, ``""`` where it has none
    why: str  # the rule with the figures that it rests on
    remedy: str  # what to try


class TopFindings(msgspec.Struct, frozen=True):
    """Top recommendations."""

    title: str  # what heads the findings
    found: tuple[FindingText, ...]  # the largest of them
    more: str  # how many more there are, and what shows them; ``""`` where there is none


class Tables(msgspec.Struct, frozen=True):
    """The four tables, each with its largest row first."""

    line: tuple[Row, ...]
    module: tuple[Row, ...]
    kernel: tuple[Row, ...]
    phase: tuple[Row, ...]


class Document(msgspec.Struct, frozen=True):
    """All that the view shows of one process."""

    format: Literal["profiler_ext.attribution"]  # tells the file from any other JSON
    version: int  # of this format
    heading: str  # one line that says what was profiled
    notes: tuple[str, ...]  # sentences for a person
    steps: int  # over how many steps the times sum
    phases: tuple[str, ...]  # the phases, in the order of ``Row.phase_ns``
    ledger: tuple[Account, ...]  # wall time of the steps by category
    tables: Tables  # where the time went
    ops: tuple[str, ...]  # names of ATen ops
    fusions: tuple[Fusion, ...]  # the distinct contents of launches
    parts: tuple[Part, ...]  # what each of them is made of
    files: tuple[Source, ...]  # the sources that lines are of
    # sentences on the ledger: how much is led, and where the CPU was in idle time
    said: tuple[str, ...] = ()
    first: TopFindings | None = None  # what to do first; ``None`` of a session without steps


class _Version(msgspec.Struct):
    version: int


def encoded(document: Document) -> bytes:
    """Return the file's bytes; the same document gives the same bytes."""
    return gzip.compress(msgspec.json.encode(document), mtime=0)


def read_checked(path: Path) -> bytes:
    """Return the JSON of a file that was found in a log folder.

    Raises:
        TraceError: It cannot be read, is cut short, or is something else.
    """
    text = source.unpacked(path, path.name, "export the session again")
    try:
        _check_version(path, text)
        check_object_count(text)
        msgspec.json.decode(text, type=known(Document))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(
            f"{path.name} is no attribution of profiler-ext ({error}); export the session again"
        ) from error
    except (OverLimitError, RecursionError) as error:
        reason = error if isinstance(error, OverLimitError) else TOO_DEEP
        raise TraceError(f"{path.name} {reason}") from error
    return text


def _check_version(path: Path, text: bytes) -> None:
    version = msgspec.json.decode(text, type=known(_Version)).version
    if version > VERSION:
        raise TraceError(
            f"{path.name} was written by a newer profiler-ext (version {version}; this one "
            f"reads up to {VERSION}); update profiler-ext to see it"
        )
