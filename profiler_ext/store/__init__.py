"""Provenance as bytes, and the files that keep it next to Inductor's cache."""

from profiler_ext.store.encoding import (
    EntryState,
    from_bytes,
    from_own_bytes,
    has_text,
    is_current,
    state_of,
    to_bytes,
    with_digest,
    work_digest,
)
from profiler_ext.store.folder import Store, StoredFile

__all__ = [
    "EntryState",
    "Store",
    "StoredFile",
    "from_bytes",
    "from_own_bytes",
    "has_text",
    "is_current",
    "state_of",
    "to_bytes",
    "with_digest",
    "work_digest",
]
