"""Stored records as bytes: provenance, and the kernels that library calls launch.

``PXPR``, the format number (2 bytes, big endian), then zlib-compressed JSON of the record. A reader
refuses other formats and content, and text that inflates past ``INFLATED_LIMIT_BYTES``.

History: format 1 could hold paths relative to the compiling process's working folder, and is not
read. From format 2 on each path starts at a root token or at ``/``. In format 2 the lines of resume
functions after a graph break could be off, until format 3 the lines and modules of nested regions
(``nested_compile_region``) at later calls: records with these count as older. Format 4 had other
names of some keys (:mod:`profiler_ext.records.stored`), and is read.

Kernels: a file for each graph's work, device, and library settings: JSON with the names, and pairs
of call site and names. The work is the graph's cache key, its call sites and their shapes, whatever
the source lines. Format 1, ``.counts.json``, held numbers, which do not show a missing kernel: it
is not read, but pruned, as is format 2 without library settings.
"""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType

import msgspec

from profiler_ext.errors import NewerRecordError, StoreError
from profiler_ext.records import consistency, vocabulary
from profiler_ext.records.provenance import LibraryKernels, Provenance
from profiler_ext.records.stored import WRITER_KEY, flat, known, nested, version_mismatch
from profiler_ext.version import VERSION

MAGIC = b"PXPR"
FORMAT = 5
_RESUMED_CODE = "torch_dynamo_resume_in_"
_REGION = "invoke_subgraph"
_EARLIER_FORMATS: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {2: (_RESUMED_CODE, _REGION), 3: (_REGION,), 4: ()}
)
"""Formats that are read, except for records with one of these texts."""
INFLATED_LIMIT_BYTES = 256 << 20
_MAX_INFLATION_RATIO = 200
_MIN_INFLATED_LIMIT_BYTES = 1 << 20
"""A record shrinks to a fifteenth: what inflates far more is none."""


class EntryState(vocabulary.Term, page="words.md", title="record", columns=()):
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
    """Return the record with the digest of its content."""
    plain = dataclasses.replace(provenance, digest="")
    content = msgspec.json.encode(plain)
    return dataclasses.replace(plain, digest=hashlib.blake2b(content, digest_size=16).hexdigest())


def to_bytes(provenance: Provenance) -> bytes:
    """Return a provenance as bytes that any process can read."""
    fields = {**flat(provenance), WRITER_KEY: VERSION}
    return _header(FORMAT) + zlib.compress(msgspec.json.encode(fields), 3)


def from_bytes(data: bytes) -> Provenance:
    """Read a provenance."""
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
    """Return a provenance that this process made, without checks or limit."""
    return nested(msgspec.json.decode(zlib.decompress(data[6:])), Provenance)


def has_text(data: bytes, text: str) -> bool:
    """Tell whether a text may be in a record, as in one that cannot be read."""
    try:
        return text.encode() in _inflate(data[6:])
    except (zlib.error, StoreError):
        return True


def _record(fields: object) -> Provenance:
    try:
        record = nested(fields, Provenance)
    except msgspec.ValidationError as error:
        raise _unreadable(str(error), fields) from error
    if problem := consistency.inconsistency_of_provenance(record):
        raise _unreadable(problem, fields)
    return record


def _unreadable(problem: str, fields: object) -> StoreError:
    if by_another := version_mismatch(problem, fields):
        return NewerRecordError(f"found a provenance that {by_another}")
    return StoreError(f"found a damaged provenance ({problem})")


def state_of(data: bytes) -> EntryState:
    """Tell whether this version can read a stored record, and why not."""
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
    """Tell whether bytes begin like a record that this version reads."""
    is_known = any(data[:6] == _header(version) for version in (FORMAT, *_EARLIER_FORMATS))
    return is_known and not _is_older(data)


def _is_older(data: bytes) -> bool:
    """Tell whether a record has a format that is not read, or lines that may be off."""
    for version, texts in _EARLIER_FORMATS.items():
        if data[:6] == _header(version):
            return any(has_text(data, text) for text in texts)
    return len(data) >= 6 and _header(0) <= data[:6] < _header(FORMAT)


def _header(version: int) -> bytes:
    return MAGIC + version.to_bytes(2, "big")


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    limit = min(
        INFLATED_LIMIT_BYTES, max(_MIN_INFLATED_LIMIT_BYTES, _MAX_INFLATION_RATIO * len(data))
    )
    text = inflater.decompress(data, limit)
    if inflater.unconsumed_tail:
        raise StoreError(f"found a provenance over {limit} bytes")
    if not inflater.eof:
        raise StoreError("found a truncated provenance, expected a whole one")
    return text


KERNELS_FORMAT = 2
KERNELS_HEADER = b'{"format":'
"""The begin of a file of any format."""


class _KernelFile(msgspec.Struct):
    format: int
    device: str
    names: tuple[str, ...]
    kernels: tuple[tuple[int, tuple[int, ...]], ...]


class _CountFile(msgspec.Struct):  # format 1
    format: int
    device: str
    counts: tuple[tuple[int, int], ...]


def work_digest(key: str | None, provenance: Provenance) -> str:
    """Return a digest of a graph's work: equal work calls libraries for the same."""
    computed = [(node.name, node.target, node.outputs) for node in provenance.nodes]
    content = msgspec.json.encode((key, provenance.torch_version, provenance.call_sites, computed))
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def kernels_to_bytes(kernels: LibraryKernels, device: str) -> bytes:
    """Return the kernels of library calls as bytes that any process can read."""
    names = {
        name: at for at, name in enumerate(dict.fromkeys(n for _, own in kernels for n in own))
    }
    numbered = tuple((site, tuple(names[name] for name in own)) for site, own in kernels)
    return msgspec.json.encode(_KernelFile(KERNELS_FORMAT, device, tuple(names), numbered))


def kernels_from_bytes(data: bytes) -> LibraryKernels:
    """Read the kernels of library calls: call sites with their device events' names."""
    try:
        version = msgspec.json.decode(data, type=known(_Format)).format
        if version > KERNELS_FORMAT:
            raise NewerRecordError(
                f"found format {version} of kernels, expected {KERNELS_FORMAT}: a newer "
                "profiler-ext "
                "wrote it; update profiler-ext to read it"
            )
        if version != KERNELS_FORMAT:
            raise StoreError(f"found format {version} of kernels, expected {KERNELS_FORMAT}")
        decoded = msgspec.json.decode(data, type=known(_KernelFile))
    except (msgspec.DecodeError, RecursionError) as error:
        raise StoreError(f"found damaged kernels of library calls ({error})") from error
    if not all(0 <= at < len(decoded.names) for _, own in decoded.kernels for at in own):
        raise StoreError("found damaged kernels of library calls (a name is missing)")
    return tuple((site, tuple(decoded.names[at] for at in own)) for site, own in decoded.kernels)


def agreed_kernels(decoded: Iterable[LibraryKernels]) -> LibraryKernels:
    """Return the kernels of the call sites on which all agree."""
    by_site: dict[int, set[tuple[str, ...]]] = {}
    for site, names in chain.from_iterable(decoded):
        by_site.setdefault(site, set()).add(names)
    return tuple((site, own.pop()) for site, own in sorted(by_site.items()) if len(own) == 1)


def is_kernel_file(data: bytes) -> bool:
    """Tell whether bytes are library kernels of this version or an earlier one."""
    try:
        if msgspec.json.decode(data, type=known(_Format)).format == 1:
            msgspec.json.decode(data, type=known(_CountFile))
        else:
            kernels_from_bytes(data)
    except (StoreError, msgspec.DecodeError, RecursionError):
        return False
    return data.startswith(KERNELS_HEADER)


class _Format(msgspec.Struct):
    format: int
