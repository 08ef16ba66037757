"""Owns the blocks of events that a text is cut into, told by what stands between two events."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from profiler_ext.kineto.checking import are_opening
from profiler_ext.kineto.source import Text
from profiler_ext.records import Ints
from profiler_ext.records.known_types import known

BLOCK_BYTES = 1 << 19
"""It, and the objects made of it, fit the cache of a processor: half the time of larger ones."""
GROWTH_FACTOR = 4
"""So much more is read where a block holds no whole event."""
_Characters = npt.NDArray[np.uint8]
_FEW_BLANKS = 32
_IS_BLANK = np.isin(np.arange(256), list(b" \t\n\r"))
_COMMA, _BACKSLASH, _OPENS, _CLOSES = b",\\{}"


class _Event(msgspec.Struct):
    ph: str
    name: str


class Block(NamedTuple):
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


def next_block(text: Text, begin: int, end: int) -> tuple[Block, int] | None:
    """Cut off some events; return them, and where the next one begins.

    Of the last events, and of what comes behind them, there is no block.

    Args:
        text: the file.
        begin: where the events begin, or blanks before them.
        end: nothing from here on is looked at.
    """
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
    """Return where an event seems to end, and where the next one seems to begin.

    Args:
        text: the file.
        begin: where to look from; it may be within an event.
    """
    part = text[begin : begin + BLOCK_BYTES]
    opens, _, firsts, ends = _between(part)
    starts = opens[firsts[1:]].tolist()
    for end, start, behind in zip(ends.tolist(), starts, ends[1:].tolist(), strict=False):
        if _is_event(part[start:behind]):
            return begin + end, begin + start
    return None


def _is_event(text: bytes) -> bool:
    """Tell whether a text looks like an event: within one there may be such commas, too."""
    try:
        msgspec.json.decode(text, type=known(_Event))
    except msgspec.DecodeError:
        return False
    return True


def last_block(begin: int, text: bytes) -> Block:
    """Return all events of a text as a block.

    Args:
        begin: where the text stands in the file.
        text: the text.
    """
    opens, braces, firsts, ends = _between(text)
    ends = np.append(ends, text.rfind(_CLOSES) + 1)
    opened = np.diff(np.append(firsts, len(opens)))
    return Block(begin, text, opens[firsts], ends, opened, len(braces))


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
    for _ in range(_FEW_BLANKS):
        is_blank = _IS_BLANK[characters[places]]
        if not is_blank.any():
            return places
        places = places - is_blank
    others = np.flatnonzero(~_IS_BLANK[characters])
    return others[np.searchsorted(others, places, side="right") - 1]
