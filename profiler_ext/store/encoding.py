"""Owns provenance as bytes.

``PXPR``, the format number (2 bytes, big endian), then zlib-compressed JSON of the record. A
reader refuses another format, other content, and text that inflates past
``INFLATED_LIMIT_BYTES``.

History: format 1 could hold paths relative to the working folder of the process that compiled,
which name another file elsewhere; such a record is told to be older and is not read. From format
2 on each path starts at a root token or at ``/``. In format 2 the lines of code with which Dynamo
goes on after a graph break could be off, and nothing in the record tells which: one that has such
code is older, too, any other is read. Until format 3 so could the lines and modules of a nested
region (``nested_compile_region``) at other calls than its first: so is one that has a region.
"""

from __future__ import annotations

import dataclasses
import hashlib
import zlib

import msgspec

from profiler_ext.errors import NewerRecordError, StoreError
from profiler_ext.records import (
    WRITER_KEY,
    Provenance,
    Term,
    flat,
    inconsistency_of_provenance,
    nested,
    version_mismatch,
)
from profiler_ext.version import VERSION

MAGIC = b"PXPR"
FORMAT = 4
_RESUMED_CODE = "torch_dynamo_resume_in_"
_REGION = "invoke_subgraph"
_FORMATS_WITH_WRONG_LINES = {2: (_RESUMED_CODE, _REGION), 3: (_REGION,)}
"""Formats that are read, but for records with one of these texts."""
INFLATED_LIMIT_BYTES = 256 << 20
_MAX_INFLATION_RATIO = 200
_MIN_INFLATED_LIMIT_BYTES = 1 << 20
"""A record shrinks to a fifteenth; what unpacks to so much more is none."""


class EntryState(Term, page="words.md", title="record", columns=()):
    """Whether this version can read a stored record."""

    OK = ("ok", "can be read", "can be read by this version")
    DAMAGED = (
        "damaged",
        "damaged",
        "is cut off or changed, and nothing of it is used",
        "`profiler-ext run --recompile` replaces it, `profiler-ext cache prune` removes it",
    )
    NEWER = (
        "newer",
        "of a newer version",
        "was written by a newer version, and is left to it",
        "update profiler-ext to read it",
    )
    OLDER = (
        "older",
        "of an older version",
        "was written by an older version, and is not read",
        "`profiler-ext run --recompile` replaces it, `profiler-ext cache prune` removes it",
    )


def with_digest(provenance: Provenance) -> Provenance:
    """Return the record with the digest of its content.

    Args:
        provenance: the record.
    """
    plain = dataclasses.replace(provenance, digest="")
    content = msgspec.json.encode(plain)
    return dataclasses.replace(plain, digest=hashlib.blake2b(content, digest_size=16).hexdigest())


def to_bytes(provenance: Provenance) -> bytes:
    """Return a provenance as bytes that any process can read.

    Args:
        provenance: the record.
    """
    fields = {**flat(provenance), WRITER_KEY: VERSION}
    return _header(FORMAT) + zlib.compress(msgspec.json.encode(fields), 3)


def from_bytes(data: bytes) -> Provenance:
    """Read a provenance.

    Args:
        data: what :func:`to_bytes` gave.

    Returns:
        The record.

    Raises:
        NewerRecordError: A newer version wrote them.
        StoreError: The bytes are something else, damaged, too large, or of another format.
    """
    if data[:4] != MAGIC:
        raise StoreError(f"found {data[:4]!r}, expected a provenance ({MAGIC!r})")
    version = int.from_bytes(data[4:6], "big")
    if version > FORMAT:
        raise NewerRecordError(
            f"found provenance format {version}, expected {FORMAT}: a newer profiler-ext wrote it; "
            "update profiler-ext to read it"
        )
    if _is_older(data):
        raise StoreError(
            f"found provenance format {version}, expected {FORMAT}: an older profiler-ext wrote it"
        )
    try:
        fields = msgspec.json.decode(_inflate(data[6:]))
        return _record(fields)
    except (zlib.error, msgspec.MsgspecError, RecursionError) as error:
        raise StoreError(f"found a damaged provenance ({error})") from error


def from_own_bytes(data: bytes) -> Provenance:
    """Return a provenance that this process made, which needs no proof and has no limit.

    Args:
        data: what :func:`to_bytes` gave in this process.
    """
    return nested(msgspec.json.decode(zlib.decompress(data[6:])), Provenance)


def has_text(data: bytes, text: str) -> bool:
    """Tell whether a text may stand in a record; of what cannot be read nobody can say.

    Args:
        data: what :func:`to_bytes` gave.
        text: plain ASCII.
    """
    try:
        return text.encode() in _inflate(data[6:])
    except (zlib.error, StoreError):
        return True


def _record(fields: object) -> Provenance:
    try:
        record = nested(fields, Provenance)
    except msgspec.ValidationError as error:
        raise _unreadable(str(error), fields) from error
    if problem := inconsistency_of_provenance(record):
        raise _unreadable(problem, fields)
    return record


def _unreadable(problem: str, fields: object) -> StoreError:
    if by_another := version_mismatch(problem, fields):
        return NewerRecordError(f"found a provenance that {by_another}")
    return StoreError(f"found a damaged provenance ({problem})")


def state_of(data: bytes) -> EntryState:
    """Tell whether this version can read a stored record, and why not.

    Args:
        data: the bytes.
    """
    if _is_older(data):
        return EntryState.OLDER
    try:
        from_bytes(data)
    except NewerRecordError:
        return EntryState.NEWER
    except StoreError:
        return EntryState.DAMAGED
    return EntryState.OK


def is_current(data: bytes) -> bool:
    """Tell whether bytes begin like a record that this version reads.

    Args:
        data: the bytes.
    """
    is_known = any(data[:6] == _header(version) for version in (FORMAT, *_FORMATS_WITH_WRONG_LINES))
    return is_known and not _is_older(data)


def _is_older(data: bytes) -> bool:
    """Tell whether a record is of a format that is not read, or whose lines may be off."""
    for version, texts in _FORMATS_WITH_WRONG_LINES.items():
        if data[:6] == _header(version):
            return any(has_text(data, text) for text in texts)
    return len(data) >= 6 and _header(0) <= data[:6] < _header(FORMAT)


def _header(version: int) -> bytes:
    return MAGIC + version.to_bytes(2, "big")


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    limit = min(INFLATED_LIMIT_BYTES, max(_MIN_INFLATED_LIMIT_BYTES, _MAX_INFLATION_RATIO * len(data)))
    text = inflater.decompress(data, limit)
    if inflater.unconsumed_tail:
        raise StoreError(f"found a provenance over {limit} bytes")
    if not inflater.eof:
        raise StoreError("found a truncated provenance, expected a whole one")
    return text
