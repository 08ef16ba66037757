"""Owns what was learnt of library calls: how many kernels each one launches, kept for others.

A file for each graph's work and device: JSON with pairs of call site and count. The work is the
call sites and the shapes that they compute, whatever source lines they came from.
"""

from __future__ import annotations

import hashlib

import msgspec

from profiler_ext.errors import StoreError
from profiler_ext.records import Provenance

COUNTS_FORMAT = 1
COUNTS_HEADER = b'{"format":'
"""How the file of any format begins."""
Counts = tuple[tuple[int, int], ...]


class _Learnt(msgspec.Struct):
    format: int
    device: str
    counts: Counts


def work_digest(provenance: Provenance) -> str:
    """Return what names the work of a graph: equal work runs equal library kernels."""
    computed = [(node.name, node.target, node.outputs) for node in provenance.nodes]
    content = msgspec.json.encode((provenance.torch_version, provenance.call_sites, computed))
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def counts_to_bytes(counts: Counts, device: str) -> bytes:
    """Return counts as bytes that any process can read."""
    return msgspec.json.encode(_Learnt(COUNTS_FORMAT, device, counts))


def counts_from_bytes(data: bytes) -> Counts:
    """Read counts.

    Raises:
        StoreError: The bytes are something else, damaged, or of another format.
    """
    try:
        learnt = msgspec.json.decode(data, type=_Learnt)
    except msgspec.DecodeError as error:
        raise StoreError(f"found damaged counts of library calls ({error})") from error
    if learnt.format != COUNTS_FORMAT:
        raise StoreError(f"found format {learnt.format} of counts, expected {COUNTS_FORMAT}")
    return learnt.counts


def is_counts(data: bytes) -> bool:
    """Tell whether bytes are counts that this version reads."""
    try:
        counts_from_bytes(data)
    except StoreError:
        return False
    return data.startswith(COUNTS_HEADER)
