"""The fast path of reading a trace: decodes a block of events at a time, and frees it.

It takes only what it can prove, and leaves the rest to the slow path. JSON has one reading: where
the text between some commas decodes as a list of events, those commas separate events.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from profiler_ext.kineto import checking, decoding, document, event_json, raw_events
from profiler_ext.kineto.raw_events import offset_of
from profiler_ext.kineto.source import Text
from profiler_ext.records.events import Ints
from profiler_ext.records.stored import known

# It, and the objects made of it, fit the cache of a processor: half the time of larger ones
BLOCK_BYTES = 1 << 19
GROWTH_FACTOR = 4  # so much more is read where a block holds no whole event
_Characters = npt.NDArray[np.uint8]
_FEW_BLANKS = 32
_IS_BLANK = np.isin(np.arange(256), list(b" \t\n\r"))
_COMMA, _BACKSLASH, _OPENS, _CLOSES = b",\\{}"
_OPEN_BRACE = b"{"
_LIST_BEGINS = re.compile(rb'"traceEvents"\s*:\s*\[')
_EMPTY_LIST = b'"traceEvents":[]}'
_LIST_OPENING = b'{"traceEvents":['


class _Event(msgspec.Struct):
    ph: str
    name: str


class Block(NamedTuple):
    """Some events: their positions in the file, their text, and candidates for each one's begin.

    Of each it has the most brackets that open in it, and of all the number of braces among these.
    """

    begin: int
    text: bytes
    starts: Ints
    ends: Ints
    opened: Ints
    braces: int


class _Brackets(NamedTuple):
    r"""The brackets of a text, and where ``}, {`` is in it.

    That is between any two events, elsewhere only in strings and in lists of objects; most such
    strings are JSON themselves, with ``}, {\"``.
    """

    opens: Ints  # where lists and objects open
    braces: Ints  # which of these are objects
    firsts: Ints  # which of them are the first brace, and each after such a comma
    ends: Ints  # where the value before such a comma ends


def next_block(text: Text, begin: int, end: int) -> tuple[Block, int] | None:
    """Cut off some events; return them, and the begin of the next one."""
    # The last events, and what follows them, are in no block.
    size = BLOCK_BYTES
    while begin + size < end:
        part = text[begin : begin + size]
        opens, braces, firsts, ends = _between(part)
        if len(ends):
            starts, opened = opens[firsts], np.diff(firsts)
            known = int(np.searchsorted(braces, firsts[-1]))
            block = Block(begin, part[: ends[-1]], starts[:-1], ends, opened, known)
            return block, begin + int(starts[-1])
        size *= GROWTH_FACTOR
    return None


def next_cut(text: Text, begin: int) -> tuple[int, int] | None:
    """Return where an event seems to end, and where the next one seems to begin."""
    part = text[begin : begin + BLOCK_BYTES]
    opens, _, firsts, ends = _between(part)
    starts = opens[firsts[1:]].tolist()
    for end, start, behind in zip(ends.tolist(), starts, ends[1:].tolist(), strict=False):
        if _is_event(part[start:behind]):
            return begin + end, begin + start
    return None


def _is_event(text: bytes) -> bool:
    # Within an event there may be such commas, too.
    try:
        msgspec.json.decode(text, type=known(_Event))
    except msgspec.DecodeError:
        return False
    return True


def last_block(begin: int, text: bytes) -> Block:
    """Return all events of a text as a block."""
    opens, braces, firsts, ends = _between(text)
    ends = np.append(ends, text.rfind(_CLOSES) + 1)
    opened = np.diff(np.append(firsts, len(opens)))
    return Block(begin, text, opens[firsts], ends, opened, len(braces))


def _between(text: bytes) -> _Brackets:
    characters = np.frombuffer(text, np.uint8)
    opens = np.flatnonzero(checking.are_opening(characters))
    braces = np.flatnonzero(characters[opens] == _OPENS)
    firsts = braces[1:]
    commas = _before_blanks(characters, opens[firsts] - 1)
    is_between = characters[commas] == _COMMA
    firsts, commas = firsts[is_between], commas[is_between]
    closes = _before_blanks(characters, commas - 1)
    behind = np.minimum(opens[firsts] + 1, len(characters) - 1)
    is_between = (characters[closes] == _CLOSES) & (characters[behind] != _BACKSLASH)
    firsts = np.append(braces[:1], firsts[is_between])
    return _Brackets(opens, braces, firsts, closes[is_between] + 1)


def _before_blanks(characters: _Characters, places: Ints) -> Ints:
    """Return the last non-blank position up to each of these."""
    for _ in range(_FEW_BLANKS):
        is_blank = _IS_BLANK[characters[places]]
        if not is_blank.any():
            return places
        places = places - is_blank
    others = np.flatnonzero(~_IS_BLANK[characters])
    return others[np.searchsorted(others, places, side="right") - 1]


class FastPathError(ValueError):
    """The fast path cannot tell how to read the file."""


def read_in_blocks(text: Text) -> document.Document:
    """Split a trace, and read its events.

    Raises:
        FastPathError: The file is odd.
        msgspec.DecodeError: It is odd, or no JSON.
        ValueError: It is odd, exceeds a limit, or is no trace; the slow path reports which.
    """
    header, begin = beginning(text)
    reading = Reading(len(text), header)
    return document_of(text, header, reading, reading.add_blocks(text, begin, len(text)))


class Reading:
    """The events read so far from a file."""

    def __init__(self, text_bytes: int, header: document.Header | None = None) -> None:
        blocks = text_bytes // BLOCK_BYTES + 1
        self.columns = decoding.GrowingColumns(blocks)
        self.starts, self.ends = decoding.GrowingColumn(blocks), decoding.GrowingColumn(blocks)
        self.events, self.braces = 0, _braces(header or {})
        self._has_starts = True
        """Doubles tell when events began: in a file later ones have the larger numbers."""

    def add_blocks(self, text: Text, begin: int, end: int) -> int:
        """Add blocks of events, as far as there are any."""
        while (following := next_block(text, begin, end)) is not None:
            block, begin = following
            self.add(block)
        return begin

    def add(self, block: Block) -> None:
        """Add the events of a block."""
        begin, text, starts, ends, opened, braces = block
        events, strict = _events(self.events, b"[%b]" % text, self._has_starts)
        self.braces += braces
        # There are as many places as events, or some are not what they seem.
        if len(starts) != len(events):
            starts, ends = document.located(
                strict[1:-1], 0, checking.decoded(strict, list[msgspec.Raw])
            )
            checking.check_events(text, starts, ends)
        else:
            checking.check_events(text, starts, ends, opened)
        checking.check_counts(self.braces, self.events + len(events))
        try:
            self.columns.add(self.events, events)
        except decoding.InexactTimeError:
            self._has_starts = False
            self.columns.add(self.events, event_json.decoded_list(self.events, strict))
        self.events += len(events)
        self.starts.add(starts + begin)
        self.ends.add(ends + begin)


def document_of(
    text: Text, header: document.Header, reading: Reading, begin: int
) -> document.Document:
    """Read the last events, and the top-level keys that stand behind them."""
    events, keys = _read_tail(text[begin:])
    header = header | keys
    reading.braces += _braces(keys)
    if events.strip():
        reading.add(last_block(begin, events))
    document.check_header(header)
    raw = document.FileEvents(text, reading.starts.finished(), reading.ends.finished())
    return document.Document(header, raw, reading.columns.finished)


def _braces(header: document.Header) -> int:
    return sum(bytes(value).count(_OPEN_BRACE) for value in header.values())


def _read_tail(text: bytes) -> tuple[bytes, document.Header]:
    reopened = _utf8(_LIST_OPENING + text)
    try:
        keys = checking.decoded(reopened, document.Header)
    except msgspec.DecodeError:
        if not raw_events.is_nonstandard(reopened):
            raise
        reopened = raw_events.repaired(reopened)
        keys = checking.decoded(reopened, document.Header)
    listed = keys.pop(document.EVENTS_KEY)
    if offset_of(listed, reopened) != len(_LIST_OPENING) - 1:
        raise FastPathError("two lists of events")
    return bytes(listed)[1:-1], keys


def beginning(text: Text) -> tuple[document.Header, int]:
    """Return the top-level keys before the events, and where their list begins."""
    size = BLOCK_BYTES
    while (match := _LIST_BEGINS.search(start := text[:size])) is None:
        if size >= len(text):
            raise FastPathError("no list of events")
        size *= GROWTH_FACTOR
    # That this is JSON proves that the list is not within another value.
    header = checking.decoded(_utf8(start[: match.start()]) + _EMPTY_LIST, document.Header)
    del header[document.EVENTS_KEY]
    return header, match.end()


def _events(first: int, text: bytes, starts: bool) -> tuple[event_json.Events, bytes]:
    """Decode a list of events; return them, and the strict JSON that they were decoded from."""
    text = _utf8(text)
    try:
        return event_json.decoded_fast(first, text, starts), text
    except msgspec.DecodeError:
        if not raw_events.is_nonstandard(text):
            raise
    text = raw_events.repaired(text)
    return event_json.decoded_list(first, text), text


def _utf8(text: bytes) -> bytes:
    if raw_events.readable(text) is not text:
        raise FastPathError("no UTF-8")
    return text
