"""Owns provenance as bytes, and the files that keep it beside Inductor's cache.

Format 1: ``PXPR``, the format number (2 bytes, big endian), then zlib-compressed JSON of
the record. A reader refuses a newer format, other content, and text that inflates past
``INFLATED_LIMIT_BYTES``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from pathlib import Path

import msgspec

from profiler_ext.errors import StoreError
from profiler_ext.records import Provenance
from profiler_ext.writing import replacing

MAGIC = b"PXPR"
FORMAT = 1
INFLATED_LIMIT_BYTES = 256 << 20


def with_digest(provenance: Provenance) -> Provenance:
    """Return the record with the digest of its content."""
    plain = dataclasses.replace(provenance, digest="")
    content = msgspec.json.encode(plain)
    return dataclasses.replace(plain, digest=hashlib.blake2b(content, digest_size=16).hexdigest())


def to_bytes(provenance: Provenance) -> bytes:
    """Return a provenance as bytes that any process can read."""
    return MAGIC + FORMAT.to_bytes(2, "big") + zlib.compress(msgspec.json.encode(provenance), 3)


def from_bytes(data: bytes) -> Provenance:
    """Read a provenance.

    Args:
        data: what :func:`to_bytes` gave.

    Returns:
        The record.

    Raises:
        StoreError: The bytes are something else, damaged, too large, or of a newer format.
    """
    if data[:4] != MAGIC:
        raise StoreError(f"found {data[:4]!r}, expected a provenance ({MAGIC!r}); remove the file")
    if (found := int.from_bytes(data[4:6], "big")) != FORMAT:
        raise StoreError(f"found provenance format {found}, expected {FORMAT}; clear the cache")
    try:
        return msgspec.json.decode(_inflate(data[6:]), type=Provenance)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise StoreError(f"found a damaged provenance ({error}); clear the cache") from error


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    text = inflater.decompress(data, INFLATED_LIMIT_BYTES)
    if inflater.unconsumed_tail:
        raise StoreError(f"found a provenance over {INFLATED_LIMIT_BYTES} bytes; clear the cache")
    if not inflater.eof:
        raise StoreError("found a truncated provenance, expected a whole one; clear the cache")
    return text


class Store:
    """Files of provenance under one folder, found by FX graph cache key and Dynamo digest."""

    def __init__(self, folder: Path) -> None:
        """Use ``folder``; it is made when something is put into it."""
        self.folder = folder

    def holds(self, key: str, dynamo_digest: str | None) -> bool:
        """Tell whether a provenance is kept for a graph's key and a Dynamo graph."""
        return self._path(key, dynamo_digest).exists()

    def put(self, key: str, dynamo_digest: str | None, data: bytes) -> None:
        """Keep a provenance's bytes for a graph's key and a Dynamo graph.

        Raises:
            OutputError: The folder cannot be written.
        """
        with replacing(self._path(key, dynamo_digest)) as file:
            file.write(data)

    def find(self, key: str) -> list[bytes]:
        """Return all that is kept for a graph's key, by name of file."""
        found = sorted((self.folder / _safe(key)[:2]).glob(f"{_safe(key)}.*.pxpr"))
        return [path.read_bytes() for path in found]

    def _path(self, key: str, dynamo_digest: str | None) -> Path:
        name = f"{_safe(key)}.{dynamo_digest or 'none'}.pxpr"
        return self.folder / _safe(key)[:2] / name


def _safe(key: str) -> str:
    return "".join(c for c in key if c.isalnum())
