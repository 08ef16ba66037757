"""The record that the store's tests keep, and how a file is made old."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from profiler_ext.records.lineage import Frame
from profiler_ext.records.provenance import CallSite, Provenance
from profiler_ext.records.vocabulary import SiteKind
from profiler_ext.store import Store, to_bytes, with_digest
from tests.fx_nodes import fx_node

DAY_NS = 86_400 * 10**9


def record() -> Provenance:
    """Return a record of a small graph."""
    frame = Frame("<script>/model.py", 3, "forward", "y = x * 3")
    return with_digest(
        Provenance(
            digest="",
            torch_version="2.13.0",
            is_backward=False,
            is_inference=False,
            joint=None,
            dynamo_digest="d1",
            nodes=(fx_node("mul_0", "aten.mul", stack=(frame,)),),
            call_sites=(CallSite(0, "0", SiteKind.TRITON, "triton_poi", None, ("mul_0",), (1,)),),
        )
    )


def keep(store: Store, key: str, *, unused_days: int = 0, data: bytes | None = None) -> Path:
    """Put a record, or other bytes, used so long ago; return its file."""
    store.put(key, "d1", to_bytes(record()) if data is None else data)
    (path,) = store.find(key)
    used_ns = path.stat().st_mtime_ns - unused_days * DAY_NS
    os.utime(path, ns=(used_ns, used_ns))
    return path


def padded(provenance: Provenance, nodes: int) -> Provenance:
    """Return a record that takes a while to write."""
    names = (os.urandom(64).hex() for _ in range(nodes))
    more = tuple(dataclasses.replace(provenance.nodes[0], name=name) for name in names)
    return with_digest(dataclasses.replace(provenance, nodes=more))
