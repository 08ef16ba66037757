"""Owns what was learnt of library calls: which kernels each one launches, kept for others.

A file for each graph's work, device, and what libraries choose by there: JSON with the names, and
pairs of call site and names. The work is the graph's cache key, its call sites and the shapes that
they compute, whatever source lines they came from.

History: format 1, ``.counts.json``, held how many kernels a call launches. A number cannot tell
that one is missing, so such a file is no longer read; pruning still knows it, and those of format 2
that do not name what libraries chose by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import chain

import msgspec

from profiler_ext.errors import NewerRecordError, StoreError
from profiler_ext.records import LibraryKernels, Provenance
from profiler_ext.records.known_types import known

KERNELS_FORMAT = 2
KERNELS_HEADER = b'{"format":'
"""How the file of any format begins."""


class _KernelFile(msgspec.Struct):
    format: int
    device: str
    names: tuple[str, ...]
    kernels: tuple[tuple[int, tuple[int, ...]], ...]


class _CountFile(msgspec.Struct):
    """What format 1 was."""

    format: int
    device: str
    counts: tuple[tuple[int, int], ...]


def work_digest(key: str | None, provenance: Provenance) -> str:
    """Return what names the work of a graph: equal work calls libraries for the same.

    Args:
        key: the graph's cache key, which is of all arguments; ``None`` when bypassed.
        provenance: the graph's record.
    """
    computed = [(node.name, node.target, node.outputs) for node in provenance.nodes]
    content = msgspec.json.encode((key, provenance.torch_version, provenance.call_sites, computed))
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def kernels_to_bytes(kernels: LibraryKernels, device: str) -> bytes:
    """Return the kernels of library calls as bytes that any process can read.

    Args:
        kernels: pairs of call site and the names of its device events, in order.
        device: the device's name.
    """
    names = {
        name: at for at, name in enumerate(dict.fromkeys(n for _, own in kernels for n in own))
    }
    numbered = tuple((site, tuple(names[name] for name in own)) for site, own in kernels)
    return msgspec.json.encode(_KernelFile(KERNELS_FORMAT, device, tuple(names), numbered))


def kernels_from_bytes(data: bytes) -> LibraryKernels:
    """Read the kernels of library calls.

    Returns:
        Pairs of call site and the names of its device events, in order.

    Raises:
        NewerRecordError: A newer version wrote them.
        StoreError: The bytes are something else, damaged, or of another format.
    """
    try:
        version = msgspec.json.decode(data, type=known(_Format)).format
        if version > KERNELS_FORMAT:
            raise NewerRecordError(
                f"found format {version} of kernels, expected {KERNELS_FORMAT}: a newer profiler-ext "
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
    """Return what all tell that tell something of a call site; the others are left out.

    Args:
        learnt: what several runs saw.
    """
    by_site: dict[int, set[tuple[str, ...]]] = {}
    for site, names in chain.from_iterable(decoded):
        by_site.setdefault(site, set()).add(names)
    return tuple((site, own.pop()) for site, own in sorted(by_site.items()) if len(own) == 1)


def is_kernel_file(data: bytes) -> bool:
    """Tell whether bytes are what this version or an earlier one learnt of library calls."""
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
