"""The view's file: small, complete, and readable without pandas or the trace.

Rows are those of the summing tables; parts are what launches consist of, so that the page can show
the launches that any row is fused into. Times are nanoseconds over all steps.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Final, Literal

import msgspec

from profiler_ext.errors import TraceError
from profiler_ext.kineto import checking, source
from profiler_ext.records.stored import RenamedKeys, known, with_current_keys

SUFFIX = ".attribution.json.gz"
FORMAT: Final = "profiler_ext.attribution"
VERSION = 2
# Until version 1
RENAMED = RenamedKeys(
    {"ledger": "breakdown", "said": "overview", "first": "recommendations"},
    {
        "tables": RenamedKeys(
            within=dict.fromkeys(
                ("line", "module", "kernel", "phase"), RenamedKeys({"near": "roofline"})
            )
        ),
        "recommendations": RenamedKeys(
            {"found": "findings"},
            {
                "findings": RenamedKeys(
                    {
                        "at_stake": "saving",
                        "what": "summary",
                        "where": "location",
                        "why": "evidence",
                    }
                )
            },
        ),
    },
)


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row of a table."""

    names: tuple[str, ...]  # a text per heading of its table
    launches: int  # that have a part in it
    phase_ns: tuple[int, ...]  # by ``Document.phases``
    inclusive_ns: int  # full time of those launches
    file: int | None = None  # index into ``Document.files``
    line: int | None = None  # 1-based
    roofline: str = ""  # roofline text, ``""`` if unknown
    could_save_ns: int = 0  # by the roofline model


class Fusion(msgspec.Struct, frozen=True, array_like=True):
    """Launches of one kernel with the same ops, lines and phases."""

    kernel: int  # index into ``Tables.kernel``
    launches: int
    duration_ns: int


class Part(msgspec.Struct, frozen=True, array_like=True):
    """The part of one op, line and module in the launches of a fusion."""

    fusion: int  # index into ``Document.fusions``
    line: int  # index into the table of that name
    module: int  # index into the table of that name
    op: int  # index into ``Document.ops``
    phase: int  # index into ``Document.phases``
    launches: int  # launches that contain it
    duration_ns: int  # its share of their time


class Source(msgspec.Struct, frozen=True):
    """The text of a source file."""

    name: str  # path relative to its root
    missing: str  # why only recorded lines are known
    lines: tuple[tuple[int, str], ...]


class Account(msgspec.Struct, frozen=True):
    """One line of the step time breakdown."""

    name: str
    duration_ns: int


class FindingText(msgspec.Struct, frozen=True):
    """A finding as text."""

    saving: str  # time and percentage of a step
    summary: str
    location: str  # location, or ``""``
    evidence: str  # the rule and its figures
    remedy: str


class TopFindings(msgspec.Struct, frozen=True):
    """The top recommendations."""

    title: str
    findings: tuple[FindingText, ...]  # the largest
    more: str  # how many more, and how to see them


class Tables(msgspec.Struct, frozen=True):
    """The four tables, longest row first."""

    line: tuple[Row, ...]
    module: tuple[Row, ...]
    kernel: tuple[Row, ...]
    phase: tuple[Row, ...]


class Document(msgspec.Struct, frozen=True):
    """The view's data of one process."""

    format: Literal["profiler_ext.attribution"]
    version: int
    heading: str
    notes: tuple[str, ...]
    steps: int  # steps that times sum over
    phases: tuple[str, ...]  # in the order of ``Row.phase_ns``
    breakdown: tuple[Account, ...]  # wall time of the steps by category
    tables: Tables
    ops: tuple[str, ...]  # ATen ops
    fusions: tuple[Fusion, ...]
    parts: tuple[Part, ...]  # the parts of fusions
    files: tuple[Source, ...]
    overview: tuple[str, ...] = ()  # sentences on coverage, idle time and memory
    recommendations: TopFindings | None = None  # ``None`` without steps


class _Version(msgspec.Struct):
    version: int


def encoded(document: Document) -> bytes:
    """Return the file's bytes; equal documents give equal bytes."""
    return gzip.compress(msgspec.json.encode(document), mtime=0)


def read_checked(path: Path) -> bytes:
    """Return the JSON of a file found in a log folder, with the keys of today.

    Raises:
        TraceError: It cannot be read, is truncated, or is something else.
    """
    text = source.unpacked(path, path.name, "export the session again")
    try:
        version = msgspec.json.decode(text, type=known(_Version)).version
        if version > VERSION:
            raise TraceError(
                f"{path.name} was written by a newer profiler-ext (version {version}; this one "
                f"reads up to {VERSION}); update profiler-ext to see it"
            )
        checking.check_object_count(text)
        if version < VERSION:
            plain = msgspec.json.decode(text)
            text = msgspec.json.encode(with_current_keys(plain, RENAMED) | {"version": VERSION})
        msgspec.json.decode(text, type=known(Document))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(
            f"{path.name} is no attribution of profiler-ext ({error}); export the session again"
        ) from error
    except (checking.OverLimitError, RecursionError) as error:
        reason = error if isinstance(error, checking.OverLimitError) else checking.TOO_DEEP
        raise TraceError(f"{path.name} {reason}") from error
    return text
