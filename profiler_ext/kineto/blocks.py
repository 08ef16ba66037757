"""Owns the quick way through a trace: a block of events at a time, each let go when it is read.

It takes only what it can prove, and leaves the rest to the careful way. JSON has one reading: where
the text between some commas decodes as a list of events, those commas stand between events.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from profiler_ext.kineto import strictness
from profiler_ext.kineto.checking import are_opening, check_counts, check_events, decoded
from profiler_ext.kineto.decoding import GrowingColumns, InexactError
from profiler_ext.kineto.document import (
    EVENTS_KEY,
    Document,
    FileEvents,
    Header,
    check_header,
    located,
)
from profiler_ext.kineto.event_json import Events, decoded_list, decoded_quickly
from profiler_ext.kineto.events import offset_of
from profiler_ext.kineto.growing import GrowingColumn
from profiler_ext.kineto.source import Text
from profiler_ext.records import Ints

_Characters = npt.NDArray[np.uint8]

_BLOCK_BYTES = 1 << 19
"""It, and the objects made of it, fit the cache of a processor: half the time of larger ones."""
_MORE_TIMES = 4
_MOST_BLANKS = 32
_IS_BLANK = np.isin(np.arange(256), list(b" \t\n\r"))
_COMMA, _BACKSLASH, _OPENS, _CLOSES = b",\\{}"
_LIST_BEGINS = re.compile(rb'"traceEvents"\s*:\s*\[')
_EMPTY_LIST = b'"traceEvents":[]}'
_REOPENED = b'{"traceEvents":['


class UnprovenError(ValueError):
    """The quick way cannot say how the file is to be read."""


class _Block(NamedTuple):
    """Some events: where they stand in the file, their text, where each may stand in it.

    Of each it has how many brackets open in it at most, and of all how many of these are braces.
    """

    begin: int
    text: bytes
    starts: Ints
    ends: Ints
    opened: Ints
    braces: int


class _Brackets(NamedTuple):
    r"""What opens in a text, and where ``}, {`` stands in it.

    Between two events that stands always, elsewhere only in texts and in lists of objects. Most of
    such texts are JSON themselves, with ``}, {\"``.

    Attributes:
        opens: where lists and objects open.
        braces: which of these are objects.
        firsts: which of them are the first brace, and each behind such a comma.
        ends: where what stands before such a comma ends.
    """

    opens: Ints
    braces: Ints
    firsts: Ints
    ends: Ints


def read_in_blocks(text: Text) -> Document:
    """Take a trace apart, and read its events.

    Args:
        text: the file.

    Returns:
        What the careful way returns too.

    Raises:
        UnprovenError: The file is odd.
        msgspec.DecodeError: It is odd, or no JSON.
        ValueError: It is odd, or goes past a limit, or is no trace: the careful way tells.
    """
    header, begin = _beginning(text)
    reading = _Reading(header, len(text) // _BLOCK_BYTES + 1)
    while (found := _block(text, begin)) is not None:
        block, begin = found
        reading.add(block)
    reading.add_rest(begin, text[begin:])
    check_header(reading.header)
    return Document(reading.header, reading.located(text), reading.columns.finished)


class _Reading:
    """What was read so far."""

    def __init__(self, header: Header, blocks: int) -> None:
        self.header = header
        self.columns = GrowingColumns(blocks)
        self._starts, self._ends = GrowingColumn(blocks), GrowingColumn(blocks)
        self._events = 0
        self._has_starts = True
        """Doubles tell when events began: in a file later ones have the larger numbers."""
        self._braces = sum(bytes(value).count(_OPENS) for value in header.values())

    def add(self, block: _Block) -> None:
        """Add the events of a block."""
        begin, text, starts, ends, opened, braces = block
        events, strict = _events(self._events, b"[%b]" % text, self._has_starts)
        self._braces += braces
        # There are as many places as events, or some are not what they seem.
        if len(starts) != len(events):
            starts, ends = located(strict[1:-1], 0, decoded(strict, list[msgspec.Raw]))
            check_events(text, starts, ends)
        else:
            check_events(text, starts, ends, opened)
        check_counts(self._braces, self._events + len(events))
        try:
            self.columns.add(self._events, events)
        except InexactError:
            self._has_starts = False
            self.columns.add(self._events, decoded_list(self._events, strict))
        self._events += len(events)
        self._starts.add(starts + begin)
        self._ends.add(ends + begin)

    def add_rest(self, begin: int, text: bytes) -> None:
        """Add the last events, and the top-level keys that stand behind them."""
        whole = _utf8(_REOPENED + text)
        try:
            keys = decoded(whole, Header)
        except msgspec.DecodeError:
            if not strictness.is_odd(whole):
                raise
            whole = strictness.repaired(whole)
            keys = decoded(whole, Header)
        listed = keys.pop(EVENTS_KEY)
        if offset_of(listed, whole) != len(_REOPENED) - 1:
            raise UnprovenError("two lists of events")
        self._braces += sum(bytes(value).count(_OPENS) for value in keys.values())
        self.header.update(keys)
        events = bytes(listed)[1:-1]
        if events.strip():
            self.add(_last_block(begin, events))

    def located(self, text: Text) -> FileEvents:
        return FileEvents(text, self._starts.finished(), self._ends.finished())


def _beginning(text: Text) -> tuple[Header, int]:
    """Return the top-level keys before the events, and where their list begins."""
    size = _BLOCK_BYTES
    while (match := _LIST_BEGINS.search(beginning := text[:size])) is None:
        if size >= len(text):
            raise UnprovenError("no list of events")
        size *= _MORE_TIMES
    # That this is JSON proves that the list is not within another value.
    header = decoded(_utf8(beginning[: match.start()]) + _EMPTY_LIST, Header)
    del header[EVENTS_KEY]
    return header, match.end()


def _block(text: Text, begin: int) -> tuple[_Block, int] | None:
    """Cut off some events; return them, and where the next one begins.

    Of the last events, and of what comes behind them, there is no block.
    """
    size = _BLOCK_BYTES
    while begin + size < len(text):
        part = text[begin : begin + size]
        opens, braces, firsts, ends = _between(part)
        if len(ends):
            starts, opened = opens[firsts], np.diff(firsts)
            known = int(np.searchsorted(braces, firsts[-1]))
            block = _Block(begin, part[: ends[-1]], starts[:-1], ends, opened, known)
            return block, begin + int(starts[-1])
        size *= _MORE_TIMES
    return None


def _events(first: int, text: bytes, starts: bool) -> tuple[Events, bytes]:
    """Decode a list of events; return them, and the strict JSON that they were decoded from."""
    text = _utf8(text)
    try:
        return decoded_quickly(first, text, starts), text
    except msgspec.DecodeError:
        if not strictness.is_odd(text):
            raise
    text = strictness.repaired(text)
    return decoded_list(first, text), text


def _utf8(text: bytes) -> bytes:
    if strictness.readable(text) is not text:
        raise UnprovenError("no UTF-8")
    return text


def _last_block(begin: int, text: bytes) -> _Block:
    opens, braces, firsts, ends = _between(text)
    ends = np.append(ends, text.rfind(_CLOSES) + 1)
    opened = np.diff(np.append(firsts, len(opens)))
    return _Block(begin, text, opens[firsts], ends, opened, len(braces))


def _between(text: bytes) -> _Brackets:
    characters = np.frombuffer(text, np.uint8)
    opens = np.flatnonzero(are_opening(characters))
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
    """Return the last places up to these where no blank is."""
    for _ in range(_MOST_BLANKS):
        is_blank = _IS_BLANK[characters[places]]
        if not is_blank.any():
            break
        places = places - is_blank
    return places
