"""Owns what is said of a stored record that this version cannot read, as another one wrote it."""

from __future__ import annotations

from profiler_ext.version import VERSION, is_newer

WRITER_KEY = "written_by"
"""Where a stored record has the version that wrote it; those of before have no such key."""
_UNKNOWN_WORD = "Invalid enum value"
"""How msgspec begins to tell of a word that a vocabulary does not have."""


def version_mismatch(problem: str, content: object) -> str | None:
    """Return why a whole record cannot be read, ``None`` unless another version wrote it.

    Args:
        problem: what of it does not fit, in msgspec's words or ours.
        told: the record in plain objects, as its file has it.
    """
    writer = content.get(WRITER_KEY) if isinstance(content, dict) else None
    if isinstance(writer, str) and is_newer(writer):
        return (
            f"was written by a newer profiler-ext ({writer[:40]}; this one is {VERSION}: {problem})"
            "; update profiler-ext to read it"
        )
    if problem.startswith(_UNKNOWN_WORD):
        return (
            f"has a word that this profiler-ext ({VERSION}) does not know ({problem}), as a newer "
            "one may write; update profiler-ext to read it"
        )
    return None
