"""Owns the careful way through a trace: its whole text at once, and why it is none."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec

from profiler_ext.kineto import strictness
from profiler_ext.kineto.checking import check_object_count, check_counts, check_events, decoded
from profiler_ext.kineto.decoding import GrowingColumns
from profiler_ext.kineto.document import (
    EVENTS_KEY,
    Document,
    FileEvents,
    Header,
    NotKinetoError,
    check_header,
    located,
)
from profiler_ext.kineto.event_json import decoded_each
from profiler_ext.kineto.events import offset_of
from profiler_ext.kineto.writers import other_writer
from profiler_ext.records import Events

_EVENTS_PER_CHUNK = 50_000


def read_slow_path(text: bytes) -> Document:
    """Take a trace apart.

    Args:
        text: the file.

    Returns:
        Its header and its events.

    Raises:
        msgspec.DecodeError: It is no JSON.
        NotKinetoError: It is JSON of something else.
        OverLimitError: It goes past a limit.
    """
    strict = strictness.readable(text)
    check_object_count(strict)
    try:
        return _split_document(text, strict)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if not strictness.is_nonstandard(strict):
            raise
        return _split_document(text, strictness.repaired(strict))


def _split_document(text: bytes, strict: bytes) -> Document:
    header = decoded(strict, Header)
    if EVENTS_KEY not in header:
        raise NotKinetoError(other_writer(header) or f'no "{EVENTS_KEY}" in it')
    listed = header.pop(EVENTS_KEY)
    events = decoded(listed, list[msgspec.Raw])
    raw = FileEvents(text, *located(strict, offset_of(listed, strict), events))
    check_counts(0, len(raw))
    check_events(strict, raw.starts, raw.ends)
    check_header(header)
    return Document(header, raw, functools.partial(_columns, events))


def _columns(raws: Sequence[msgspec.Raw]) -> tuple[Events, int]:
    columns = GrowingColumns()
    for first in range(0, len(raws), _EVENTS_PER_CHUNK):
        columns.add(first, decoded_each(first, raws[first : first + _EVENTS_PER_CHUNK]))
    return columns.finished()
