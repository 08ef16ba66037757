"""Owns the quick way through a trace: a block of events at a time, each let go when it is read.

It takes only what it can prove, and leaves the rest to the careful way. JSON has one reading: where
the text between some commas decodes as a list of events, those commas stand between events.
"""

from __future__ import annotations

import re

import msgspec

from profiler_ext.kineto import strictness
from profiler_ext.kineto.checking import check_counts, check_events, decoded
from profiler_ext.kineto.decoding import GrowingColumns, InexactTimeError
from profiler_ext.kineto.document import (
    EVENTS_KEY,
    Document,
    FileEvents,
    Header,
    check_header,
    located,
)
from profiler_ext.kineto.event_blocks import BLOCK_BYTES, GROWTH_FACTOR, Block, last_block, next_block
from profiler_ext.kineto.event_json import Events, decoded_list, decoded_fast
from profiler_ext.kineto.events import offset_of
from profiler_ext.kineto.growing import GrowingColumn
from profiler_ext.kineto.source import Text

_OPEN_BRACE = b"{"
_LIST_BEGINS = re.compile(rb'"traceEvents"\s*:\s*\[')
_EMPTY_LIST = b'"traceEvents":[]}'
_LIST_OPENING = b'{"traceEvents":['


class FastPathError(ValueError):
    """The quick way cannot say how the file is to be read."""


def read_in_blocks(text: Text) -> Document:
    """Take a trace apart, and read its events.

    Args:
        text: the file.

    Returns:
        What the careful way returns too.

    Raises:
        FastPathError: The file is odd.
        msgspec.DecodeError: It is odd, or no JSON.
        ValueError: It is odd, or goes past a limit, or is no trace: the careful way tells.
    """
    header, begin = beginning(text)
    reading = Reading(len(text), header)
    return document_of(text, header, reading, reading.add_blocks(text, begin, len(text)))


class Reading:
    """What was read so far of the events of a file."""

    def __init__(self, text_bytes: int, header: Header | None = None) -> None:
        """Begin with no event.

        Args:
            text_bytes: about how long the text is that will be read.
            header: the keys before the events, which count for the limit too.
        """
        blocks = text_bytes // BLOCK_BYTES + 1
        self.columns = GrowingColumns(blocks)
        self.starts, self.ends = GrowingColumn(blocks), GrowingColumn(blocks)
        self.events, self.braces = 0, _braces(header or {})
        self._has_starts = True
        """Doubles tell when events began: in a file later ones have the larger numbers."""

    def add_blocks(self, text: Text, begin: int, end: int) -> int:
        """Add blocks of events, as far as there are any.

        Args:
            text: the file.
            begin: where the first event begins, or blanks before it.
            end: nothing from here on is looked at.

        Returns:
            Where the last events begin, of which there is no block.

        Raises:
            ValueError: As :func:`read_in_blocks` does.
        """
        while (next_found := next_block(text, begin, end)) is not None:
            block, begin = next_found
            self.add(block)
        return begin

    def add(self, block: Block) -> None:
        """Add the events of a block.

        Raises:
            ValueError: As :func:`read_in_blocks` does.
        """
        begin, text, starts, ends, opened, braces = block
        events, strict = _events(self.events, b"[%b]" % text, self._has_starts)
        self.braces += braces
        # There are as many places as events, or some are not what they seem.
        if len(starts) != len(events):
            starts, ends = located(strict[1:-1], 0, decoded(strict, list[msgspec.Raw]))
            check_events(text, starts, ends)
        else:
            check_events(text, starts, ends, opened)
        check_counts(self.braces, self.events + len(events))
        try:
            self.columns.add(self.events, events)
        except InexactTimeError:
            self._has_starts = False
            self.columns.add(self.events, decoded_list(self.events, strict))
        self.events += len(events)
        self.starts.add(starts + begin)
        self.ends.add(ends + begin)


def document_of(text: Text, header: Header, reading: Reading, begin: int) -> Document:
    """Read the last events, and the top-level keys that stand behind them.

    Args:
        text: the file.
        header: the keys before the events.
        reading: the events before the last.
        begin: where the last events begin.

    Returns:
        The file taken apart.

    Raises:
        ValueError: As :func:`read_in_blocks` does.
    """
    events, keys = _read_tail(text[begin:])
    header = header | keys
    reading.braces += _braces(keys)
    if events.strip():
        reading.add(last_block(begin, events))
    check_header(header)
    raw = FileEvents(text, reading.starts.finished(), reading.ends.finished())
    return Document(header, raw, reading.columns.finished)


def _braces(header: Header) -> int:
    return sum(bytes(value).count(_OPEN_BRACE) for value in header.values())


def _read_tail(text: bytes) -> tuple[bytes, Header]:
    """Return the text of the last events, and the keys behind them."""
    reopened = _utf8(_LIST_OPENING + text)
    try:
        keys = decoded(reopened, Header)
    except msgspec.DecodeError:
        if not strictness.is_nonstandard(reopened):
            raise
        reopened = strictness.repaired(reopened)
        keys = decoded(reopened, Header)
    listed = keys.pop(EVENTS_KEY)
    if offset_of(listed, reopened) != len(_LIST_OPENING) - 1:
        raise FastPathError("two lists of events")
    return bytes(listed)[1:-1], keys


def beginning(text: Text) -> tuple[Header, int]:
    """Return the top-level keys before the events, and where their list begins.

    Args:
        text: the file.

    Raises:
        ValueError: As :func:`read_in_blocks` does.
    """
    size = BLOCK_BYTES
    while (match := _LIST_BEGINS.search(start := text[:size])) is None:
        if size >= len(text):
            raise FastPathError("no list of events")
        size *= GROWTH_FACTOR
    # That this is JSON proves that the list is not within another value.
    header = decoded(_utf8(start[: match.start()]) + _EMPTY_LIST, Header)
    del header[EVENTS_KEY]
    return header, match.end()


def _events(first: int, text: bytes, starts: bool) -> tuple[Events, bytes]:
    """Decode a list of events; return them, and the strict JSON that they were decoded from."""
    text = _utf8(text)
    try:
        return decoded_fast(first, text, starts), text
    except msgspec.DecodeError:
        if not strictness.is_nonstandard(text):
            raise
    text = strictness.repaired(text)
    return decoded_list(first, text), text


def _utf8(text: bytes) -> bytes:
    if strictness.readable(text) is not text:
        raise FastPathError("no UTF-8")
    return text
