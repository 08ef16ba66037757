"""Checks JSON text against the limits before it is decoded."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from profiler_ext.kineto.names import step_number
from profiler_ext.kineto.source import Limit
from profiler_ext.records.events import Events, Ints
from profiler_ext.records.stored import known

_OBJECTS_PER_EVENT = 2
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_CHUNK = 256
_MOST_DIGITS = 18
_TOO_MANY_DIGITS = re.compile(rb"\d{%d}" % (_MOST_DIGITS + 1))
_BACKSLASH = ord("\\")
_ZERO, _TEN = 48, 10
# The bit that these two differ in; no other character becomes one of them with it
_BRACKET_OR_BRACE = np.uint8(ord("[") ^ ord("{"))


# Python's own recursion ends there, at some 900 levels; what Kineto writes has a dozen
TOO_DEEP = "is nested too deep for the decoder of JSON, whatever limit is set; record it again"


class OverLimitError(ValueError):
    """Text exceeds a limit; the message says which, and its variable."""


def check_object_count(text: bytes) -> None:
    """Raise OverLimitError unless the text has few enough objects to be split."""
    check_counts(text.count(b"{"))


def check_counts(braces: int, events: int = 0) -> None:
    """Raise OverLimitError unless a file has few enough objects to be split."""
    most = Limit.EVENTS.count
    if braces > _OBJECTS_PER_EVENT * most or events > most:
        raise OverLimitError(Limit.EVENTS.exceeded("holds too many events"))


def check_events(text: bytes, starts: Ints, ends: Ints, opened: Ints | None = None) -> None:
    """Raise unless every event keeps within the limits of depth and digits."""
    # opened: the most brackets that open in each, if known
    odd = _long_numbers(text, Limit.DIGITS.count)
    suspects = set((np.searchsorted(starts, odd, side="right") - 1).tolist())
    deepest = Limit.DEPTH.count
    most = _most_brackets(text, starts, ends) if opened is None else opened
    for at in np.flatnonzero(most > deepest).tolist():
        event = text[starts[at] : ends[at]]
        if event.count(b"[") + event.count(b"{") > deepest:
            suspects.add(at)
    for at in suspects - {-1}:
        check_value(text[starts[at] : ends[at]])


def decoded(text: bytes | msgspec.Raw, wanted: Any) -> Any:
    """Decode JSON; raises msgspec.DecodeError or OverLimitError."""
    try:
        return msgspec.json.decode(text, type=known(wanted))
    except RecursionError as error:
        raise OverLimitError(TOO_DEEP) from error


def check_steps(events: Events) -> None:
    """Raise where the steps of all devices are too many for a breakdown of each."""
    is_step = np.array([step_number(name) is not None for name in events.name.strings], np.bool_)
    steps = int(is_step[events.name.codes].sum()) if len(is_step) else 0
    if steps * len(np.unique(events.device.compressed())) > Limit.STEPS.count:
        raise OverLimitError(Limit.STEPS.exceeded("has too many steps on too many devices"))


def check_value(text: bytes) -> None:
    """Raise unless a JSON value keeps within the limits of depth and digits."""
    deepest, depth = Limit.DEPTH.count, 0
    for token in _tokens(Limit.DIGITS.count).finditer(text):
        kind = token[0][:1]
        if kind in b"[{":
            depth += 1
            if depth > deepest:
                raise OverLimitError(Limit.DEPTH.exceeded("is nested too deep"))
        elif kind in b"]}":
            depth -= 1
        elif kind != b'"':
            raise OverLimitError(Limit.DIGITS.exceeded("has a number of too many digits"))


def check_records(text: bytes) -> None:
    """Raise unless what we added keeps within the limits on texts, and its numbers fit a column."""
    most = Limit.NAME_BYTES.count
    if _are_texts_clearly_short(text, most) and _are_numbers_clearly_short(text):
        return
    if _quick_valid(most // _CHUNK).fullmatch(text):
        return
    valid = _valid(most).match(text)
    if valid is not None and valid.end() < len(text):
        if text[valid.end() : valid.end() + 1] == b'"':
            raise OverLimitError(Limit.NAME_BYTES.exceeded("has a text that is too long"))
        raise OverLimitError("has a number of more than 18 digits")


def _are_texts_clearly_short(text: bytes, most: int) -> bool:
    """Return whether no text can be too long: some windows of the file say it of all."""
    # What is longer spans three windows in a row, none of which has a quote that ends a text.
    window, bare = max(most // 4, 1), 0
    for begin in range(0, len(text), window):
        bare = 0 if _has_quote(text, begin, begin + window) else bare + 1
        if bare > 2:
            return False
    return True


def _has_quote(text: bytes, begin: int, end: int) -> bool:
    at = text.find(b'"', begin, end)
    while at > 0 and text[at - 1] == _BACKSLASH:
        at = text.find(b'"', at + 1, end)
    return at >= 0


def _are_numbers_clearly_short(text: bytes) -> bool:
    """Return whether nowhere are more than 18 digits in a row, in texts neither."""
    places = _long_numbers(text, _MOST_DIGITS).tolist()
    nearby = ((max(at - _MOST_DIGITS, 0), at + 2 * _MOST_DIGITS) for at in places)
    return not any(_TOO_MANY_DIGITS.search(text, *bounds) for bounds in nearby)


def check_names(names: Sequence[str]) -> None:
    """Raise unless names of events keep within the limit."""
    if max(map(len, names), default=0) > Limit.NAME_BYTES.count:
        raise OverLimitError(Limit.NAME_BYTES.exceeded("has a name that is too long"))


def are_opening(characters: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return which characters open a list or an object, in texts too."""
    flags: npt.NDArray[np.bool_] = (characters | _BRACKET_OR_BRACE) == ord("{")
    return flags


def _most_brackets(text: bytes, starts: Ints, ends: Ints) -> Ints:
    """Return an upper bound of the brackets in each part of a text."""
    # Counted 64 bytes at a time, a bit for each: exact counts take longer than decoding.
    characters = np.frombuffer(text, np.uint8)
    bits = np.packbits(are_opening(characters))
    words = np.pad(bits, (0, -len(bits) % 8)).view(np.uint64)
    until = np.cumsum(np.append(0, np.bitwise_count(words)), dtype=np.int64)
    return until[-(-ends // 64)] - until[starts // 64]


def _long_numbers(text: bytes, most: int) -> Ints:
    """Return places inside runs of more digits than that, and inside some shorter ones."""
    # Such a run covers two neighbouring multiples of half its length, so few bytes are read.
    stride = max(1, most // 2)
    sampled = np.frombuffer(text, np.uint8)[::stride] - np.uint8(_ZERO)
    is_digit = sampled < _TEN
    places = np.flatnonzero(is_digit[:-1] & is_digit[1:]) * stride
    runs = [at for at in places.tolist() if text[at : at + stride].isdigit()]
    return np.array(runs, dtype=np.int64)


@functools.lru_cache(maxsize=4)
def _tokens(digits: int) -> re.Pattern[bytes]:
    return re.compile(_STRING + rb"|[\[{]|[\]}]|\d{%d,}+" % (digits + 1), re.DOTALL)


@functools.lru_cache(maxsize=4)
def _quick_valid(chunks: int) -> re.Pattern[bytes]:
    # Matches nearly all valid texts: one of so few chunks, or escapes, is not too long.
    text = rb'"(?:[^"\\]{1,%d}+|\\.){0,%d}+"' % (_CHUNK, chunks)
    return re.compile(rb'(?:[^"\d]++|' + text + rb"|\d{1,18}+(?!\d))*+", re.DOTALL)


@functools.lru_cache(maxsize=4)
def _valid(characters: int) -> re.Pattern[bytes]:
    text = rb'"(?:[^"\\]|\\.){0,%d}+"' % characters
    return re.compile(rb'(?:[^"\d]++|' + text + rb"|\d{1,18}+(?!\d))*+", re.DOTALL)
